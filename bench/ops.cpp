// Op benchmarks: bytes/s of ops bound by memory, FLOP/s of products, nanoseconds of ops on tiny tensors.
// Bytes are those that the op must read and write once; results are new tensors from the cache, as in a
// program. libtorch_ops.cpp has the same rows in libtorch.
//   bench/ops --benchmark_filter=conv2d        OMP_NUM_THREADS sets the threads
#include "bench/measure.h"
#include "mezzo.h"

using namespace mezzo;

namespace {

using bench::add;
using bench::time;

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

void add_broadcasting() {
  const auto sum = [](const std::string& name, const Shape& left, const Shape& right) {
    add("broadcast/" + name, [=](auto& state) {
      const Tensor a = randn(left), b = randn(right);
      time(state, {.bytes = bytes_of({a, b, a + b})}, [&] { mezzo::add(a, b); });
    });
  };
  sum("matrix + row", {65536, 256}, {256});
  sum("matrix + column", {65536, 256}, {65536, 1});
  sum("column + row", {65536, 1}, {256});
}

void add_casts() {
  const auto cast = [](const std::string& name, DType from, DType to) {
    add("cast/" + name, [=](auto& state) {
      const Tensor x = activation().to(from);
      time(state, {.bytes = bytes_of({x, x.to(to)})}, [&] { x.to(to); });
    });
  };
  cast("float32 to bfloat16", float32, bfloat16);
  cast("bfloat16 to float32", bfloat16, float32);
  cast("float32 to float16", float32, float16);
  cast("float16 to float32", float16, float32);
}

void add_transposes() {
  const auto transpose = [](const std::string& name, const Shape& shape, MemoryFormat format) {
    add("transpose/" + name, [=](auto& state) {
      const Tensor x = randn(shape), transposed = x.dim() == 2 ? x.t() : x;
      time(state, {.bytes = bytes_of({x, x})}, [&] { transposed.contiguous(format); });
    });
  };
  transpose("16384 x 1024", {16384, 1024}, contiguous_format);
  transpose("1000 x 16000", {1000, 16000}, contiguous_format);
  transpose("row-major to channels-last", {1, 256, 256, 256}, channels_last);
}

void add_softmax() {
  const auto over = [](const std::string& name, const Shape& shape, int dim,
                       Tensor (*f)(const Tensor&, int, std::optional<DType>)) {
    add("softmax/" + name, [=](auto& state) {
      const Tensor x = randn(shape);
      time(state, {.bytes = bytes_of({x, x})}, [&] { f(x, dim, std::nullopt); });
    });
  };
  over("1024 columns", {16384, 1024}, 1, softmax);
  over("64 columns", {262144, 64}, 1, softmax);
  over("16384 rows", {16384, 1024}, 0, softmax);
  over("log of 1024 columns", {16384, 1024}, 1, log_softmax);
  add("softmax/1024 columns backward", [](auto& state) {
    const Tensor y = softmax(randn({16384, 1024}), 1), g = randn({16384, 1024});
    time(state, {.bytes = bytes_of({y, g, y})}, [&] { softmax_grad(g, y, 1, false); });
  });
}

/// Positions below `end` in no order.
Tensor positions(const Shape& shape, int64_t end) { return (rand(shape) * end).to(int64); }

void add_indexing() {
  add("indexing/gather in rows", [](auto& state) {
    const Tensor x = randn({65536, 256}), index = positions({65536, 256}, 256);
    time(state, {.bytes = bytes_of({x, index, x})}, [&] { gather(x, 1, index); });
  });
  add("indexing/index_select of rows", [](auto& state) {
    const Tensor x = randn({65536, 256}), index = positions({65536}, 65536);
    time(state, {.bytes = bytes_of({x, index, x})}, [&] { index_select(x, 0, index); });
  });
  add("indexing/scatter_add of rows", [](auto& state) {
    const Tensor x = zeros({65536, 256}), source = randn({65536, 256}), index = positions({65536, 1}, 65536);
    time(state, {.bytes = bytes_of({x, index, source, x})}, [&] {
      scatter_add(x, 0, index.expand({65536, 256}), source);
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
  add(
      "tiny/training step of an MLP 64-64-64-10, batch of 32",
      [](auto& state) {
        nn::Sequential net(nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                           nn::Linear(64, 10));
        const Tensor x = randn({32, 64}), y = positions({32}, 10);
        optim::Adam adam(net.parameters());
        time(state, {}, [&] {
          adam.zero_grad();
          cross_entropy(net(x), y).backward();
          adam.step();
        });
      },
      benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add_pointwise();
  add_broadcasting();
  add_casts();
  add_transposes();
  add_reductions();
  add_softmax();
  add_indexing();
  add_products();
  add_batch_norm();
  add_tiny();
  return bench::run(argc, argv);
}
