// Rows of ops.cpp in libtorch, the peer that a C++ user would pick. Large results go into a tensor that is
// given: libtorch hands such blocks back to the system, and would be measured at mapping their pages anew.
#include <torch/torch.h>

#include "bench/measure.h"

using at::Tensor;
using bench::add;
using bench::time;

namespace {

int64_t bytes_of(std::initializer_list<Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += static_cast<int64_t>(x.nbytes());
  return bytes;
}

Tensor activation() { return at::randn({1, 256, 256, 256}).contiguous(at::MemoryFormat::ChannelsLast); }

void add_pointwise() {
  add("pointwise/mul", [](auto& state) {
    const at::InferenceMode guard;
    Tensor a = activation(), b = activation(), out = at::empty_like(a);
    time(state, {.bytes = bytes_of({a, b, out})}, [&] { at::mul_out(out, a, b); });
  });
  const auto unary = [](const std::string& name,
                        const std::function<void(Tensor & out, const Tensor& x)>& f) {
    add("pointwise/" + name, [f](auto& state) {
      const at::InferenceMode guard;
      Tensor x = activation(), out = at::empty_like(x);
      time(state, {.bytes = bytes_of({x, out})}, [&] { f(out, x); });
    });
  };
  unary("exp", [](auto& out, auto& x) { at::exp_out(out, x); });
  unary("tanh", [](auto& out, auto& x) { at::tanh_out(out, x); });
  unary("relu", [](auto& out, auto& x) { at::clamp_min_out(out, x, 0); });  // relu_out copies
  unary("gelu", [](auto& out, auto& x) { at::gelu_out(out, x); });
  add("pointwise/relu backward", [](auto& state) {
    const at::InferenceMode guard;
    Tensor y = at::relu(activation()), g = activation(), out = at::empty_like(y);
    time(state, {.bytes = bytes_of({y, g, out})}, [&] { at::threshold_backward_out(out, g, y, 0); });
  });
}

void add_broadcasting() {
  const auto sum = [](const std::string& name, at::IntArrayRef left, at::IntArrayRef right) {
    add("broadcast/" + name, [left = left.vec(), right = right.vec()](auto& state) {
      const at::InferenceMode guard;
      Tensor a = at::randn(left), b = at::randn(right), out = a + b;
      time(state, {.bytes = bytes_of({a, b, out})}, [&] { at::add_out(out, a, b); });
    });
  };
  sum("matrix + row", {65536, 256}, {256});
  sum("matrix + column", {65536, 256}, {65536, 1});
  sum("column + row", {65536, 1}, {256});
}

void add_casts() {
  const auto cast = [](const std::string& name, at::ScalarType from, at::ScalarType to) {
    add("cast/" + name, [=](auto& state) {
      const at::InferenceMode guard;
      Tensor x = activation().to(from), out = x.to(to);
      time(state, {.bytes = bytes_of({x, out})}, [&] { out.copy_(x); });
    });
  };
  cast("float32 to bfloat16", at::kFloat, at::kBFloat16);
  cast("bfloat16 to float32", at::kBFloat16, at::kFloat);
  cast("float32 to float16", at::kFloat, at::kHalf);
  cast("float16 to float32", at::kHalf, at::kFloat);
}

void add_transposes() {
  const auto transpose = [](const std::string& name, at::IntArrayRef shape, at::MemoryFormat format) {
    add("transpose/" + name, [=, shape = shape.vec()](auto& state) {
      const at::InferenceMode guard;
      Tensor x = at::randn(shape), transposed = x.dim() == 2 ? x.t() : x, out = transposed.contiguous(format);
      time(state, {.bytes = bytes_of({x, out})}, [&] { out.copy_(transposed); });
    });
  };
  transpose("16384 x 1024", {16384, 1024}, at::MemoryFormat::Contiguous);
  transpose("1000 x 16000", {1000, 16000}, at::MemoryFormat::Contiguous);
  transpose("row-major to channels-last", {1, 256, 256, 256}, at::MemoryFormat::ChannelsLast);
}

void add_reductions() {
  const auto reduction = [](const std::string& name, const Tensor& like, at::IntArrayRef dims) {
    add("reduce/" + name, [like, dims = dims.vec()](auto& state) {
      const at::InferenceMode guard;
      const Tensor x = at::randn_like(like);
      time(state, {.bytes = bytes_of({x})}, [&] { x.sum(dims); });
    });
  };
  const Tensor image = activation();
  reduction("sum of all", image, {0, 1, 2, 3});
  reduction("sum of channels, channels-last", image, {0, 2, 3});
  reduction("sum of last dim", at::empty({65536, 256}), {-1});
}

void add_softmax() {
  const auto over = [](const std::string& name, at::IntArrayRef shape, int64_t dim, auto f) {
    add("softmax/" + name, [=, shape = shape.vec()](auto& state) {
      const at::InferenceMode guard;
      Tensor x = at::randn(shape), out = at::empty_like(x);
      time(state, {.bytes = bytes_of({x, out})}, [&] { f(out, x, dim); });
    });
  };
  const auto plain = [](Tensor& out, const Tensor& x, int64_t dim) { at::_softmax_out(out, x, dim, false); };
  const auto log = [](Tensor& out, const Tensor& x, int64_t dim) {
    at::_log_softmax_out(out, x, dim, false);
  };
  over("1024 columns", {16384, 1024}, 1, plain);
  over("64 columns", {262144, 64}, 1, plain);
  over("16384 rows", {16384, 1024}, 0, plain);
  over("log of 1024 columns", {16384, 1024}, 1, log);
  add("softmax/1024 columns backward", [](auto& state) {
    const at::InferenceMode guard;
    Tensor y = at::softmax(at::randn({16384, 1024}), 1), g = at::randn({16384, 1024}),
           out = at::empty_like(y);
    time(state, {.bytes = bytes_of({y, g, out})},
         [&] { at::_softmax_backward_data_out(out, g, y, 1, at::kFloat); });
  });
}

void add_indexing() {
  add("indexing/gather in rows", [](auto& state) {
    const at::InferenceMode guard;
    Tensor x = at::randn({65536, 256}), index = at::randint(256, {65536, 256}, at::kLong),
           out = at::empty_like(x);
    time(state, {.bytes = bytes_of({x, index, out})}, [&] { at::gather_out(out, x, 1, index); });
  });
  add("indexing/index_select of rows", [](auto& state) {
    const at::InferenceMode guard;
    Tensor x = at::randn({65536, 256}), index = at::randint(65536, {65536}, at::kLong),
           out = at::empty_like(x);
    time(state, {.bytes = bytes_of({x, index, out})}, [&] { at::index_select_out(out, x, 0, index); });
  });
  add("indexing/scatter_add of rows", [](auto& state) {
    const at::InferenceMode guard;
    Tensor x = at::zeros({65536, 256}), source = at::randn({65536, 256}), out = at::empty_like(x);
    const Tensor index = at::randint(65536, {65536, 1}, at::kLong);
    time(state, {.bytes = bytes_of({x, index, source, out})}, [&] {
      at::scatter_add_out(out, x, 0, index.expand({65536, 256}), source);
    });
  });
}

void add_products(at::ScalarType dtype, const std::string& suffix) {
  add("matmul/1024 x 1024 x 1024" + suffix, [=](auto& state) {
    const at::InferenceMode guard;
    const auto [m, k, n] = bench::kMatmul;
    const Tensor a = at::randn({m, k}).to(dtype), b = at::randn({k, n}).to(dtype);
    time(state, {.flop = bench::kMatmul.flop()}, [&] { at::matmul(a, b); });
  });
  add("linear/1024, 128 to 512" + suffix, [=](auto& state) {
    const at::InferenceMode guard;
    const auto [m, k, n] = bench::kLinear;
    const Tensor x = at::randn({m, k}).to(dtype), weight = at::randn({n, k}).to(dtype),
                 bias = at::randn({n}).to(dtype);
    time(state, {.flop = bench::kLinear.flop()}, [&] { at::linear(x, weight, bias); });
  });
  const auto conv = [=](const bench::ConvShape& shape, const std::string& direction, bool backward,
                        std::array<bool, 3> wanted) {
    add(std::string("conv2d/") + shape.name + ' ' + direction + suffix, [=](auto& state) {
      const at::InferenceMode guard;
      const auto [name, channels, side, kernel] = shape;
      const auto image = [&, channels = channels, side = side] {
        return at::randn({1, channels, side, side}).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
      };
      const Tensor x = image(), g = image(),
                   weight = at::randn({channels, channels, kernel, kernel})
                                .to(dtype)
                                .contiguous(at::MemoryFormat::ChannelsLast);
      const std::vector<int64_t> padding(2, kernel / 2), ones{1, 1}, zeros{0, 0};
      time(state, {.flop = shape.flop()}, [&] {
        if (backward)
          at::convolution_backward(g, x, weight, at::nullopt, ones, padding, ones, false, zeros, 1, wanted);
        else
          at::conv2d(x, weight, {}, ones, padding);
      });
    });
  };
  for (const bench::ConvShape& shape : bench::kConvs) {
    conv(shape, "forward", false, {});
    conv(shape, "input", true, {true, false, false});
    conv(shape, "weight", true, {false, true, false});
  }
}

/// Gradients of y in `inputs`, again and again.
void time_backward(benchmark::State& state, const bench::Work& work, const Tensor& y,
                   const std::vector<Tensor>& inputs, const Tensor& g) {
  time(state, work, [&] { torch::autograd::grad({y}, inputs, {g}, /*retain_graph=*/true); });
}

void add_layer_norm() {
  for (const int64_t columns : {1024, 128}) {
    const std::string name = "layer_norm/" + std::to_string(columns) + " columns";
    add(name, [=](auto& state) {
      const at::InferenceMode guard;
      Tensor x = at::randn({16777216 / columns, columns}), weight = at::ones({columns}),
             bias = at::zeros({columns}), out = at::empty_like(x), mean = at::empty({x.size(0), 1}),
             rstd = at::empty({x.size(0), 1});
      time(state, {.bytes = bytes_of({x, x})},
           [&] { at::native_layer_norm_out(out, mean, rstd, x, {columns}, weight, bias, 1e-5); });
    });
    add(name + " backward", [=](auto& state) {
      const auto leaf = [](const Tensor& x) { return x.requires_grad_(); };
      const Tensor x = leaf(at::randn({16777216 / columns, columns})), weight = leaf(at::ones({columns})),
                   bias = leaf(at::zeros({columns})), y = at::layer_norm(x, {columns}, weight, bias);
      const Tensor g = at::randn_like(y);
      time_backward(state, {.bytes = bytes_of({x, g, x})}, y, {x, weight, bias}, g);
    });
  }
}

void add_pooling() {
  for (const bool channels_last : {false, true}) {
    const std::string name = std::string("max_pool2d/2x2, 32 channels of 28 x 28, ") +
                             (channels_last ? "channels-last" : "row-major");
    const auto image = [=] {
      return at::randn({64, 32, 28, 28})
          .contiguous(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous)
          .requires_grad_();
    };
    add(name, [=](auto& state) {
      const Tensor x = image();
      time(state, {.bytes = bytes_of({x}) * 5 / 4}, [&] { at::max_pool2d(x, 2); });
    });
    add(name + " backward", [=](auto& state) {
      const Tensor x = image(), y = at::max_pool2d(x, 2);
      time_backward(state, {.bytes = bytes_of({x}) * 5 / 4}, y, {x}, at::randn_like(y));
    });
  }
}

void add_transformer() {
  const auto leaf = [](at::IntArrayRef shape) { return at::randn(shape).requires_grad_(); };
  add("embedding/1024 ids, 128 elements", [](auto& state) {
    const at::InferenceMode guard;
    const Tensor weight = at::randn({256, 128}), ids = at::randint(256, {1024}, at::kLong);
    time(state, {.bytes = bytes_of({ids}) + 2 * 1024 * 128 * 4}, [&] { at::embedding(weight, ids); });
  });
  add("embedding/1024 ids, 128 elements backward", [=](auto& state) {
    const Tensor weight = leaf({256, 128}), y = at::embedding(weight, at::randint(256, {1024}, at::kLong));
    const Tensor g = at::randn_like(y);
    time_backward(state, {.bytes = bytes_of({g, weight})}, y, {weight}, g);
  });
  const std::string attention = "scaled_dot_product_attention/8 x 4 heads, 128 x 32, causal";
  constexpr double flop = 2.0 * 2 * 8 * 4 * 128 * 128 * 32;
  add(attention, [](auto& state) {
    const at::InferenceMode guard;
    const Tensor q = at::randn({8, 4, 128, 32}), k = at::randn({8, 4, 128, 32}),
                 v = at::randn({8, 4, 128, 32});
    time(state, {.flop = flop}, [&] { at::scaled_dot_product_attention(q, k, v, {}, 0, true); });
  });
  add(attention + " backward", [=](auto& state) {
    const Tensor q = leaf({8, 4, 128, 32}), k = leaf({8, 4, 128, 32}), v = leaf({8, 4, 128, 32});
    const Tensor y = at::scaled_dot_product_attention(q, k, v, {}, 0, true), g = at::randn_like(y);
    time_backward(state, {.flop = 2.5 * flop}, y, {q, k, v}, g);
  });
}

/// The cost of an op beside its arithmetic.
void add_tiny() {
  add(
      "tiny/add recorded",
      [](auto& state) {
        const Tensor a = torch::randn({16}).requires_grad_(), b = torch::randn({16});
        time(state, {}, [&] { at::add(a, b); });
      },
      benchmark::kNanosecond);
  add(
      "tiny/add under no_grad",
      [](auto& state) {
        const torch::NoGradGuard guard;
        const Tensor a = torch::randn({16}).requires_grad_(), b = torch::randn({16});
        time(state, {}, [&] { at::add(a, b); });
      },
      benchmark::kNanosecond);
  for (const int64_t length : bench::kChains) {
    add(
        "chain/" + std::to_string(length) + " adds, forward and backward",
        [length](auto& state) {
          const Tensor x = torch::randn({16}).requires_grad_(), b = torch::randn({16}), g = torch::ones({16});
          time(state, {.ops = length}, [&] {
            Tensor y = x;
            for (int64_t i = 0; i < length; ++i) y = at::add(y, b);
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
  add_products(at::kFloat, "");
  add_products(at::kBFloat16, bench::kBFloat16);
  add_layer_norm();
  add_pooling();
  add_transformer();
  add_tiny();
  return bench::run(argc, argv);
}
