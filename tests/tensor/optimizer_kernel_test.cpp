// The optimizers' kernels: both tables beside PyTorch's numbers, and the CPU beside the naive loops.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/threads.h"
#include "tests/support.h"
#include "tests/tensor/optimizer_kernels.h"

namespace mezzo {
namespace {

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
        for (const AdamCase& c : kAdamCases) {
          CAPTURE(reference);
          CAPTURE(name_of(dtype));
          CAPTURE(c.name);
          Elements p(dtype, {2}), g(dtype, {2}), m(dtype, {2}), v(dtype, {2}), most(dtype, {2});
          p.fill({1, -2});
          for (int64_t t = 1; t <= 3; ++t) {
            g.fill([&](int64_t i) { return maximize ? -kGrads[t - 1][i] : kGrads[t - 1][i]; });
            AdamArgs args = adam_args(.1, c.weight_decay, c.decoupled);
            args.maximize = maximize;
            adam(table(reference), adam_tensors(t, p, g, m, v, c.amsgrad ? most.view() : View{}), args);
            for (int64_t i = 0; i < 2; ++i) CHECK(p[i] == doctest::Approx(c.after[t - 1][i]).epsilon(3e-7));
          }
          if (c.weight_decay == 0) {
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
    adam(table(reference), adam_tensors(1, p, g, m, v), adam_args(.1));
    CHECK(p[0] == doctest::Approx(-0.05).epsilon(1e-5));
    CHECK(p[1] == doctest::Approx(-9.999e-6).epsilon(1e-4));
  }
}

TEST_CASE("a zero gradient of a float16 parameter leaves it alone") {
  for (bool reference : {false, true}) {
    Elements p(float16, {1}), g(float16, {1}), m(float32, {1}), v(float32, {1});
    p.set(0, 1);
    adam(table(reference), adam_tensors(1, p, g, m, v), adam_args(.1));
    CHECK(p[0] == 1);  // not 0 / 0, as it would be with eps in float16
  }
}

TEST_CASE("without weight decay an infinite parameter stays out of its gradient, as in PyTorch") {
  for (bool reference : {false, true}) {
    CAPTURE(reference);
    Elements p(float32, {2}), g(float32, {2}), m(float32, {2}), v(float32, {2});
    p.fill({INFINITY, 1});
    g.fill({2, 2});
    adam(table(reference), adam_tensors(1, p, g, m, v), adam_args(.1));
    CHECK(p[0] == INFINITY);
    CHECK(m[0] == m[1]);
    CHECK(v[0] == v[1]);
    Elements buffer(float32, {2});
    sgd(table(reference), {p.view(), g.view(), buffer.view(), steps_before(1)}, sgd_args(.1));
    CHECK(p[0] == INFINITY);
    CHECK(buffer[0] == 2);
  }
}

TEST_CASE("many parameters in one call: as one after the other") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  struct Parameter {
    Elements param, grad, first, second;
  };
  // Together more than a thread's share, cut inside the large ones; many that are smaller than a run.
  std::vector<Parameter> together;
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{3}, Shape{513}, Shape{300, 400}, Shape{7}, Shape{70, 1000}}) {
    for (DType dtype : {float32, float64, bfloat16}) {
      const DType state = dtype == float64 ? float64 : float32;
      together.push_back(
          {Elements(dtype, shape), Elements(dtype, shape), Elements(state, shape), Elements(state, shape)});
      Parameter& x = together.back();
      for (Elements* values : {&x.param, &x.grad, &x.first}) values->randomize(random);
      x.second.fill([&](int64_t) { return 0.1 + static_cast<double>(random() % 1000) / 500; });
    }
  }
  std::vector<Parameter> apart = together;
  const AdamArgs adam_options = adam_args(0.01, 0.1);
  const SgdArgs sgd_options{.state = {number(.1)},
                            .momentum = .9,
                            .dampening = 0,
                            .weight_decay = .1,
                            .nesterov = true,
                            .maximize = false};
  std::vector<AdamTensors> all_adam;
  std::vector<SgdTensors> all_sgd;
  for (size_t i = 0; i < together.size(); ++i) {  // each at a step of its own
    Parameter &x = together[i], &y = apart[i];
    const auto t = static_cast<int64_t>(i) + 1;
    all_adam.push_back(adam_tensors(t, x.param, x.grad, x.first, x.second));
    all_sgd.push_back({x.param.view(), x.grad.view(), x.first.view(), steps_before(i % 2 == 0 ? 1 : 2)});
    adam(table(false), adam_tensors(t, y.param, y.grad, y.first, y.second), adam_options);
    sgd(table(false), {y.param.view(), y.grad.view(), y.first.view(), steps_before(i % 2 == 0 ? 1 : 2)},
        sgd_options);
  }
  const int threads = num_threads();
  set_num_threads(3);
  table(false).adam(all_adam, adam_options);
  table(false).sgd(all_sgd, sgd_options);
  set_num_threads(threads);
  for (size_t i = 0; i < together.size(); ++i) {
    CAPTURE(i);
    CHECK(together[i].param.same_bits(apart[i].param));
    CHECK(together[i].first.same_bits(apart[i].first));
    CHECK(together[i].second.same_bits(apart[i].second));
  }
}

TEST_CASE("sgd gives PyTorch's numbers") {
  for (bool reference : {false, true}) {
    for (DType dtype : {float32, float64}) {
      for (bool maximize : {false, true}) {
        for (const SgdCase& c : kSgdCases) {
          CAPTURE(reference);
          CAPTURE(name_of(dtype));
          CAPTURE(c.name);
          Elements p(dtype, {2}), g(dtype, {2}), buffer(dtype, {2});
          p.fill({1, -2});
          for (int64_t t = 1; t <= 3; ++t) {
            g.fill([&](int64_t i) { return maximize ? -kGrads[t - 1][i] : kGrads[t - 1][i]; });
            sgd(table(reference),
                {p.view(), g.view(), c.momentum != 0 ? buffer.view() : View{}, steps_before(t)},
                {.state = {number(.1)},
                 .momentum = c.momentum,
                 .dampening = c.dampening,
                 .weight_decay = c.weight_decay,
                 .nesterov = c.nesterov,
                 .maximize = maximize});
            for (int64_t i = 0; i < 2; ++i) CHECK(p[i] == doctest::Approx(c.after[t - 1][i]).epsilon(3e-7));
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
          const SgdArgs momentum_args{.state = {number(.01)},
                                      .momentum = .9,
                                      .dampening = .1,
                                      .weight_decay = .1,
                                      .nesterov = option,
                                      .maximize = option};
          const auto step = [&](bool reference, Elements& param, Elements& first, Elements& second,
                                Elements& third) {
            const Kernels kernels = table(reference);
            adam(kernels, adam_tensors(5, param, g, first, second, option ? third.view() : View{}),
                 adam_args(0.01, 0.1));
            sgd(kernels, {param.view(), g.view(), option ? first.view() : View{}, steps_before(2)},
                momentum_args);
          };
          step(false, p, m, v, most);
          step(true, p2, m2, v2, most2);
          CHECK(g.same_bits(gradient));
          for (int64_t i = 0; i < p.numel(); ++i) {
            const double error = 20 * epsilon(state);
            // Adam's parameter may be rounded to one side here and to the other there; SGD's buffer reads it.
            const double rounding = 2 * epsilon(dtype) * std::abs(p2[i]);
            REQUIRE(near(p[i], p2[i], rounding + error));
            REQUIRE(near(m[i], m2[i], momentum_args.weight_decay * rounding + error));
            REQUIRE(near(v[i], v2[i], error));
            REQUIRE(near(most[i], most2[i], error));
          }
        }
      }
    }
  }
}

TEST_CASE("a parameter's cast is written with it: to the bit what a cast afterwards would be") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const bool reference : {false, true}) {
    for (const Shape& shape : {Shape{}, Shape{513}, Shape{3, 4, 5, 6}, Shape{40, 1030}}) {
      for (const DType to : {float16, bfloat16}) {
        for (const Layout layout : kResultLayouts) {
          CAPTURE(reference);
          CAPTURE(to_string(shape));
          CAPTURE(name_of(to));
          CAPTURE(name_of(layout));
          Elements p(float32, shape, layout), g(float32, shape), m(float32, shape), v(float32, shape);
          Elements by_adam(to, shape, layout), by_sgd(to, shape, layout), expected(to, shape, layout);
          const auto check_cast = [&](const Elements& cast) {
            expected.fill([&](int64_t i) { return p[i]; });
            CHECK(cast.same_bits(expected));
          };
          p.randomize(random);
          g.randomize(random);
          AdamTensors tensors = adam_tensors(5, p, g, m, v);
          tensors.cast = by_adam.view();
          adam(table(reference), tensors, adam_args(.01));
          check_cast(by_adam);
          sgd(table(reference), {p.view(), g.view(), m.view(), steps_before(2), by_sgd.view()}, sgd_args(.1));
          check_cast(by_sgd);
        }
      }
    }
  }
}

TEST_CASE("a step whose gradients are not finite changes nothing, and is not counted") {
  for (bool reference : {false, true}) {
    for (float found : {1.0f, 2.0f, 0.0f}) {
      CAPTURE(reference);
      CAPTURE(found);
      Elements p(float32, {2}), g(float32, {2}), m(float32, {2}), v(float32, {2}), buffer(float32, {2});
      p.fill({1, -2});
      g.fill({INFINITY, 1});
      AdamArgs args = adam_args(.1);
      args.state.found_inf = number(found);
      args.state.loss_scale = number(8.0f);
      Elements cast(bfloat16, {2});
      cast.fill({7, 7});
      AdamTensors tensors = adam_tensors(1, p, g, m, v);
      tensors.cast = cast.view();
      adam(table(reference), tensors, args);
      CHECK((cast[1] == 7) == (found != 0));
      const SgdTensors others{p.view(), g.view(), buffer.view(), steps_before(1)};
      SgdArgs other_args = sgd_args(.1);
      other_args.state = args.state;
      sgd(table(reference), others, other_args);
      CHECK((p[1] == -2) == (found != 0));
      CHECK((g[1] == 1) == (found != 0));
      CHECK((m[1] == 0) == (found != 0));
      CHECK((buffer[1] == 0) == (found != 0));
      CHECK(*tensors.steps.as<int64_t>() == (found != 0 ? 0 : 1));
      CHECK(*others.steps.as<int64_t>() == (found != 0 ? 0 : 1));
    }
  }
}

}  // namespace mezzo
