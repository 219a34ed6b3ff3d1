// Initial values: how they are distributed, from the formulas of their papers.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "nn/init.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

constexpr double kFanIn = 32 * 9, kFanOut = 64 * 9;

/// 18,432 values of a convolution's weight, filled by f.
Tensor filled(const std::function<void(Tensor)>& f) {
  const Tensor weight = zeros({64, 32, 3, 3}, {.device = test_device(), .requires_grad = true});
  f(weight);
  CHECK(weight.is_leaf());
  CHECK(weight.requires_grad());
  return weight.detach().to(float64);
}

double deviation(const Tensor& x) { return std::sqrt(x.square().mean().item<double>()); }

void check_uniform(const Tensor& x, double bound) {
  CHECK(x.amax().item<double>() <= bound * (1 + 1e-6));
  CHECK(x.amax().item<double>() > .99 * bound);
  CHECK(x.amin().item<double>() >= -bound * (1 + 1e-6));
  CHECK(x.amin().item<double>() < -.99 * bound);
  CHECK(deviation(x) == doctest::Approx(bound / std::sqrt(3.0)).epsilon(.02));
}

/// Within four deviations of the mean's and the deviation's own spread over 18,432 values.
void check_normal(const Tensor& x, double std) {
  CHECK(std::abs(x.mean().item<double>()) < 4 * std / std::sqrt(18432.0));
  CHECK(deviation(x) == doctest::Approx(std).epsilon(4 / std::sqrt(2 * 18432.0)));
}

}  // namespace

TEST_CASE("init: bounds and deviations") {
  const uint64_t seed = 7;
  CAPTURE(seed);
  manual_seed(seed);
  check_uniform(filled([](Tensor w) { nn::init::uniform_(w, -.5, .5); }), .5);
  check_uniform(filled([](Tensor w) { nn::init::kaiming_uniform_(w); }), std::sqrt(6 / kFanIn));
  check_uniform(filled([](Tensor w) { nn::init::kaiming_uniform_(w, 2); }), std::sqrt(6 / (5 * kFanIn)));
  check_uniform(filled([](Tensor w) { nn::init::xavier_uniform_(w, 3); }),
                3 * std::sqrt(6 / (kFanIn + kFanOut)));
  check_uniform(filled([](Tensor w) { nn::init::default_(w, {}); }), std::sqrt(1 / kFanIn));
  check_normal(filled([](Tensor w) { nn::init::normal_(w, 0, .3); }), .3);
  check_normal(filled([](Tensor w) { nn::init::kaiming_normal_(w); }), std::sqrt(2 / kFanIn));
  check_normal(filled([](Tensor w) { nn::init::kaiming_normal_(w, 2); }), std::sqrt(2 / (5 * kFanIn)));
  check_normal(filled([](Tensor w) { nn::init::xavier_normal_(w, 3); }),
               3 * std::sqrt(2 / (kFanIn + kFanOut)));
  const Tensor constant = filled([](Tensor w) { nn::init::constant_(w, 2); });
  CHECK(constant.amin().item<double>() == 2);
  CHECK(constant.amax().item<double>() == 2);
}

TEST_CASE("init: a vector has no fan") {
  CHECK(error_text([] {
          nn::init::kaiming_normal_(zeros({4}));
        }).starts_with("init: a fan needs at least 2 dimensions; tensor "));
}
