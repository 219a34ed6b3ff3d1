// Limits on gradients: the total norm and what it does to each.
#include "optim/clip.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;
using optim::clip_grad_norm_;
using optim::clip_grad_value_;

namespace {

constexpr double inf = INFINITY;

/// Parameters with these gradients.
std::vector<Tensor> with_grads(const std::vector<Values>& grads, DType dtype = float32) {
  std::vector<Tensor> parameters;
  for (const Values& grad : grads) {
    parameters.push_back(leaf(Values(grad.size()), dtype));
    parameters.back().set_grad(make(grad, dtype));
  }
  return parameters;
}

struct NormCase {
  std::vector<Values> grads;
  double max_norm, norm_type, total;
  std::vector<Values> clipped;
  DType dtype = float32;
};

}  // namespace

TEST_CASE("clip_grad_norm_: totals and gradients by PyTorch's numbers") {
  const NormCase cases[] = {
      {{{3}, {4}}, 1, 2, 5, {{.5999999}, {.7999998}}},
      {{{.3}, {.4}}, 1, 2, .5, {{.3}, {.4}}},
      {{{.6}, {.8}}, 1, 2, 1, {{.5999994}, {.7999992}}},  // equal to the limit, and still less than before
      {{{3, -5}, {4}}, 1, inf, 5, {{.5999999, -.9999998}, {.7999998}}},
      {{{3}, {4}}, 1, 1, 7, {{.42857137}, {.57142848}}},
      {{{3}, {4}}, 1, 3, 4.4979414, {{.66697156}, {.88929540}}},
      {{{3}, {4}}, 1, .5, 13.9282032, {{.21539030}, {.28718704}}},
      {{{3}, {4}}, 0, 2, 5, {{0}, {0}}},
      {{{3}, {4}}, inf, 2, 5, {{3}, {4}}},
      {{{3}, {}}, 1, 2, 3, {{.9999997}, {}}},
      {{{3}, {}}, 1, inf, 3, {{.9999997}, {}}},
      {{{inf, 1}, {1}}, 1, 2, inf, {{NAN, 0}, {0}}},
      {{{NAN, 1}, {1}}, 1, 2, NAN, {{NAN, NAN}, {NAN}}},
      {{{7, 1}, {NAN}}, 1, inf, NAN, {{NAN, NAN}, {NAN}}},
      {{{3}, {4}}, 1, 2, 5, {{.6001}, {.8}}, float16},
      {{{300, 300}, {400}}, 1, 2, 583, {{.5146, .5146}, {.686}}, float16},  // 300^2 is more than float16
                                                                            // holds
      {{{60000}, {60000}}, 1, 2, inf, {{0}, {0}}, float16},                 // and here the total is
  };
  for (const NormCase& c : cases) {
    const std::vector<Tensor> parameters = with_grads(c.grads, c.dtype);
    CAPTURE(c.total);
    CAPTURE(c.norm_type);
    CAPTURE(c.max_norm);
    const double tolerance = c.dtype == float32 ? 2e-7 : 1e-3;
    const Tensor total = clip_grad_norm_(parameters, c.max_norm, c.norm_type);
    CHECK(close(total, scalar(c.total, c.dtype), tolerance));
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK(close(parameters[i].grad(), make(c.clipped[i], c.dtype), tolerance));
    }
  }
}

TEST_CASE("clip_grad_norm_: parameters without gradients, expanded and mixed ones") {
  const Tensor without = leaf({1, 2});
  CHECK(clip_grad_norm_({}, 1).item<double>() == 0);
  CHECK(clip_grad_norm_({without}, 1).item<double>() == 0);
  CHECK_FALSE(without.grad().defined());

  const Tensor p = leaf({1, 2, 3, 4});
  p.sum().backward();  // the gradient is one 1, expanded
  CHECK(clip_grad_norm_({without, p}, 1).item<double>() == 2);
  CHECK(close(p.grad(), make({.5, .5, .5, .5}), 1e-6));

  std::vector<Tensor> mixed = with_grads({{3}}, float16);
  mixed.push_back(with_grads({{4}}, float32)[0]);
  const Tensor total = clip_grad_norm_(mixed, 1);
  CHECK(total.dtype() == float32);
  CHECK(total.item<float>() == 5);
  CHECK(mixed[0].grad().dtype() == float16);
  CHECK(close(mixed[1].grad(), make({.7999998}, float32), 2e-7));
}

TEST_CASE("clip_grad_norm_: what it refuses leaves the gradients alone") {
  const std::vector<Tensor> parameters = with_grads({{inf, 1}, {7}});
  CHECK(error_text([&] { clip_grad_norm_(parameters, 1, 2, true); }) ==
        "clip_grad_norm_: the total norm is inf, so nothing can be clipped; error_if_nonfinite = false "
        "scales by it "
        "anyway");
  CHECK(error_text([&] { clip_grad_norm_(parameters, -1); }) ==
        "clip_grad_norm_: max_norm must be at least 0, not -1");
  CHECK(error_text([&] { clip_grad_norm_(parameters, NAN); }) ==
        "clip_grad_norm_: max_norm must be at least 0, not nan");
  CHECK(error_text([&] { clip_grad_norm_(parameters, 1, 0); }) ==
        "clip_grad_norm_: norm_type must be above 0, not 0");
  CHECK(error_text([&] { clip_grad_value_(parameters, -1); }) ==
        "clip_grad_value_: clip_value must be at least 0, not -1");
  CHECK(values(parameters[0].grad()) == Values{inf, 1});
  CHECK(values(parameters[1].grad()) == Values{7});
  CHECK(clip_grad_norm_({parameters[1]}, 1, 2, true).item<float>() == 7);
}

TEST_CASE("clip_grad_value_: elements are limited, NaN stays") {
  for (const DType dtype : {float32, float16}) {
    const Tensor p = with_grads({{NAN, inf, -inf, .5, -3}}, dtype)[0], without = leaf({1});
    clip_grad_value_({p, without}, 1);
    CHECK(close(p.grad(), make({NAN, 1, -1, .5, -1}, dtype), 0));
    CHECK_FALSE(without.grad().defined());
  }
}

TEST_CASE("clipping is not recorded and counts as a change in place") {
  Tensor p = leaf({3});
  p.set_grad(leaf({5}) * 2);  // as with create_graph
  const uint32_t version = p.grad().version();
  const Tensor total = clip_grad_norm_({p}, 1);
  CHECK_FALSE(total.requires_grad());
  CHECK(p.grad().version() > version);
}
