// Op benchmarks: bytes/s of ops bound by memory, FLOP/s of products, nanoseconds of ops on tiny tensors.
// Bytes are those that the op must read and write once; results are new tensors from the cache, as in a
// program.
//   bench/ops --benchmark_filter=conv2d        OMP_NUM_THREADS sets the threads
#include <benchmark/benchmark.h>

#include <functional>

#include "mezzo.h"

using namespace mezzo;

namespace {

/// What a call does; what is 0 gets no counter.
struct Work {
  int64_t bytes = 0;
  double flop = 0;
};

void time(benchmark::State& state, const Work& work, const std::function<void()>& f) {
  f();  // the first result's memory comes from the system
  while (state.KeepRunning()) f();
  if (work.bytes > 0) state.SetBytesProcessed(state.iterations() * work.bytes);
  if (work.flop > 0) {
    state.counters["FLOP/s"] = benchmark::Counter(work.flop, benchmark::Counter::kIsIterationInvariantRate);
  }
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& f,
         benchmark::TimeUnit unit = benchmark::kMillisecond) {
  benchmark::RegisterBenchmark(name.c_str(), f)->UseRealTime()->Unit(unit);
}

int64_t bytes_of(std::initializer_list<Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += x.numel() * static_cast<int64_t>(size_of(x.dtype()));
  return bytes;
}

/// An activation of the checkerboard network at 256 x 256: 64 MiB.
Tensor activation() { return randn({1, 256, 256, 256}, {.format = channels_last}); }

void add_pointwise() {
  add("pointwise/mul", [](auto& state) {
    const Tensor a = activation(), b = activation();
    time(state, {.bytes = bytes_of({a, b, a})}, [&] { mul(a, b); });
  });
  add("pointwise/add row", [](auto& state) {
    const Tensor a = randn({65536, 256}), row = randn({256});
    time(state, {.bytes = bytes_of({a, a})}, [&] { mezzo::add(a, row); });
  });
  const auto unary = [](const std::string& name, Tensor (*f)(const Tensor&)) {
    add("pointwise/" + name, [f](auto& state) {
      const Tensor x = activation();
      time(state, {.bytes = bytes_of({x, x})}, [&] { f(x); });
    });
  };
  unary("exp", exp);
  unary("tanh", tanh);
  unary("relu", relu);
  add("pointwise/relu backward", [](auto& state) {
    const Tensor x = activation().requires_grad_(), y = relu(x), g = activation();
    time(state, {.bytes = bytes_of({x, g, x})}, [&] {
      grad({&y, 1}, {&x, 1}, {&g, 1}, {.retain_graph = true});
    });
  });
}

void add_reductions() {
  const auto reduction = [](const std::string& name, const Dims& dims) {
    add("reduce/" + name, [dims](auto& state) {
      const Tensor x = activation();
      time(state, {.bytes = bytes_of({x})}, [&] { sum(x, dims); });
    });
  };
  reduction("sum of all", {});
  reduction("sum of channels, channels-last", {0, 2, 3});
  add("reduce/sum of last dim", [](auto& state) {
    const Tensor x = randn({65536, 256});
    time(state, {.bytes = bytes_of({x})}, [&] { sum(x, -1); });
  });
}

void add_products() {
  add("matmul/1024 x 1024 x 1024", [](auto& state) {
    const Tensor a = randn({1024, 1024}), b = randn({1024, 1024});
    time(state, {.flop = 2.0 * 1024 * 1024 * 1024}, [&] { matmul(a, b); });
  });
  add("linear/1024, 128 to 512", [](auto& state) {
    const Tensor x = randn({1024, 128}), weight = randn({512, 128}), bias = randn({512});
    time(state, {.flop = 2.0 * 1024 * 128 * 512}, [&] { linear(x, weight, bias); });
  });
  const auto conv = [](const std::string& name, int64_t channels, int64_t size, int64_t kernel) {
    const auto direction =
        [=](const std::string& what,
            const std::function<void(const Tensor&, const Tensor&, const Tensor&, const ConvGeometry&)>& f) {
          add("conv2d/" + name + ' ' + what, [=](auto& state) {
            const Tensor x = randn({1, channels, size, size}, {.format = channels_last}),
                         g = randn({1, channels, size, size}, {.format = channels_last});
            const Tensor weight = randn({channels, channels, kernel, kernel});
            const ConvGeometry geometry{.padding = {kernel / 2, kernel / 2}};
            time(state,
                 {.flop = 2.0 * static_cast<double>(channels * channels * size * size * kernel * kernel)},
                 [&] { f(x, weight, g, geometry); });
          });
        };
    direction("forward",
              [](auto& x, auto& weight, auto&, auto& geometry) { conv2d(x, weight, {}, geometry); });
    direction("input", [](auto& x, auto& weight, auto& g, auto& geometry) {
      conv2d_input_grad(g, weight, x.shape(), geometry);
    });
    direction("weight", [](auto& x, auto& weight, auto& g, auto& geometry) {
      conv2d_weight_grad(g, x, weight.shape(), geometry);
    });
  };
  conv("1x1, 256 channels, 256 x 256", 256, 256, 1);
  conv("3x3, 64 channels, 64 x 64", 64, 64, 3);
}

void add_batch_norm() {
  add("batch_norm/forward", [](auto& state) {
    const Tensor x = activation(), weight = ones({256}), bias = zeros({256});
    time(state, {.bytes = bytes_of({x, x, x})},
         [&] { batch_norm(x, weight, bias, {}, {}); });  // statistics, then values
  });
  add("batch_norm/backward", [](auto& state) {
    const Tensor x = activation().requires_grad_(), y = batch_norm(x, ones({256}), zeros({256}), {}, {}),
                 g = activation();
    time(state, {.bytes = bytes_of({x, g, x, g, x})}, [&] {
      grad({&y, 1}, {&x, 1}, {&g, 1}, {.retain_graph = true});
    });
  });
}

/// The cost of an op beside its arithmetic.
void add_tiny() {
  add(
      "tiny/add recorded",
      [](auto& state) {
        const Tensor a = randn({16}, {.requires_grad = true}), b = randn({16});
        time(state, {}, [&] { mezzo::add(a, b); });
      },
      benchmark::kNanosecond);
  add(
      "tiny/add under no_grad",
      [](auto& state) {
        const NoGradGuard guard;
        const Tensor a = randn({16}, {.requires_grad = true}), b = randn({16});
        time(state, {}, [&] { mezzo::add(a, b); });
      },
      benchmark::kNanosecond);
  add(
      "tiny/chain of 1000 adds, forward and backward",
      [](auto& state) {
        const Tensor x = randn({16}, {.requires_grad = true}), b = randn({16}), g = ones({16});
        while (state.KeepRunning()) {
          Tensor y = x;
          for (int i = 0; i < 1000; ++i) y = mezzo::add(y, b);
          y.backward(g);
        }
        state.counters["per op"] = benchmark::Counter(
            1000, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
      },
      benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add_pointwise();
  add_reductions();
  add_products();
  add_batch_norm();
  add_tiny();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
