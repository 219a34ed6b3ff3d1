// Rules of BatchNorm that PyTorch's recorded numbers do not cover: bad input, extreme values, dtypes.
#include <cmath>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// y = x - mean over deviation, by float64: what BatchNorm without weight gives.
Tensor normalised(const Tensor& x, double eps) {
  const Tensor centred = x.to(float64) - x.to(float64).mean({0, 2, 3}, true);
  return centred / (centred.square().mean({0, 2, 3}, true) + eps).sqrt();
}

}  // namespace

TEST_CASE("BatchNorm2d: one value a channel is no batch, and refusing it changes nothing") {
  auto layer = on_device(nn::BatchNorm2d(3));
  const StateDict before = snapshot(layer);
  const Tensor one = uniform({1, 3, 1, 1});
  CHECK(error_text([&] { layer(one); }) ==
        text("batch_norm: expected more than 1 value per channel when training; input ", describe(one),
             "; call eval(), or give a larger batch"));
  check_unchanged(layer, before);
  layer(uniform({1, 3, 1, 2}));
  CHECK(layer.num_batches_tracked.item<int64_t>() == 1);
  layer.eval();
  CHECK(layer(one).shape() == one.shape());

  auto untracked = on_device(nn::BatchNorm2d(3, {.track_running_stats = false}));
  untracked.eval();  // goes on using the batch's statistics
  CHECK(
      error_text([&] { untracked(one); }).starts_with("batch_norm: expected more than 1 value per channel"));
}

TEST_CASE("BatchNorm2d: input of another rank or number of channels is refused and changes nothing") {
  auto layer = on_device(nn::BatchNorm2d(3));
  const StateDict before = snapshot(layer);
  const Tensor rows = uniform({4, 3}), wide = uniform({2, 4, 3, 3}),
               whole = zeros({2, 3, 2, 2}, {.dtype = int64, .device = test_device()});
  CHECK(error_text([&] { layer(rows); }) ==
        text("batch_norm: expected [N, C, H, W] but the input has 2 dimensions; input ", describe(rows)));
  CHECK(error_text([&] { layer(wide); }) ==
        text("batch_norm: input has 4 channels but the layer expects 3; input ", describe(wide)));
  CHECK(error_text([&] { layer(whole); }) ==
        text("batch_norm: needs a floating dtype; input ", describe(whole)));
  check_unchanged(layer, before);
}

TEST_CASE("batch_norm: evaluation needs running statistics, both of them") {
  const Tensor x = uniform({2, 3, 2, 2}), stats = uniform({3});
  CHECK(error_text([&] {
          batch_norm(x, {}, {}, {}, {}, {.batch_statistics = false});
        }).starts_with("batch_norm: without batch statistics it needs running_mean and running_var; input "));
  CHECK(error_text([&] {
          batch_norm(x, {}, {}, stats, {});
        }).starts_with("batch_norm: running_mean and running_var go together; running_mean "));
  CHECK(error_text([&] {
          batch_norm(x, {}, {}, stats, uniform({2}));
        }).starts_with("batch_norm: input has 3 channels but running_var has 2 elements; input "));
}

TEST_CASE("BatchNorm1d: takes rows and sequences, one value a channel only in evaluation") {
  auto layer = on_device(nn::BatchNorm1d(3));
  const StateDict before = snapshot(layer);
  const Tensor row = uniform({1, 3}), images = uniform({2, 3, 4, 4});
  for (const Tensor& one : {row, uniform({1, 3, 1})}) {
    CHECK(error_text([&] { layer(one); }) ==
          text("batch_norm: expected more than 1 value per channel when training; input ", describe(one),
               "; call eval(), or give a larger batch"));
  }
  CHECK(error_text([&] { layer(images); }) ==
        text("batch_norm: expected [N, C] or [N, C, L] but the input has 4 dimensions; input ",
             describe(images)));
  CHECK_FALSE(error_text([&] { layer(uniform({3})); }).empty());
  CHECK_FALSE(error_text([&] { layer(uniform({3, 4})); }).empty());
  check_unchanged(layer, before);
  CHECK(layer(uniform({1, 3, 2})).shape() == Shape{1, 3, 2});
  layer.eval();
  CHECK(layer(row).shape() == row.shape());
  CHECK(error_text([] { nn::BatchNorm1d(0); }) == "BatchNorm1d: needs at least 1 channel, not 0");

  std::string keys;
  for (const auto& entry : layer.state_dict()) keys += entry.first + ' ';
  CHECK(keys == "weight bias running_mean running_var num_batches_tracked ");
  CHECK(layer.to_string() ==
        "BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)");
}

TEST_CASE("BatchNorm2d: constructor arguments") {
  CHECK(error_text([] { nn::BatchNorm2d(0); }) == "BatchNorm2d: needs at least 1 channel, not 0");
  CHECK(error_text([] { nn::BatchNorm2d(2, {.eps = -1}); }) == "BatchNorm2d: eps = -1 is negative");
}

TEST_CASE(
    "BatchNorm: the running variance is the unbiased one, the output is normalised with the biased one") {
  auto layer = on_device(nn::BatchNorm1d(1, {.momentum = 1.0}), float64);
  const Tensor x = make({2, 2, -4}, {3, 1});
  const Tensor y = layer(x).detach();
  CHECK(values(layer.running_mean)[0] == 0);
  CHECK(values(layer.running_var)[0] == doctest::Approx(12));
  CHECK(close(y, x / std::sqrt(8 + 1e-5), 1e-12));

  auto usual = on_device(nn::BatchNorm2d(1), float64);
  usual(make({1, 2, 3, 6}, {4, 1, 1, 1}));
  CHECK(values(usual.running_mean)[0] == doctest::Approx(.3));
  CHECK(values(usual.running_var)[0] == doctest::Approx(1.3666667));
}

TEST_CASE("BatchNorm2d: gradients by hand") {
  const Tensor x = leaf({1, 2, 4}, {3, 1, 1, 1}), g = make({1, 0, 0}, {3, 1, 1, 1});
  auto layer = on_device(nn::BatchNorm2d(1), float64);
  layer(x).backward(g);
  // PyTorch 2.15, float64.
  CHECK(close(x.grad(), make({.22908229, -.34362, .11453772}, {3, 1, 1, 1}), 1e-6));
  CHECK(values(layer.weight.grad())[0] == doctest::Approx(-1.0690415));
  CHECK(values(layer.bias.grad())[0] == doctest::Approx(1));

  auto fresh = on_device(nn::BatchNorm2d(1), float64);
  fresh.eval();
  Tensor(x).set_grad({});
  fresh(x).backward(g);
  CHECK(close(x.grad(), make({.99999499, 0, 0}, {3, 1, 1, 1}), 1e-7));
  CHECK(values(fresh.weight.grad())[0] == doctest::Approx(.99999499));
}

TEST_CASE("BatchNorm2d: a mean far from zero costs no digits") {
  const uint64_t seed = 11;
  CAPTURE(seed);
  manual_seed(seed);
  const Tensor x = randn({8, 2, 16, 16}, {.device = test_device()}) * 1e-2 + 1e4;
  auto layer = on_device(nn::BatchNorm2d(2, {.eps = 0, .affine = false}));
  // The mean is a float32 too: off by at most half a step of 2^-10 there.
  const double deviation =
      std::sqrt((x.to(float64) - x.to(float64).mean({0, 2, 3}, true)).square().mean().item<double>());
  const double off = std::ldexp(1.0, -11) / deviation;
  const Tensor y = layer(x).to(float64), expected = normalised(x, 0);
  CHECK((y - expected).abs().amax().item<double>() < 1.1 * off + 1e-5);
  const Tensor var = y.square().mean({0, 2, 3}) - y.mean({0, 2, 3}).square();
  CHECK(close(var, ones({2}, {.dtype = float64}), 1e-4));
}

TEST_CASE("BatchNorm2d: float16 values whose variance exceeds their range") {
  // +-300: a variance of 90,000, above 65,504.
  Values alternating(64);
  for (size_t i = 0; i < 64; ++i) alternating[i] = i % 2 ? 300 : -300;
  const Tensor x = make(alternating, {4, 1, 4, 4}, float16).requires_grad_();
  auto layer = on_device(nn::BatchNorm2d(1, {.affine = false}));
  const Tensor y = layer(x);
  CHECK(y.dtype() == float16);
  CHECK(close(y.detach(), (x / 300).detach(), 1e-3));
  CHECK(layer.running_var.item<float>() == doctest::Approx(.9 + .1 * 90000 * 64 / 63));
  y.backward(ones(y.shape(), {.dtype = float16, .device = test_device()}));
  CHECK(x.grad().dtype() == float16);
  CHECK(x.grad().abs().amax().item<float>() < 1e-3f);
}

TEST_CASE("BatchNorm2d: 16-bit input with float32 parameters") {
  const uint64_t seed = 12;
  CAPTURE(seed);
  manual_seed(seed);
  for (const DType dtype : {float16, bfloat16}) {
    for (const bool training : {true, false}) {
      for (const bool affine : {true, false}) {
        CAPTURE(name_of(dtype));
        CAPTURE(training);
        CAPTURE(affine);
        auto layer = on_device(nn::BatchNorm2d(3, {.affine = affine}));
        layer.train(training);
        const Tensor x = uniform({2, 3, 4, 5}).to(dtype).requires_grad_();
        const Tensor g = uniform({2, 3, 4, 5}).to(dtype);
        const Tensor y = layer(x);
        y.backward(g);
        CHECK(y.dtype() == dtype);
        CHECK(x.grad().dtype() == dtype);
        CHECK(layer.running_mean.dtype() == float32);

        // The same in float32, rounded once.
        auto wide = on_device(nn::BatchNorm2d(3, {.affine = affine}));
        wide.train(training);
        const Tensor x32 = x.detach().to(float32).requires_grad_();
        const Tensor y32 = wide(x32);
        y32.backward(g.to(float32));
        const double unit = dtype == float16 ? 0x1p-10 : 0x1p-7;
        CHECK(close(y.detach(), y32.detach().to(dtype), unit));
        CHECK(close(x.grad(), x32.grad().to(dtype), unit));
        CHECK(close(layer.running_var, wide.running_var, 1e-6));
        if (!affine) continue;
        CHECK(layer.weight.grad().dtype() == float32);
        CHECK(close(layer.weight.grad(), wide.weight.grad(), 1e-5));
        CHECK(close(layer.bias.grad(), wide.bias.grad(), 1e-5));
      }
    }
  }
}

TEST_CASE("BatchNorm2d: the backward of an evaluation uses the statistics that it saw") {
  const Tensor x = make({1, 2, 4, 5}, {2, 1, 2, 1});
  auto layer = on_device(nn::BatchNorm2d(1), float64);
  layer.eval();
  const Tensor y = layer(x);
  layer.train();
  layer(x);  // changes running_mean and running_var
  y.sum().backward();
  CHECK(values(layer.weight.grad())[0] == doctest::Approx(12 / std::sqrt(1 + 1e-5)));
}

TEST_CASE("BatchNorm2d: an empty batch gives gradients of 0, fused or not") {
  auto net = on_device(nn::Sequential(nn::Conv2d(2, 2, 1), nn::BatchNorm2d(2), nn::ReLU(),
                                      nn::Conv2d(2, 1, 1), nn::BatchNorm2d(1)));
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    nn::fusion(fused);
    net.zero_grad();
    net(zeros({0, 2, 3, 3}, {.device = test_device()})).sum().backward();
    for (const auto& named : net.named_parameters()) {
      CAPTURE(named.first);
      const Tensor& parameter = named.second;
      CHECK(values(parameter.grad()) == Values(static_cast<size_t>(parameter.numel()), 0.0));
    }
  }
  nn::fusion(true);
}

TEST_CASE("BatchNorm2d: parameters narrower than the input do not narrow it") {
  auto layer = on_device(nn::BatchNorm2d(3), bfloat16), wide = on_device(nn::BatchNorm2d(3));
  const Tensor x = uniform({2, 3, 4, 5});
  const Tensor y = layer(x);
  CHECK(y.dtype() == float32);
  CHECK(close(y.detach(), wide(x).detach(), 1e-6));
  y.square().sum().backward();
  CHECK(layer.weight.grad().dtype() == bfloat16);
  CHECK(layer.running_var.dtype() == bfloat16);
}

TEST_CASE("BatchNorm2d: gradients and their gradients, by differences") {
  const uint64_t seed = 13;
  CAPTURE(seed);
  manual_seed(seed);
  const Tensor x = uniform({3, 2, 2, 2}, float64).requires_grad_(),
               w = uniform({2}, float64).requires_grad_(), b = uniform({2}, float64).requires_grad_();
  for (const bool training : {true, false}) {
    CAPTURE(training);
    const auto f = [&](Inputs in) {
      const Tensor mean = make({.2, .4}), var = make({.5, 2});
      return Tensors{batch_norm(in[0], in[1], in[2], mean, var, {.batch_statistics = training})};
    };
    CHECK(gradcheck(f, std::array{x, w, b}) == "");
    CHECK(gradgradcheck(f, std::array{x, w, b}) == "");
  }
}
