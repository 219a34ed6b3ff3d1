// What this machine can do at most, measured, since data sheets do not say what a virtual machine gets:
// multiply-adds on registers in float32 and bfloat16, and passes over memory; by one thread and by all.
// Prints one JSON object.
//   bench/limits 2        the number of threads; all cores if it is not given
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bench/limits_bfloat16.h"
#include "tensor/cpu/vec.h"

using nlohmann::ordered_json;

namespace {

/// Seconds of the fastest of several bursts of work(thread), which all threads begin together and the slowest
/// ends: others may use the machine meanwhile.
double fastest_burst(int threads, int bursts, const std::function<void(int thread)>& work) {
  using Time = std::chrono::steady_clock::time_point;
  std::barrier together(threads);
  std::vector<Time> starts(static_cast<size_t>(threads)), ends(starts);
  std::chrono::duration<double> best = std::chrono::hours(1);
  {
    std::vector<std::jthread> team;
    for (int thread = 0; thread < threads; ++thread) {
      team.emplace_back([&, thread] {
        const auto mine = static_cast<size_t>(thread);
        for (int burst = 0; burst < bursts; ++burst) {
          together.arrive_and_wait();
          starts[mine] = std::chrono::steady_clock::now();
          work(thread);
          ends[mine] = std::chrono::steady_clock::now();
          together.arrive_and_wait();
          if (thread == 0)
            best = std::min<std::chrono::duration<double>>(
                best, *std::ranges::max_element(ends) - *std::ranges::min_element(starts));
        }
      });
    }
  }
  return best.count();
}

// --- multiply-adds

constexpr int kBursts = 40;

/// An instruction, run a number of times by each call.
struct Unit {
  const char* instruction;
  double flop;  ///< of a call
  std::function<void(int thread)> run;
};

/// Sums that do not wait for each other: more than latency times units (4 x 2), fewer than registers (16).
constexpr size_t kSums = 10;
constexpr int kSteps = 200'000;

/// Calls step on each of kSums sums, kSteps times. The sums come from memory and go there: the compiler must
/// not see that they are alike.
template <class Sum>
[[gnu::noinline]] void accumulate(float* memory) {
  [memory]<size_t... i>(std::index_sequence<i...>) {
    Sum sums[] = {Sum(memory + i * Sum::lanes)...};
    for (int step = 0; step < kSteps; ++step) (sums[i].step(), ...);
    (sums[i].store(memory + i * Sum::lanes), ...);
  }
  (std::make_index_sequence<kSums>());
}

template <class Sum>
Unit unit(const char* instruction) {
  return {instruction, 2.0 * Sum::multiplies * kSums * kSteps, [](int) {
            std::vector<float> memory(kSums * Sum::lanes, 1.0f);
            accumulate<Sum>(memory.data());
          }};
}

/// sum = sum * 0.5 + 1
struct FusedSum {
  using V = mezzo::cpu::Vec<float>;
  static constexpr int lanes = V::size, multiplies = lanes;
  V sum;
  explicit FusedSum(const float* from) : sum(V::load(from)) {}
  void step() { sum = Eigen::internal::pmadd(sum.packet, V(0.5).packet, V(1).packet); }
  void store(float* to) const { sum.store(to); }
};

std::vector<Unit> float32_units() {
  constexpr int bits = 32 * FusedSum::lanes;
  return {unit<FusedSum>(bits == 512   ? "multiply-add of 512 bits"
                         : bits == 256 ? "multiply-add of 256 bits"
                                       : "multiply-add of 128 bits")};
}

std::vector<Unit> bfloat16_units() {
  std::vector<Unit> units;
  bench::if_pairs([&]<class Sum>(const char* instruction) { units.push_back(unit<Sum>(instruction)); });
  if (bench::request_tiles())
    units.push_back({"tdpbf16ps of AMX", bench::kTileFlop, [](int) { bench::multiply_tiles(); }});
  return units;
}

/// GFLOP/s of the fastest of the units; null if there is none.
ordered_json peak(const std::vector<Unit>& units, int threads) {
  ordered_json best;
  for (const Unit& unit : units) {
    const auto rate = [&](int n) { return 1e-9 * n * unit.flop / fastest_burst(n, kBursts, unit.run); };
    const double all = rate(threads);
    if (best.is_null() || all > best["gflops"])
      best = {{"instruction", unit.instruction}, {"one_thread_gflops", rate(1)}, {"gflops", all}};
  }
  return best;
}

// --- memory

struct Unmap {
  size_t bytes;
  void operator()(float* memory) const { munmap(memory, bytes); }
};
using Array = std::unique_ptr<float[], Unmap>;

/// Memory from the system, in large pages if it has them, as mezzo's own large blocks.
Array allocate(size_t n) {
  const size_t bytes = n * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);
  return Array(static_cast<float*>(memory), Unmap{bytes});
}

void multiply(float* __restrict out, const float* __restrict a, const float* __restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

/// GB/s of out = a * b and out = a, each byte counted once, without the read that precedes a write. Arrays
/// are twice the last cache, within an eighth of the memory.
ordered_json memory_rates(int threads) {
  const auto bytes = [](long count, long each) {
    return static_cast<size_t>(std::max(0L, count) * std::max(0L, each));
  };
  const size_t cache = bytes(sysconf(_SC_LEVEL3_CACHE_SIZE), 1),
               memory = bytes(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE));
  const size_t n = std::min(std::max(2 * cache, size_t{256} << 20), memory / 8) / sizeof(float);
  const Array a = allocate(n), b = allocate(n), out = allocate(n);

  const auto rate = [&](int team, size_t bytes_each, auto f) {
    return 1e-9 * static_cast<double>(n * bytes_each) / fastest_burst(team, 4, [&](int thread) {
             const size_t begin = n * static_cast<size_t>(thread) / static_cast<size_t>(team),
                          end = n * (static_cast<size_t>(thread) + 1) / static_cast<size_t>(team);
             f(begin, end - begin);
           });
  };
  const auto fill = [&](size_t i, size_t count) {
    for (const Array* array : {&a, &b, &out}) std::fill_n(array->get() + i, count, 1.0f);
  };
  rate(threads, 0, fill);
  const auto rates = [&](size_t bytes_each, auto f) {
    return ordered_json{{"one_thread_gbs", rate(1, bytes_each, f)}, {"gbs", rate(threads, bytes_each, f)}};
  };
  return {{"array_mib", n * sizeof(float) >> 20},
          {"multiply", rates(12, [&](size_t i, size_t count) { multiply(&out[i], &a[i], &b[i], count); })},
          {"copy",
           rates(8, [&](size_t i, size_t count) { std::memcpy(&out[i], &a[i], count * sizeof(float)); })}};
}

}  // namespace

int main(int argc, char** argv) {
  const int threads =
      std::max(1, argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency()));
  std::cout << ordered_json{{"threads", threads},
                            {"float32", peak(float32_units(), threads)},
                            {"bfloat16", peak(bfloat16_units(), threads)},
                            {"memory", memory_rates(threads)}}
            << std::endl;
}
