// Op benchmarks: bytes/s of ops bound by memory, FLOP/s of products, nanoseconds of ops on tiny tensors.
// Bytes are those that the op must read and write once; results are new tensors from the cache, as in a
// program. libtorch_ops.cpp and onednn_ops.cpp have the same rows.
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
  unary("gelu", [](const Tensor& x) { return gelu(x); });
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

void add_products(DType dtype, const std::string& suffix) {
  const auto make = [dtype](const Shape& shape, MemoryFormat format = contiguous_format) {
    return randn(shape, {.format = format}).to(dtype);
  };
  add("matmul/1024 x 1024 x 1024" + suffix, [=](auto& state) {
    const auto [m, k, n] = bench::kMatmul;
    const Tensor a = make({m, k}), b = make({k, n});
    time(state, {.flop = bench::kMatmul.flop()}, [&] { matmul(a, b); });
  });
  add("linear/1024, 128 to 512" + suffix, [=](auto& state) {
    const auto [m, k, n] = bench::kLinear;
    const Tensor x = make({m, k}), weight = make({n, k}), bias = make({n});
    time(state, {.flop = bench::kLinear.flop()}, [&] { linear(x, weight, bias); });
  });
  using Direction = void (*)(const Tensor& x, const Tensor& weight, const Tensor& g, const ConvGeometry&);
  const auto conv = [=](const bench::ConvShape& shape, const std::string& direction, Direction f) {
    add(text("conv2d/", shape.name, ' ', direction, suffix), [=](auto& state) {
      const auto [name, channels, side, kernel] = shape;
      const Tensor x = make({1, channels, side, side}, channels_last),
                   g = make({1, channels, side, side}, channels_last);
      const Tensor weight = make({channels, channels, kernel, kernel});
      const ConvGeometry geometry{.padding = {kernel / 2, kernel / 2}};
      time(state, {.flop = shape.flop()}, [&] { f(x, weight, g, geometry); });
    });
  };
  for (const bench::ConvShape& shape : bench::kConvs) {
    conv(shape, "forward",
         [](auto& x, auto& weight, auto&, auto& geometry) { conv2d(x, weight, {}, geometry); });
    conv(shape, "input", [](auto& x, auto& weight, auto& g, auto& geometry) {
      conv2d_input_grad(g, weight, x.shape(), geometry, channels_last);
    });
    conv(shape, "weight", [](auto& x, auto& weight, auto& g, auto& geometry) {
      conv2d_weight_grad(g, x, weight.shape(), geometry);
    });
  }
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

/// Forward and backward over 64 MiB.
void add_layer_norm() {
  for (const int64_t columns : {1024, 128}) {
    const std::string name = "layer_norm/" + std::to_string(columns) + " columns";
    const Shape shape{16777216 / columns, columns};
    add(name, [=](auto& state) {
      const Tensor x = randn(shape), weight = ones({columns}), bias = zeros({columns});
      time(state, {.bytes = bytes_of({x, x})}, [&] { layer_norm(x, {columns}, weight, bias); });
    });
    add(name + " backward", [=](auto& state) {
      const Tensor x = randn(shape, {.requires_grad = true}), g = randn(shape);
      const Tensor weight = ones({columns}, {.requires_grad = true}),
                   bias = zeros({columns}, {.requires_grad = true});
      const Tensor y = layer_norm(x, {columns}, weight, bias);
      const Tensors inputs{x, weight, bias};
      time(state, {.bytes = bytes_of({x, g, x})}, [&] {
        grad({&y, 1}, inputs, {&g, 1}, {.retain_graph = true});
      });
    });
  }
}

void add_pooling() {
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    const std::string name = std::string("max_pool2d/2x2, 32 channels of 28 x 28, ") +
                             (format == channels_last ? "channels-last" : "row-major");
    const auto image = [=] { return randn({64, 32, 28, 28}, {.format = format}); };
    add(name, [=](auto& state) {
      const Tensor x = image().requires_grad_();
      time(state, {.bytes = bytes_of({x}) * 5 / 4}, [&] { max_pool2d(x, 2); });
    });
    add(name + " backward", [=](auto& state) {
      const Tensor x = image().requires_grad_(), y = max_pool2d(x, 2), g = randn_like(y);
      time(state, {.bytes = bytes_of({x}) * 5 / 4}, [&] {
        grad({&y, 1}, {&x, 1}, {&g, 1}, {.retain_graph = true});
      });
    });
  }
}

void add_transformer() {
  add("embedding/1024 ids, 128 elements", [](auto& state) {
    const Tensor weight = randn({256, 128}), ids = positions({1024}, 256);
    time(state, {.bytes = bytes_of({ids}) + 2 * 1024 * 128 * 4}, [&] { embedding(weight, ids); });
  });
  add("embedding/1024 ids, 128 elements backward", [](auto& state) {
    const Tensor weight = randn({256, 128}, {.requires_grad = true}),
                 y = embedding(weight, positions({1024}, 256)), g = randn_like(y);
    time(state, {.bytes = bytes_of({g, weight})}, [&] {
      grad({&y, 1}, {&weight, 1}, {&g, 1}, {.retain_graph = true});
    });
  });
  const std::string attention = "scaled_dot_product_attention/8 x 4 heads, 128 x 32, causal";
  constexpr double flop = 2.0 * 2 * 8 * 4 * 128 * 128 * 32;  // without what the mask saves
  add(attention, [](auto& state) {
    const Tensor q = randn({8, 4, 128, 32}), k = randn({8, 4, 128, 32}), v = randn({8, 4, 128, 32});
    time(state, {.flop = flop}, [&] { scaled_dot_product_attention(q, k, v, {}, {.is_causal = true}); });
  });
  add(attention + " backward", [](auto& state) {
    const auto make = [] { return randn({8, 4, 128, 32}, {.requires_grad = true}); };
    const Tensors inputs{make(), make(), make()};
    const Tensor y = scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, {.is_causal = true}),
                 g = randn_like(y);
    time(state, {.flop = 2.5 * flop}, [&] { grad({&y, 1}, inputs, {&g, 1}, {.retain_graph = true}); });
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
  for (const int64_t length : bench::kChains) {
    add(
        text("chain/", length, " adds, forward and backward"),
        [length](auto& state) {
          const Tensor x = randn({16}, {.requires_grad = true}), b = randn({16}), g = ones({16});
          time(state, {.ops = length}, [&] {
            Tensor y = x;
            for (int64_t i = 0; i < length; ++i) y = mezzo::add(y, b);
            y.backward(g);
          });
        },
        benchmark::kMicrosecond);
  }
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
  add_products(float32, "");
  add_products(bfloat16, bench::kBFloat16);
  add_batch_norm();
  add_layer_norm();
  add_pooling();
  add_transformer();
  add_tiny();
  return bench::run(argc, argv);
}
