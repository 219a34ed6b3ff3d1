// What the op benchmarks share, those of mezzo and their peers in libtorch and oneDNN: a row has a name, runs
// a function and counts what it does; the shapes of products.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <string>

namespace bench {

/// What a call does; what is 0 gets no counter.
struct Work {
  int64_t bytes = 0;
  double flop = 0;
  int64_t ops = 0;  ///< where they are several
};

template <class F>
void time(benchmark::State& state, const Work& work, F&& f) {
  f();  // the first result's memory comes from the system
  while (state.KeepRunning()) f();
  if (work.bytes > 0) state.SetBytesProcessed(state.iterations() * work.bytes);
  if (work.flop > 0) {
    state.counters["FLOP/s"] = benchmark::Counter(work.flop, benchmark::Counter::kIsIterationInvariantRate);
  }
  if (work.ops > 0) {
    state.counters["per op"] =
        benchmark::Counter(static_cast<double>(work.ops),
                           benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  }
}

inline void add(const std::string& name, const std::function<void(benchmark::State&)>& f,
                benchmark::TimeUnit unit = benchmark::kMillisecond) {
  benchmark::RegisterBenchmark(name.c_str(), f)->UseRealTime()->Unit(unit);
}

/// Lengths of chains of ops that are recorded, then walked back.
inline constexpr int64_t kChains[] = {1000, 10'000, 100'000, 1'000'000};

/// [rows, inner] by [inner, columns].
struct MatrixShape {
  int64_t rows, inner, columns;
  double flop() const { return 2.0 * static_cast<double>(rows * inner * columns); }
};
inline constexpr MatrixShape kMatmul{1024, 1024, 1024}, kLinear{1024, 128, 512};

/// An image of `side` x `side` pixels, as many channels in as out, padded to keep its size.
struct ConvShape {
  const char* name;
  int64_t channels, side, kernel;
  double flop() const {
    return 2.0 * static_cast<double>(channels * channels * side * side * kernel * kernel);
  }
};
inline constexpr ConvShape kConvs[] = {{"1x1, 256 channels, 256 x 256", 256, 256, 1},
                                       {"3x3, 64 channels, 64 x 64", 64, 64, 3}};

/// What follows the name of a product's row that is not in float32.
inline constexpr const char* kBFloat16 = ", bfloat16";

/// The rest of main.
inline int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace bench
