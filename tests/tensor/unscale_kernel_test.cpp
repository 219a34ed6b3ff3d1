// The kernel that takes the loss scale out of gradients, and optimizers that do it by themselves.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/support.h"
#include "tests/tensor/optimizer_kernels.h"

namespace mezzo {

namespace {

/// unscale over all of them.
bool unscale(bool reference, std::vector<Elements>& grads, double scale, bool write, double found = 0) {
  std::vector<View> views;
  for (Elements& grad : grads) views.push_back(grad.view());
  Elements factor(float32, {}), found_inf(float32, {});
  factor.set(0, scale);
  found_inf.set(0, found);
  table(reference).unscale(views, scale == 1 ? View{} : factor.view(), found_inf.view(), write);
  CHECK((found_inf[0] == 0 || found_inf[0] == 1));
  return found_inf[0] == 1;
}

}  // namespace

TEST_CASE("unscale multiplies by the reciprocal, rounded to float32") {
  for (bool reference : {false, true}) {
    for (DType dtype : {float64, float32, bfloat16, float16}) {
      CAPTURE(reference);
      CAPTURE(name_of(dtype));
      std::vector<Elements> grads(1, Elements(dtype, {3}));
      grads[0].fill({1, -6, 512});
      const std::vector<Elements> before = grads;
      CHECK_FALSE(unscale(reference, grads, 3, false));
      CHECK(grads[0].same_bits(before[0]));  // only read
      CHECK_FALSE(unscale(reference, grads, 1, true));
      CHECK(grads[0].same_bits(before[0]));
      CHECK_FALSE(unscale(reference, grads, 3, true));
      const double third = static_cast<float>(1 / 3.0);
      for (int64_t i = 0; i < 3; ++i) {
        Elements expected(dtype, {1});
        reference::store(expected.view(), 0, Elements(before[0])[i] * third);
        CHECK(grads[0][i] == expected[0]);
      }
    }
  }
}

TEST_CASE("unscale finds what is not finite, before and after, and never clears the flag") {
  struct Case {
    DType dtype;
    double gradient, scale;
    bool found;
  };
  const double inf = INFINITY;
  const Case cases[] = {
      {float32, 1, 2, false},        {float32, inf, 2, true},      {float32, -inf, 2, true},
      {float32, NAN, 2, true},       {float32, NAN, 1, true},      {float64, inf, 1, true},
      {bfloat16, inf, 2, true},      {float16, inf, 1, true},      {float16, 65504, 1, false},
      {float32, 3e38, .25, true},    {bfloat16, 3e38, .9, false},  {bfloat16, 3e38, .5, true},
      {float64, 3e38, .25, false},   {float64, 1e308, .5, true},   {float32, 0, 0x1p-126, false},
      {float32, 3, 0x1p-126, false}, {float32, 4, 0x1p-126, true}, {float32, 0x1p127, 0x1p127, false},
  };
  for (bool reference : {false, true}) {
    for (const Case& c : cases) {
      CAPTURE(reference);
      CAPTURE(name_of(c.dtype));
      CAPTURE(c.gradient);
      CAPTURE(c.scale);
      for (bool write : {false, true}) {
        std::vector<Elements> grads(1, Elements(c.dtype, {1}));
        grads[0].set(0, c.gradient);
        CHECK(unscale(reference, grads, c.scale, write) == c.found);
      }
      std::vector<Elements> good(1, Elements(c.dtype, {1}));
      CHECK(unscale(reference, good, c.scale, true, 1));
    }
  }
}

TEST_CASE("unscale: many gradients of any dtype and layout, one bad element anywhere") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<Elements> grads;
  const Shape shapes[] = {{}, {0}, {1}, {513}, {3, 4, 5, 6}, {40, 1030}, {2}, {3, 20000}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {float32, float64, bfloat16}) {
      for (Layout layout : kResultLayouts) grads.emplace_back(dtype, shape, layout).randomize(random);
    }
  }
  std::vector<Elements> naive = grads;
  CHECK_FALSE(unscale(false, grads, 3, true));
  CHECK_FALSE(unscale(true, naive, 3, true));
  for (size_t i = 0; i < grads.size(); ++i) CHECK(grads[i].same_bits(naive[i]));

  for (Elements& grad : grads) {
    if (grad.numel() == 0) continue;
    CAPTURE(to_string(grad.view().shape));
    for (const int64_t i : {int64_t{0}, grad.numel() / 2, grad.numel() - 1}) {
      const double good = grad[i];
      grad.set(i, INFINITY);
      CHECK(unscale(false, grads, 3, false));
      grad.set(i, good);
    }
  }
  CHECK_FALSE(unscale(false, grads, 3, false));
}

TEST_CASE("adam and sgd with a loss scale: as unscaling first") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (bool reference : {false, true}) {
    for (DType dtype : {float64, float32, bfloat16}) {
      for (Layout layout : kResultLayouts) {
        for (bool use_adam : {false, true}) {
          CAPTURE(reference);
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(layout));
          const DType state = dtype == float64 ? float64 : float32;
          Elements p(dtype, {6, 300}), m(state, {6, 300}), v(state, {6, 300}), scale(float32, {});
          std::vector<Elements> g(1, Elements(dtype, {6, 300}, layout));
          for (Elements* x : {&p, &m, &g[0]}) x->randomize(random);
          v.fill([](int64_t i) { return 0.1 + static_cast<double>(i); });
          scale.set(0, 1024);
          Elements p2 = p, m2 = m, v2 = v;
          std::vector<Elements> g2 = g;
          const auto step = [&](Elements& param, std::vector<Elements>& grad, Elements& first,
                                Elements& second, const View& loss_scale) {
            AdamArgs args = adam_args(0.01, 0.1);
            args.state.loss_scale = loss_scale;
            if (use_adam)
              adam(table(reference), adam_tensors(5, param, grad[0], first, second), args);
            else
              sgd(table(reference), {param.view(), grad[0].view(), first.view(), steps_before(2)},
                  {.state = {number(.1), loss_scale},
                   .momentum = .9,
                   .dampening = 0,
                   .weight_decay = .1,
                   .nesterov = false,
                   .maximize = true});
          };
          step(p, g, m, v, scale.view());
          unscale(reference, g2, 1024, true);
          step(p2, g2, m2, v2, {});
          CHECK(p.same_bits(p2));
          CHECK(g[0].same_bits(g2[0]));
          CHECK(m.same_bits(m2));
          CHECK(v.same_bits(v2));
        }
      }
    }
  }
}

}  // namespace mezzo
