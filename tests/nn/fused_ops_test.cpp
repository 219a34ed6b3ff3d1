// Fused ops on shapes that do not fit their tiles, beside the same ops of the reference device in float64.
#include <algorithm>
#include <functional>

#include "amp/autocast.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/random.h"
#include "tensor/threads.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// Outputs, then gradients of the inputs, for gradients of the outputs that differ from element to element.
Tensors run(const std::function<Tensors(Inputs)>& op, const Tensors& inputs, DType dtype,
            const Device& device, MemoryFormat format) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    Tensor leaf;
    if (x.defined()) leaf = x.to(dtype).to(device);
    if (x.defined() && x.dim() == 4) leaf = leaf.contiguous(format);
    leaves.push_back(x.defined() ? leaf.detach().requires_grad_() : leaf);
  }
  Tensors results = op(leaves);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor positions = arange(results[i].numel(), {.dtype = float64}).reshape(results[i].shape());
    results[i].backward(sin(positions + static_cast<double>(i)).to(results[i].dtype()).to(device), true);
    results[i] = results[i].detach();
  }
  for (const Tensor& leaf : leaves) {
    if (leaf.defined()) results.push_back(leaf.grad());
  }
  return results;
}

/// Differences are of the largest element: gradients are long sums that cancel.
void compare(const std::function<Tensors(Inputs)>& op, const Tensors& inputs) {
  for (const DType dtype : {float64, float32, float16, bfloat16}) {
    CAPTURE(name_of(dtype));
    Tensors rounded;
    for (const Tensor& x : inputs) rounded.push_back(x.defined() ? x.to(dtype) : x);
    for (const MemoryFormat format : {MemoryFormat::contiguous, channels_last}) {
      const Tensors actual = run(op, rounded, dtype, test_device(), format);
      const Tensors expected = run(op, rounded, float64, "reference", format);
      REQUIRE(actual.size() == expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        CAPTURE(i);
        const Tensor difference = actual[i].to(Device()).to(float64) - expected[i].to(Device());
        // In 16 bits some sums cancel to less than their terms, of the operands' size, are rounded by.
        const double terms = is_half(dtype) ? 0.5 : 0;
        const double largest = std::max(terms, expected[i].abs().max().item<double>());
        const double allowed = dtype == float64   ? 1e-11
                               : dtype == float32 ? 1e-4
                               : dtype == float16 ? 1e-2
                                                  : 5e-2;
        CHECK(difference.abs().max().item<double>() <= allowed * largest);
      }
    }
  }
}

}  // namespace

TEST_CASE("conv1x1_stats: sizes around those of tiles, panels and vectors") {
  CAPTURE(test_seed());
  manual_seed(test_seed());
  struct Size {
    int64_t images, in, height, width, out;
  };
  for (const Size& size :
       {Size{1, 2, 9, 11, 40}, Size{2, 33, 13, 7, 1}, Size{1, 64, 17, 19, 64}, Size{3, 130, 3, 3, 17},
        Size{1, 32, 16, 33, 48}, Size{1, 1, 1, 2, 1}, Size{1, 96, 8, 8, 140}, Size{1, 40, 7, 5, 300}}) {
    const auto& [N, C, H, W, O] = size;
    CAPTURE(size.in);
    CAPTURE(size.out);
    const auto draw = [](const Shape& shape) { return rand(shape, {.dtype = float64}); };
    const Tensor x = draw({N, C, H, W}) - 0.5, weight = draw({O, C, 1, 1}) - 0.5, bias = draw({O});
    const auto op = [](Inputs in) {
      const auto [y, mean, var] = conv1x1_stats(in[0], in[1], in[2], in[3], in[4], in[5], in[6]);
      return Tensors{y, mean, var};
    };
    compare(op, {x, weight, bias, {}, {}, {}, {}});
    compare(op, {x, weight, {}, draw({C}) - 0.5, draw({C}) + 0.5, draw({C}) + 0.5, draw({C}) - 0.5});
  }
}

TEST_CASE("batch_norm_relu: sizes around those of vectors and blocks") {
  CAPTURE(test_seed());
  manual_seed(test_seed());
  for (const Shape& shape :
       {Shape{2, 3, 5, 7}, Shape{1, 33, 17, 16}, Shape{4, 130, 3, 2}, Shape{300, 17, 1, 1}}) {
    CAPTURE(to_string(shape));
    const auto draw = [](const Shape& of) { return rand(of, {.dtype = float64}); };
    const auto op = [](Inputs in) { return Tensors{batch_norm_relu(in[0], in[1], in[2], {}, {}, in[3])}; };
    const Tensor x = draw(shape), weight = draw({shape[1]}) + 0.5, bias = draw({shape[1]}) - 0.5;
    compare(op, {x, weight, bias, {}});
    compare(op, {x, weight, bias, draw(shape) - 0.5});
  }
}

TEST_CASE("linear, linear_relu, gelu_linear: sizes around those of tiles, panels and vectors") {
  CAPTURE(test_seed());
  manual_seed(test_seed());
  for (const Shape& size : {Shape{15, 3, 40}, Shape{16, 33, 1}, Shape{300, 64, 64}, Shape{70, 130, 17},
                            Shape{129, 32, 48}, Shape{33, 1, 2}, Shape{24, 96, 140}}) {
    CAPTURE(to_string(size));
    const auto draw = [](const Shape& of) { return rand(of, {.dtype = float64}) - 0.5; };
    const Tensor x = draw({size[0], size[1]}), weight = draw({size[2], size[1]}), bias = draw({size[2]});
    compare([](Inputs in) { return Tensors{linear(in[0], in[1], in[2])}; }, {x, weight, bias});
    compare([](Inputs in) { return Tensors{linear_relu(in[0], in[1], in[2])}; }, {x, weight, {}});
    compare([](Inputs in) { return Tensors{gelu_linear(in[0], in[1], in[2])}; }, {x * 8, weight, bias});
  }
}

TEST_CASE("linear maps: the same bits for any number of threads") {
  const int before = num_threads();
  const auto with_threads = [](int threads) {
    set_num_threads(threads);
    manual_seed(test_seed());
    // Seven tiles of rows, whose weight gradients are added up in groups.
    const Tensors in{uniform({808, 40}) - 0.5, uniform({72, 40}) - 0.5, uniform({72})};
    return run([](Inputs x) { return Tensors{gelu_linear(x[0], x[1], x[2])}; }, in, float32, test_device(),
               contiguous_format);
  };
  CAPTURE(test_seed());
  const Tensors one = with_threads(1);
  for (const int threads : {2, 3, 4}) {
    CAPTURE(threads);
    const Tensors several = with_threads(threads);
    for (size_t i = 0; i < one.size(); ++i) CHECK(close(several[i], one[i], 0));
  }
  set_num_threads(before);
}

TEST_CASE("linear maps give any of their gradients alone") {
  using Op = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);
  const auto gradients = [](Op op, size_t begin, size_t end) {
    manual_seed(test_seed());
    Tensors in{uniform({40, 5}) - 0.5, uniform({3, 5}) - 0.5, uniform({3})};
    for (size_t i = begin; i < end; ++i) in[i].requires_grad_();
    op(in[0], in[1], in[2]).square().sum().backward();
    return in;
  };
  for (const Op op : {Op(linear), Op(linear_relu), Op(gelu_linear)}) {
    const Tensors all = gradients(op, 0, 3);
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK(close(gradients(op, i, i + 1)[i].grad(), all[i].grad(), 1e-6));
    }
  }
}

TEST_CASE("what the fused ops refuse") {
  const Tensor x = uniform({1, 2, 3, 3}), weight = uniform({4, 2, 1, 1}), channel = uniform({2});
  const auto refused = [](const std::function<void()>& f, const std::string& start) {
    CHECK(error_text(f).starts_with(start));
  };
  refused([&] { conv1x1_stats(uniform({2, 3}), weight); }, "conv1x1_stats: input must be [N, C, H, W]");
  refused([&] { conv1x1_stats(x, uniform({4, 2, 3, 3})); }, "conv1x1_stats: weight must be [O, 2, 1, 1]");
  refused([&] { conv1x1_stats(x, uniform({0, 2, 1, 1})); }, "conv1x1_stats: needs at least 1 channel");
  refused([&] { conv1x1_stats(x, weight, channel); }, "conv1x1_stats: bias must have 4 elements");
  refused([&] { conv1x1_stats(x, weight, {}, channel); }, "conv1x1_stats: mean and var go together");
  refused([&] { conv1x1_stats(x, weight, {}, {}, {}, channel); }, "conv1x1_stats: norm_weight needs mean");
  refused([&] { conv1x1_stats(x, weight, {}, uniform({3}), uniform({3})); },
          "conv1x1_stats: mean must have 2 elements");
  refused([&] { conv1x1_stats(x, weight.to(float64)); }, "conv1x1_stats: ");
  refused(
      [&] {
        batch_norm_relu(x, channel, channel, {}, {}, uniform({1, 2, 3, 1}));
      },
      "batch_norm_relu: input and residual must have one shape and dtype");
  refused([&] { batch_norm_relu(x, uniform({3}), channel, {}, {}); },
          "batch_norm_relu: input has 2 channels but weight has 3 elements");
}

TEST_CASE("a gradient that nobody holds becomes that of the input, without statistics or normalisation too") {
  const auto twice = [](Inputs in) {
    return Tensors{conv1x1_stats(conv1x1_stats(in[0], in[1])[0], in[2])[0]};
  };
  const auto weight = [] { return uniform({128, 128, 1, 1}); };
  compare(twice, {uniform({2, 128, 6, 4}), weight(), weight()});  // whole panels and tiles
}

TEST_CASE("a gradient that somebody holds is not written over") {
  manual_seed(test_seed());
  Tensor x = uniform({1, 4, 3, 3}).contiguous(channels_last).requires_grad_();
  const Tensor weight = uniform({4, 4, 1, 1}), channel = uniform({4});
  const Tensor g = uniform({1, 4, 3, 3}).contiguous(channels_last), before = g.clone();
  const auto check = [&](const std::function<Tensor(const Tensor&)>& op) {
    x.set_grad({});
    Tensor y = op(x);
    y.backward(g, true);
    CHECK(close(g, before, 0));
    const Tensor once = x.grad().clone();
    (y * 1.0).backward(g, true);  // the gradient of y is one that nobody holds
    CHECK(close(x.grad(), once * 2, 1e-5));
    Tensor held;
    y.register_hook([&](const Tensor& grad) {
      held = grad;
      return Tensor();
    });
    (y * 2.0).backward(g);
    CHECK(close(held, g * 2, 0));
  };
  check([&](const Tensor& in) { return conv1x1_stats(in, weight, {}, channel, channel + 1)[0]; });
  check([&](const Tensor& in) { return batch_norm_relu(in, channel, {}, {}, {}); });
}

TEST_CASE("a large mean does the statistics no harm") {
  manual_seed(test_seed());
  const Tensor x = randn({1, 4, 30, 30}, {.device = test_device()}) + 1e4;
  const auto [y, mean, var] = conv1x1_stats(x, make({1, 0, 0, 0}, {1, 4, 1, 1}, float32));
  const Tensor exact = x.to(float64).narrow(1, 0, 1);
  CHECK(close(var.to(float64), mezzo::var(exact, {0, 2, 3}, 0), 1e-4));
  CHECK(close(mean.to(float64), exact.mean({0, 2, 3}), 1e-7));
}

TEST_CASE("gelu_linear keeps its input alone, and lets hooks run") {
  nn::Linear layer = on_device(nn::Linear(64, 32));
  const Tensor x = uniform({512, 64}).requires_grad_();
  const auto kept = [&](bool on) {
    const Fusing fusing(on);
    const size_t before = memory_stats(test_device()).live;
    const Tensor y = nn::gelu_linear(x, layer);
    return (memory_stats(test_device()).live - before) / sizeof(float);
  };
  CHECK(kept(true) == 512 * 32);
  CHECK(kept(false) == 512 * (32 + 64));
  int calls = 0;
  const HookHandle handle = layer.register_forward_hook([&](const Tensor&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensor y = nn::gelu_linear(x, layer);
  CHECK(calls == 1);
  CHECK(close(y, linear(gelu(x), layer.weight, layer.bias), 1e-6));
}

TEST_CASE("autocast leaves gelu in float32 before a layer in 16 bits") {
  nn::Sequential net = on_device(nn::Sequential(nn::GELU(), nn::Linear(5, 3)));
  const Tensor x = uniform({20, 5});
  const auto result = [&](bool on) {
    const Fusing fusing(on);
    const amp::Autocast autocast(test_device(), bfloat16);
    return net(x);
  };
  CHECK(close(result(true), result(false), 0));
  const amp::Autocast autocast(test_device(), bfloat16);
  CHECK(gelu_linear(x, uniform({3, 5})).dtype() == bfloat16);
}
