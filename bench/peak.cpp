// The processor's peak in float32, fused multiply-adds on registers alone: what compare.py holds the speed of
// the products against, measured since data sheets do not say what a virtual machine gets. Prints one JSON
// object.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/cpu/vec.h"

namespace {

using V = mezzo::cpu::Vec<float>;
/// Sums that do not wait for each other: more than latency times units (4 x 2), fewer than registers (16).
constexpr size_t kSums = 10;
constexpr int kSteps = 200'000, kBursts = 40;

/// sums = sums * 0.5 + 1, `steps` times.
template <size_t... i>
[[gnu::noinline]] void multiply_add(float* memory, int steps, std::index_sequence<i...>) {
  const V factor(0.5), term(1);
  V sums[] = {V::load(memory + i * V::size)...};
  for (int step = 0; step < steps; ++step) {
    ((sums[i] = Eigen::internal::pmadd(sums[i].packet, factor.packet, term.packet)), ...);
  }
  (sums[i].store(memory + i * V::size), ...);
}

/// GFLOP/s of the fastest of several bursts of about a millisecond: others may use the machine meanwhile.
double best_burst() {
  std::vector<float> memory(kSums * V::size, 1.0f);
  double best = 0;
  for (int burst = 0; burst < kBursts; ++burst) {
    const auto start = std::chrono::steady_clock::now();
    multiply_add(memory.data(), kSteps, std::make_index_sequence<kSums>());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2e-9 * kSums * V::size * kSteps / seconds.count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<double> rates(argc > 1 ? static_cast<size_t>(std::max(1, std::atoi(argv[1]))) : 1);
  {
    std::vector<std::jthread> threads;
    for (double& rate : rates) threads.emplace_back([&rate] { rate = best_burst(); });
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  std::cout << "{\"threads\": " << rates.size() << ", \"gflops\": " << sum << "}" << std::endl;
}
