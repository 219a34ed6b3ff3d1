// The optimizers' kernels: both tables beside PyTorch's numbers, and the CPU beside the naive loops.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tests/support.h"
#include "tests/tensor/kernel_views.h"

namespace mezzo {
namespace {

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_optimizers(kernels) : cpu::add_optimizers(kernels);
  return kernels;
}

/// What the kernel is told at step t.
AdamArgs adam_args(double lr, int t, double weight_decay = 0, bool decoupled = false) {
  const double beta1 = 0.9, beta2 = 0.999;
  return {.beta1 = beta1,
          .beta2 = beta2,
          .eps = 1e-8,
          .weight_decay = decoupled ? 0 : weight_decay,
          .step_size = lr / (1 - std::pow(beta1, t)),
          .bias2_sqrt = std::sqrt(1 - std::pow(beta2, t)),
          .decay = decoupled ? 1 - lr * weight_decay : 1,
          .maximize = false};
}

constexpr double kGrads[3][2] = {{.1, -.2}, {.3, 0}, {-.5, 1e-10}};

struct AdamCase {
  const char* name;
  double weight_decay;
  bool decoupled, amsgrad;
  double after[3][2];
};
// p = [1, -2], lr 0.1, the gradients above; run with PyTorch 1.13 and 2.15.
constexpr AdamCase kAdamCases[] = {
    {"Adam", 0, false, false, {{.9, -1.9}, {.808221877, -1.8329941}, {.824313283, -1.78119838}}},
    {"Adam, weight decay",
     .1,
     false,
     false,
     {{.9, -1.9}, {.803214729, -1.80753994}, {.793387473, -1.71721673}}},
    {"Adam, amsgrad", 0, false, true, {{.9, -1.9}, {.808221877, -1.83302772}, {.824313283, -1.78128386}}},
    {"AdamW, 0.1", .1, true, false, {{.89, -1.88}, {.789321899, -1.7941941}, {.797520101, -1.72445643}}},
    {"AdamW, 0.01", .01, true, false, {{.899, -1.898}, {.806322932, -1.8290962}, {.821608007, -1.77547145}}},
};

struct SgdCase {
  const char* name;
  double momentum, dampening, weight_decay;
  bool nesterov;
  double after[3][2];
};
constexpr SgdCase kSgdCases[] = {
    {"SGD", 0, 0, 0, false, {{.99, -1.98}, {.96, -1.98}, {1.01, -1.98}}},
    {"momentum", .9, 0, 0, false, {{.99, -1.98}, {.951, -1.962}, {.9659, -1.9458}}},
    {"dampening", .9, .5, 0, false, {{.99, -1.98}, {.966, -1.962}, {.9694, -1.9458}}},
    {"nesterov", .9, 0, 0, true, {{.981, -1.962}, {.9159, -1.9458}, {.97931, -1.93122}}},
    {"weight decay", .9, 0, .01, false, {{.989, -1.978}, {.948111, -1.956222}, {.960363, -1.934666}}},
};

}  // namespace

TEST_CASE("adam gives PyTorch's numbers") {
  for (bool reference : {false, true}) {
    for (DType dtype : {float32, float64}) {
      for (bool maximize : {false, true}) {
        for (const AdamCase& adam : kAdamCases) {
          CAPTURE(reference);
          CAPTURE(name_of(dtype));
          CAPTURE(adam.name);
          Elements p(dtype, {2}), g(dtype, {2}), m(dtype, {2}), v(dtype, {2}), most(dtype, {2});
          p.fill({1, -2});
          for (int t = 1; t <= 3; ++t) {
            g.fill([&](int64_t i) { return maximize ? -kGrads[t - 1][i] : kGrads[t - 1][i]; });
            AdamArgs args = adam_args(.1, t, adam.weight_decay, adam.decoupled);
            args.maximize = maximize;
            table(reference).adam(
                {p.view(), g.view(), m.view(), v.view(), adam.amsgrad ? most.view() : View{}}, args);
            for (int64_t i = 0; i < 2; ++i)
              CHECK(p[i] == doctest::Approx(adam.after[t - 1][i]).epsilon(3e-7));
          }
          if (adam.weight_decay == 0) {
            CHECK(m[0] == doctest::Approx(-.0149).epsilon(1e-5));
            CHECK(m[1] == doctest::Approx(-.0162).epsilon(1e-5));
            CHECK(v[0] == doctest::Approx(3.4989e-4).epsilon(1e-5));
            CHECK(v[1] == doctest::Approx(3.9920e-5).epsilon(1e-5));
          }
        }
      }
    }
  }
}

TEST_CASE("adam adds eps after the bias correction") {
  for (bool reference : {false, true}) {
    Elements p(float32, {2}), g(float32, {2}), m(float32, {2}), v(float32, {2});
    g.fill({1e-8, 1e-12});
    table(reference).adam({p.view(), g.view(), m.view(), v.view(), {}}, adam_args(.1, 1));
    CHECK(p[0] == doctest::Approx(-0.05).epsilon(1e-5));
    CHECK(p[1] == doctest::Approx(-9.999e-6).epsilon(1e-4));
  }
}

TEST_CASE("a zero gradient of a float16 parameter leaves it alone") {
  for (bool reference : {false, true}) {
    Elements p(float16, {1}), g(float16, {1}), m(float32, {1}), v(float32, {1});
    p.set(0, 1);
    table(reference).adam({p.view(), g.view(), m.view(), v.view(), {}}, adam_args(.1, 1));
    CHECK(p[0] == 1);  // not 0 / 0, as it would be with eps in float16
  }
}

TEST_CASE("sgd gives PyTorch's numbers") {
  for (bool reference : {false, true}) {
    for (DType dtype : {float32, float64}) {
      for (bool maximize : {false, true}) {
        for (const SgdCase& sgd : kSgdCases) {
          CAPTURE(reference);
          CAPTURE(name_of(dtype));
          CAPTURE(sgd.name);
          Elements p(dtype, {2}), g(dtype, {2}), buffer(dtype, {2});
          p.fill({1, -2});
          for (int t = 1; t <= 3; ++t) {
            g.fill([&](int64_t i) { return maximize ? -kGrads[t - 1][i] : kGrads[t - 1][i]; });
            table(reference).sgd({p.view(), g.view(), sgd.momentum != 0 ? buffer.view() : View{}},
                                 {.lr = .1,
                                  .momentum = sgd.momentum,
                                  .dampening = sgd.dampening,
                                  .weight_decay = sgd.weight_decay,
                                  .nesterov = sgd.nesterov,
                                  .maximize = maximize,
                                  .first = t == 1});
            for (int64_t i = 0; i < 2; ++i) CHECK(p[i] == doctest::Approx(sgd.after[t - 1][i]).epsilon(3e-7));
          }
        }
      }
    }
  }
}

TEST_CASE("optimizers on the CPU agree with the naive loops") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Shape shapes[] = {{}, {0}, {1}, {511}, {513}, {3, 4, 5, 6}, {40, 1030}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {float64, float32, float16, bfloat16}) {
      for (Layout layout : kResultLayouts) {
        CAPTURE(to_string(shape));
        CAPTURE(name_of(dtype));
        CAPTURE(name_of(layout));
        const DType state = dtype == float64 ? float64 : float32;
        const Layout other = kLayouts[random() % kLayouts.size()];
        CAPTURE(name_of(other));
        Elements p(dtype, shape, layout), g(dtype, shape, other);
        Elements m(state, shape, layout), v(state, shape, layout), most(state, shape, layout);
        p.randomize(random);
        g.randomize(random);
        m.randomize(random);
        v.fill([&](int64_t) { return 0.1 + static_cast<double>(random() % 1000) / 500; });
        most.fill([&](int64_t) { return 0.1 + static_cast<double>(random() % 1000) / 500; });
        for (bool option : {false, true}) {  // amsgrad, and momentum
          Elements p2 = p, m2 = m, v2 = v, most2 = most, gradient = g;
          const AdamArgs adam = adam_args(0.01, 5, 0.1);
          const SgdArgs sgd{.lr = .01,
                            .momentum = .9,
                            .dampening = .1,
                            .weight_decay = .1,
                            .nesterov = option,
                            .maximize = option,
                            .first = false};
          const auto step = [&](bool reference, Elements& param, Elements& first, Elements& second,
                                Elements& third) {
            const Kernels kernels = table(reference);
            kernels.adam(
                {param.view(), g.view(), first.view(), second.view(), option ? third.view() : View{}}, adam);
            kernels.sgd({param.view(), g.view(), option ? first.view() : View{}}, sgd);
          };
          step(false, p, m, v, most);
          step(true, p2, m2, v2, most2);
          CHECK(g.same_bits(gradient));
          for (int64_t i = 0; i < p.numel(); ++i) {
            const double error = 20 * epsilon(state);
            // Adam's parameter may be rounded to one side here and to the other there; SGD's buffer reads it.
            const double rounding = 2 * epsilon(dtype) * std::abs(p2[i]);
            REQUIRE(near(p[i], p2[i], rounding + error));
            REQUIRE(near(m[i], m2[i], sgd.weight_decay * rounding + error));
            REQUIRE(near(v[i], v2[i], error));
            REQUIRE(near(most[i], most2[i], error));
          }
        }
      }
    }
  }
}

}  // namespace mezzo
