// What the op benchmarks share, those of mezzo and their peers in libtorch: a row has a name, runs a function
// and counts what it does.
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
};

template <class F>
void time(benchmark::State& state, const Work& work, F&& f) {
  f();  // the first result's memory comes from the system
  while (state.KeepRunning()) f();
  if (work.bytes > 0) state.SetBytesProcessed(state.iterations() * work.bytes);
  if (work.flop > 0) {
    state.counters["FLOP/s"] = benchmark::Counter(work.flop, benchmark::Counter::kIsIterationInvariantRate);
  }
}

inline void add(const std::string& name, const std::function<void(benchmark::State&)>& f,
                benchmark::TimeUnit unit = benchmark::kMillisecond) {
  benchmark::RegisterBenchmark(name.c_str(), f)->UseRealTime()->Unit(unit);
}

/// The rest of main.
inline int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace bench
