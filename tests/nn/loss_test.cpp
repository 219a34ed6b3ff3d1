// Rules of losses that PyTorch's recorded numbers do not cover: bad input, targets that do not count, extreme
// values, 16-bit inputs, modules.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr LossReduction kEveryReduction[] = {LossReduction::none, LossReduction::mean, LossReduction::sum};

Tensor classes(const Values& values, DType dtype = int64) { return make(values, dtype); }

double value(const Tensor& x) { return x.detach().item<double>(); }

}  // namespace

TEST_CASE("cross_entropy: by hand") {
  const Tensor x = make({1, 2, 3, 1, 0, -1, .5, .5, .5}, {3, 3}), w = make({1, 2, 3});
  const Tensor all = classes({2, 0, 1}), some = classes({2, -100, 1});
  const auto loss = [&](const Tensor& target, const Tensor& weight, double smoothing) {
    return value(cross_entropy(x, target, weight, {.label_smoothing = smoothing}));
  };
  // PyTorch 2.15.
  CHECK(loss(all, {}, 0) == doctest::Approx(.63794136));
  CHECK(loss(all, w, 0) == doctest::Approx(.63794142));
  CHECK(loss(some, {}, 0) == doctest::Approx(.7531091));
  CHECK(loss(all, {}, .1) == doctest::Approx(.70460802));
  CHECK(loss(all, w, .1) == doctest::Approx(.70460808));
  CHECK(loss(some, {}, .1) == doctest::Approx(.80310905));
  CHECK(loss(some, w, .1) == doctest::Approx(.70252299));
  const Tensor p = make({0, 0, 1, 1, 0, 0, .2, .3, .5}, {3, 3});
  CHECK(loss(p, {}, 0) == doctest::Approx(.63794142));
  CHECK(loss(p, w, 0) == doctest::Approx(1.3857441));
  CHECK(loss(p, {}, .1) == doctest::Approx(.70460802));
  CHECK(close(cross_entropy(x, all, w, {.reduction = LossReduction::none}),
              make({1.2228179, .40760595, 2.19722462}), 1e-7));
}

TEST_CASE("cross_entropy: where every target is ignored") {
  for (const LossReduction reduction : kEveryReduction) {
    for (const bool weighted : {false, true}) {
      for (const double smoothing : {0.0, 0.1}) {
        const Tensor x = leaf({1, 2, 3}, {1, 3}), w = weighted ? make({1, 2, 3}) : Tensor();
        const Tensor loss = cross_entropy(
            x, classes({-1}), w, {.reduction = reduction, .ignore_index = -1, .label_smoothing = smoothing});
        CHECK((reduction == LossReduction::mean ? std::isnan(value(loss)) : value(loss) == 0));
        loss.sum().backward();
        CHECK(values(x.grad()) == Values{0, 0, 0});
      }
    }
  }
  // No target at all, and ignored rows beside others.
  CHECK(std::isnan(value(cross_entropy(make({}, {0, 3}), classes({})))));
  CHECK(value(cross_entropy(make({}, {0, 3}), classes({}), {}, {.reduction = LossReduction::sum})) == 0);
  const Tensor x = leaf({kInf, 2, 3, 1, 0, -1}, {2, 3});
  nll_loss(x, classes({-100, 0})).backward();
  CHECK(values(x.grad()) == Values{0, 0, 0, -1, 0, 0});
  CHECK(value(nll_loss(x, classes({-100, 0}))) == -1);
}

TEST_CASE("cross_entropy: a class that is ignored as a target is a class all the same") {
  const Tensor x = leaf({1, 2, 3, 1, 0, -1}, {2, 3});
  const Tensor loss = cross_entropy(x, classes({2, 0}), {}, {.ignore_index = 2});
  CHECK(value(loss) == doctest::Approx(.40760595));
  loss.backward();
  CHECK(values(x.grad())[2] == 0);
  CHECK(values(x.grad())[5] == doctest::Approx(.09003057));
}

TEST_CASE("cross_entropy: logits at the ends of the range") {
  CHECK(value(cross_entropy(make({1e4, -1e4}), scalar(1, int64))) == 20000);
  CHECK(std::isnan(value(cross_entropy(make({kInf, 0}), scalar(0, int64)))));
  CHECK(value(cross_entropy(make({0, -kInf}), scalar(0, int64))) == 0);
}

TEST_CASE("cross_entropy, nll_loss: targets that are refused") {
  const Tensor x = make({1, 2, 3}, {1, 3}), w = make({1, 2});
  const auto refusal = [&](const Tensor& target, int64_t ignore_index = -100) {
    const std::string text =
        error_text([&] { cross_entropy(x, target, {}, {.ignore_index = ignore_index}); });
    const std::string other = error_text([&] { nll_loss(x, target, {}, {.ignore_index = ignore_index}); });
    // The same, up to the remedy that nll_loss has not.
    CHECK(text.substr(text.find(':')).starts_with(other.substr(other.find(':'))));
    return text;
  };
  CHECK(refusal(classes({3})) == text("cross_entropy: target 3 at [0] is outside [0, 3); input ", describe(x),
                                      ", target ", describe(classes({3}))));
  CHECK(refusal(classes({-4}), -1).starts_with("cross_entropy: target -4 at [0] is outside [0, 3); "));
  CHECK(refusal(classes({-1})).starts_with("cross_entropy: target -1 at [0] is outside [0, 3); "));
  CHECK(refusal(classes({200}, uint8)).starts_with("cross_entropy: target 200 at [0] is outside [0, 3); "));
  for (const DType dtype : {int32, float32, float16, bfloat16}) {
    CHECK(refusal(classes({0}, dtype)) ==
          text("cross_entropy: target must be int64 or uint8, not ", name_of(dtype), "; input ", describe(x),
               ", target ", describe(classes({0}, dtype)),
               "; class indices: to(int64); probabilities: the shape of the input"));
  }
  CHECK(refusal(classes({0, 1})).starts_with("cross_entropy: input needs a target of shape [1]; "));
  CHECK(error_text([&] {
          cross_entropy(x, classes({0}), w);
        }).starts_with("cross_entropy: weight must have one element for each of 3 classes; "));
  CHECK(error_text([&] {
          cross_entropy(scalar(1), scalar(0, int64));
        }).starts_with("cross_entropy: input must be [N, C, ...] or [C] but has no dimensions; "));
  CHECK(error_text([&] { cross_entropy(x, x.to(int64)); })
            .starts_with(
                "cross_entropy: a target of the input's shape holds probabilities and must be floating; "));
  CHECK(
      error_text([&] {
        cross_entropy(x, x, {}, {.ignore_index = 0});
      }).starts_with("cross_entropy: ignore_index = 0 means nothing where the target holds probabilities; "));
  CHECK(error_text([&] { cross_entropy(x, x, {}, {.label_smoothing = 1.5}); }) ==
        "cross_entropy: label_smoothing = 1.5 is outside [0, 1]");
  CHECK(error_text([&] {
          cross_entropy(x.to(int64), classes({0}));
        }).starts_with("cross_entropy: needs a floating dtype; "));
}

TEST_CASE("nll_loss: uint8 targets, also the one that -100 would become") {
  const Tensor x = -make(Values(200, 1), {1, 200});
  CHECK(value(nll_loss(x, classes({156}, uint8))) == 1);
}

TEST_CASE("nll_loss: the factor of a scaled loss counts") {
  const Tensor x = leaf({-1, -2, -3, -4}, {2, 2});
  (2 * nll_loss(x, classes({1, 0}))).backward();
  CHECK(values(x.grad()) == Values{0, -1, -1, 0});
}

TEST_CASE("cross_entropy: 16-bit logits lose nothing before the loss is rounded") {
  for (const DType dtype : {float16, bfloat16}) {
    CAPTURE(name_of(dtype));
    // Losses of 36.127, 36.127 and 36, which bfloat16 tells apart in steps of 0.25: their mean is taken
    // first.
    const Tensor x = make({36, 34, 0, 36, 34, 0, 36, 0, 0}, {3, 3}, dtype).requires_grad_();
    const Tensor target = classes({2, 2, 2});
    const Tensor exact = x.detach().to(float64).requires_grad_();
    const Tensor loss = cross_entropy(x, target), expected = cross_entropy(exact, target);
    CHECK(loss.dtype() == dtype);
    CHECK(value(loss) == value(expected.detach().to(dtype)));
    CHECK(value(cross_entropy(x.detach().to(float32), target)) == doctest::Approx(value(expected)));

    // A log-probability of -7.107, rounded to the dtype, would be off by more than a rounding of its exp.
    const Tensor far = make({0, 7, 4.8125}, dtype).requires_grad_();
    const Tensor far_exact = far.detach().to(float64).requires_grad_();
    cross_entropy(far, scalar(1, int64)).backward();
    cross_entropy(far_exact, scalar(1, int64)).backward();
    for (size_t i = 0; i < 3; ++i) {
      const double expected = values(far_exact.grad())[i];
      CHECK(std::abs(values(far.grad())[i] - expected) <=
            (dtype == float16 ? 6e-4 : 4e-3) * std::abs(expected));
    }
  }
}

TEST_CASE("binary_cross_entropy: what it refuses") {
  const Tensor x = make({.5, 1.5}), y = make({1, 0});
  CHECK(error_text([&] { binary_cross_entropy(x, y); }) ==
        text("binary_cross_entropy: input has values outside [0, 1]; input ", describe(x),
             "; apply sigmoid, or use binary_cross_entropy_with_logits"));
  for (const double bad : {-.1, std::nan("")}) {
    CHECK(error_text([&] {
            binary_cross_entropy(make({bad, 0}), y);
          }).starts_with("binary_cross_entropy: input has values outside [0, 1]; "));
  }
  CHECK(error_text([&] {
          binary_cross_entropy(y, make({1}));
        }).starts_with("binary_cross_entropy: input and target must have one shape; "));
  CHECK(error_text([&] {
          binary_cross_entropy(y, y, make({1, 2, 3}));
        }).starts_with("binary_cross_entropy: weight does not broadcast to the input; "));
  CHECK(error_text([&] {
          binary_cross_entropy(y, y.to(int64));
        }).starts_with("binary_cross_entropy: needs a floating dtype; "));
  CHECK(error_text([&] {
          binary_cross_entropy_with_logits(y, make({1}));
        }).starts_with("binary_cross_entropy_with_logits: input and target must have one shape; "));
  CHECK(error_text([&] {
          binary_cross_entropy_with_logits(y, y, {}, make({1, 1}, {2, 1}));
        }).starts_with("binary_cross_entropy_with_logits: pos_weight does not broadcast to the input; "));
}

TEST_CASE("binary_cross_entropy_with_logits: infinite and huge logits") {
  const auto losses = [](const Values& logits, double target) {
    const Tensor x = make(logits, float32);
    return values(binary_cross_entropy_with_logits(
        x, full(x.shape(), target, {.dtype = float32, .device = x.device()}), {}, {}, LossReduction::none));
  };
  const Values ones = losses({kInf, -kInf, 1e9, -1e9}, 1);
  CHECK(std::isnan(ones[0]));
  CHECK(std::isnan(ones[1]));
  CHECK(ones[2] == 0);
  CHECK(ones[3] == 1e9);
  CHECK(losses({kInf, 1000, -1000}, 0) == Values{kInf, 1000, 0});
  const Tensor z = make({1e9, -1e9});
  CHECK(values(binary_cross_entropy(sigmoid(z), make({1, 1}), {}, LossReduction::none)) == Values{0, 100});
}

TEST_CASE("modules of losses: options pass through, weights move and are saved") {
  const Tensor x = make({1, 2, 3, 1, 0, -1}, {2, 3}), target = classes({2, 0}), w = make({1, 2, 3});
  const Tensor p = sigmoid(x), q = make({0, 1, 1, .5, 0, 1}, {2, 3});
  constexpr auto sum = LossReduction::sum;
  CHECK(close(nn::L1Loss(sum)(x, q), l1_loss(x, q, sum), 0));
  CHECK(
      close(nn::NLLLoss(w, {.ignore_index = 0})(x, target), nll_loss(x, target, w, {.ignore_index = 0}), 0));
  CHECK(close(nn::CrossEntropyLoss(w, {.label_smoothing = .2})(x, target),
              cross_entropy(x, target, w, {.label_smoothing = .2}), 0));
  CHECK(close(nn::BCELoss(w, sum)(p, q), binary_cross_entropy(p, q, w, sum), 0));
  CHECK(
      close(nn::BCEWithLogitsLoss({}, w, sum)(x, q), binary_cross_entropy_with_logits(x, q, {}, w, sum), 0));

  nn::CrossEntropyLoss plain;
  CHECK(plain.named_buffers().empty());
  CHECK(plain.state_dict().size() == 0);
  nn::BCEWithLogitsLoss weighted(w, w.clone());
  CHECK(weighted.state_dict().contains("pos_weight"));
  weighted.to(float32);
  CHECK(weighted.weight.dtype() == float32);
}
