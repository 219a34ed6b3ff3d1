// Rules of optimizers: what a step does, what it leaves alone, what is refused, and what is saved.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;
using optim::Adam;
using optim::AdamOptions;
using optim::AdamW;
using optim::SGD;
using optim::SgdOptions;

namespace {

void give_grad(Tensor parameter, const Values& values) {
  parameter.set_grad(make(values, parameter.dtype()));
}
double value(const Tensor& x) { return values(x).at(0); }

struct TableRow {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>)> make;
  double after[3][2];
};

template <class O, class Options>
auto maker(const Options& options) {
  return [=](std::vector<Tensor> parameters) { return std::make_unique<O>(std::move(parameters), options); };
}

}  // namespace

TEST_CASE("optimizers: three steps by PyTorch's numbers") {
  // Run with PyTorch 2.15; nine digits.
  const TableRow rows[] = {
      {"SGD", maker<SGD>(SgdOptions{.lr = .1}), {{.99, -1.98}, {.96, -1.98}, {1.01, -1.98}}},
      {"momentum",
       maker<SGD>(SgdOptions{.lr = .1, .momentum = .9}),
       {{.99, -1.98}, {.951, -1.962}, {.9659, -1.9458}}},
      {"dampening",
       maker<SGD>(SgdOptions{.lr = .1, .momentum = .9, .dampening = .5}),
       {{.99, -1.98}, {.966, -1.962}, {.9694, -1.9458}}},
      {"nesterov",
       maker<SGD>(SgdOptions{.lr = .1, .momentum = .9, .nesterov = true}),
       {{.981, -1.962}, {.9159, -1.9458}, {.97931, -1.93122}}},
      {"weight decay",
       maker<SGD>(SgdOptions{.lr = .1, .momentum = .9, .weight_decay = .01}),
       {{.989, -1.978}, {.948111, -1.956222}, {.960363, -1.934666}}},
      {"Adam",
       maker<Adam>(AdamOptions{.lr = .1}),
       {{.9, -1.9}, {.808221877, -1.8329941}, {.824313283, -1.78119838}}},
      {"Adam, weight decay",
       maker<Adam>(AdamOptions{.lr = .1, .weight_decay = .1}),
       {{.9, -1.9}, {.803214729, -1.80753994}, {.793387473, -1.71721673}}},
      {"amsgrad",
       maker<Adam>(AdamOptions{.lr = .1, .amsgrad = true}),
       {{.9, -1.9}, {.808221877, -1.83302772}, {.824313283, -1.78128386}}},
      {"AdamW, weight decay",
       maker<AdamW>(AdamOptions{.lr = .1, .weight_decay = .1}),
       {{.89, -1.88}, {.789321899, -1.7941941}, {.797520101, -1.72445643}}},
      {"AdamW, its own weight decay",
       maker<AdamW>(AdamOptions{.lr = .1}),
       {{.899, -1.898}, {.806322932, -1.8290962}, {.821608007, -1.77547145}}},
  };
  const Values grads[] = {{.1, -.2}, {.3, 0}, {-.5, 1e-10}};
  for (const TableRow& row : rows) {
    CAPTURE(row.name);
    const Tensor p = leaf({1, -2});
    const auto optimizer = row.make({p});
    for (size_t step = 0; step < 3; ++step) {
      CAPTURE(step);
      give_grad(p, grads[step]);
      optimizer->step();
      for (size_t i = 0; i < 2; ++i) CHECK(std::abs(values(p)[i] - row.after[step][i]) < 1e-6);
    }
  }
}

TEST_CASE("Adam: eps is added to the corrected root") {
  for (const auto& [gradient, expected] : {std::pair{1e-8, -.05}, std::pair{1e-12, -9.999e-6}}) {
    const Tensor p = leaf({0});
    Adam adam({p}, {.lr = .1});
    give_grad(p, {gradient});
    adam.step();
    CHECK(value(p) == doctest::Approx(expected).epsilon(1e-4));
  }
}

TEST_CASE("optimizers: no gradient means no step, a zero gradient is a gradient") {
  const Tensor coasting = leaf({1}), resting = leaf({1});
  SGD momentum({coasting, resting}, {.lr = .1, .momentum = .9});
  give_grad(coasting, {1});
  momentum.step();
  give_grad(coasting, {0});
  momentum.step();
  CHECK(value(coasting) == doctest::Approx(.81));
  CHECK(value(resting) == 1);

  const Tensor decaying = leaf({1}), kept = leaf({1});
  SGD decay({decaying, kept}, {.lr = .1, .weight_decay = .5});
  give_grad(decaying, {0});
  decay.step();
  CHECK(value(decaying) == doctest::Approx(.95));
  CHECK(value(kept) == 1);

  // A parameter that gets its first gradient late counts its own steps.
  const Tensor early = leaf({0}), late = leaf({0});
  Adam adam({early, late}, {.lr = .1});
  give_grad(early, {1});
  adam.step();
  give_grad(late, {1});
  adam.step();
  CHECK(value(late) == doctest::Approx(-.1));
  CHECK(adam.state_dict().at("state.0.step").item<int64_t>() == 2);
  CHECK(adam.state_dict().at("state.1.step").item<int64_t>() == 1);
}

TEST_CASE("optimizers: groups have options of their own, which may change between steps") {
  const Tensor a = leaf({1}), b = leaf({1});
  SGD sgd({{{a}, {.lr = .1}}, {{b}, {.lr = .01, .weight_decay = 1}}});
  const auto step = [&] {
    give_grad(a, {1});
    give_grad(b, {1});
    sgd.step();
  };
  step();
  CHECK(value(a) == doctest::Approx(.9));
  CHECK(value(b) == doctest::Approx(.98));
  sgd.groups()[0].options.lr = .5;
  sgd.groups()[1].options.weight_decay = 0;
  step();
  CHECK(value(a) == doctest::Approx(.4));
  CHECK(value(b) == doctest::Approx(.97));
  CHECK(sgd.parameters().size() == 2);

  const Tensor c = leaf({0}), d = leaf({0});
  Adam adam({{{c}, {.lr = .1}}, {{d}, {.lr = .2}}});
  give_grad(c, {1});
  give_grad(d, {1});
  adam.step();
  CHECK(value(c) == doctest::Approx(-.1));
  CHECK(value(d) == doctest::Approx(-.2));
}

namespace {

struct SignDescent : optim::Optimizer {
  explicit SignDescent(std::vector<Tensor> parameters) : Optimizer(std::move(parameters)) {}
  void step() override {
    const NoGradGuard guard;
    for (Tensor p : parameters()) {
      if (p.grad().defined()) p.sub_(where(p.grad() > 0, 0.01, -0.01));
    }
  }
};

}  // namespace

TEST_CASE("optimizers: a user derives one") {
  const Tensor p = leaf({1, -2, 3}), frozen = leaf({1});
  SignDescent optimizer({p, frozen});
  (p * p).sum().backward();
  optimizer.step();
  const auto moved = values(p);
  CHECK(moved[0] == doctest::Approx(.99));
  CHECK(moved[1] == doctest::Approx(-1.99));
  CHECK(moved[2] == doctest::Approx(2.99));
  CHECK(value(frozen) == 1);
  optimizer.zero_grad();
  CHECK_FALSE(p.grad().defined());
  CHECK(optimizer.state_dict().size() == 0);
  optimizer.load_state_dict({});
}

TEST_CASE("optimizers: what cannot be optimized is refused") {
  const Tensor p = leaf({1}), q = leaf({2});
  CHECK_THROWS_WITH_AS(SGD({}, {}), "Optimizer: got an empty parameter list", Error);
  CHECK(error_text([&] { SGD({p * 2}, {}); }).find("Optimizer: cannot optimize a tensor that is no leaf; ") ==
        0);
  CHECK(error_text([&] {
          SGD({tensor({1, 2}, {.dtype = int64})}, {});
        }).find("must be floating") != std::string::npos);
  CHECK(error_text([&] { SGD({Tensor()}, {}); }) == "Optimizer: a parameter is undefined");
  const std::string twice =
      "Optimizer: a parameter is listed twice, or in two groups; parameter [1] float64 ";
  CHECK(error_text([&] { SGD({p, q, p}, {}); }).find(twice) == 0);
  CHECK(error_text([&] {
          Adam(std::vector<optim::Group<AdamOptions>>{{{p}, {}}, {{q, p}, {}}});
        }).find(twice) == 0);
  CHECK(error_text([&] {
          SGD({p, p.detach().requires_grad_()}, {});
        }).find("Optimizer: a parameter shares its memory with another; parameter [1] float64 ") == 0);
  const Tensor none = leaf({}), none_either = leaf({});
  CHECK_NOTHROW(SGD({none, none_either}, {}));
}

TEST_CASE("optimizers: options outside their range are refused") {
  const Tensor p = leaf({1});
  const std::pair<SgdOptions, const char*> sgd[] = {
      {{.lr = -1}, "SGD: invalid learning rate: -1"},
      {{.lr = std::nan("")}, "SGD: invalid learning rate: nan"},
      {{.momentum = -.5}, "SGD: invalid momentum: -0.5"},
      {{.weight_decay = -.1}, "SGD: invalid weight decay: -0.1"},
      {{.nesterov = true}, "SGD: nesterov needs a momentum and no dampening"},
      {{.momentum = .9, .dampening = .1, .nesterov = true},
       "SGD: nesterov needs a momentum and no dampening"},
  };
  for (const auto& [options, text] : sgd) CHECK(error_text([&, &o = options] { SGD({p}, o); }) == text);
  const std::pair<AdamOptions, const char*> adam[] = {
      {{.lr = -1}, "Adam: invalid learning rate: -1"},
      {{.beta1 = 1}, "Adam: invalid beta1: 1"},
      {{.beta2 = -.1}, "Adam: invalid beta2: -0.1"},
      {{.eps = -1}, "Adam: invalid eps: -1"},
      {{.weight_decay = -1}, "Adam: invalid weight decay: -1"},
  };
  for (const auto& [options, text] : adam) CHECK(error_text([&, &o = options] { Adam({p}, o); }) == text);
}

TEST_CASE("optimizers: a bad option set later stops the step before anything changes") {
  const Tensor a = leaf({1}), b = leaf({1});
  give_grad(a, {1});
  give_grad(b, {1});
  SGD sgd({{{a}, {.lr = .1, .momentum = .9}}, {{b}, {.lr = .1}}});
  sgd.groups()[1].options.lr = -1;
  CHECK(error_text([&] { sgd.step(); }) == "SGD: invalid learning rate: -1");
  CHECK_FALSE(sgd.state_dict().contains("state.0.momentum_buffer"));

  Adam adam({{{a}, {}}, {{b}, {}}});
  adam.groups()[1].options.lr = -1;
  CHECK(error_text([&] { adam.step(); }) == "Adam: invalid learning rate: -1");
  CHECK(adam.state_dict().at("state.0.step").item<int64_t>() == 0);
  CHECK(value(a) == 1);
  CHECK(value(b) == 1);
  CHECK(a.version() == 0);
}

TEST_CASE("optimizers: no memory for one parameter's state, and no parameter changes") {
  const Tensor a = leaf({1});
  Tensor huge = make({1}).expand({int64_t{1} << 47}).requires_grad_();
  const auto check = [&](optim::Optimizer& optimizer) {
    give_grad(a, {1});
    huge.set_grad(huge.detach());
    CHECK(error_text([&] { optimizer.step(); }).starts_with("allocate: no memory"));
    CHECK(value(a) == 1);
    CHECK(a.version() == 0);
  };
  SGD sgd({a, huge}, {.lr = .1, .momentum = .9, .dampening = .5});
  check(sgd);
  Adam adam({a, huge});
  check(adam);

  huge.set_grad({});
  sgd.step();  // the first one: the momentum is the gradient, undamped
  CHECK(value(a) == doctest::Approx(.9));
}

TEST_CASE("optimizers: a step changes the version, so a backward through old values is refused") {
  const Tensor a = leaf({3});
  SGD sgd({a}, {.lr = .1});
  const Tensor y = (a * a).sum(), z = (a * a).sum();
  y.backward();
  sgd.step();
  CHECK(a.version() == 1);
  CHECK(error_text([&] { z.backward(); }).find("changed") != std::string::npos);

  Adam adam({a});
  const uint32_t before = a.version();
  adam.step();
  CHECK(a.version() == before + 1);
}

TEST_CASE("optimizers: zero_grad(false) zeroes gradients of any dtype and layout, NaN too") {
  const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), b = leaf(Values(70000, 1), float32), c = leaf({}, {0, 3}),
               d = leaf({1}, bfloat16);
  SGD sgd({a, b, c, d});
  (a.t() * make({1, 2, 3, std::nan("")}, {2, 2})).sum().backward();
  (b * b).sum().backward();
  c.sum().backward();
  (d * d).sum().backward();
  const uint32_t version = b.grad().version();
  sgd.zero_grad(false);
  CHECK(values(a.grad()) == Values(4, 0));
  CHECK(values(b.grad()) == Values(70000, 0));
  CHECK(values(d.grad()) == Values{0});
  CHECK(b.grad().version() == version + 1);
  Tensor e = leaf({1, 2});
  e.set_grad(expand(make({1}), {2}));
  SGD with_expanded({a, e});
  Tensor kept = a.grad();
  kept.fill_(1);
  CHECK(error_text([&] { with_expanded.zero_grad(false); }).starts_with("zero_grad: "));
  CHECK(values(kept) == Values(4, 1));
}

TEST_CASE("optimizers: zero_grad forgets gradients, or keeps them as zeros") {
  const Tensor a = leaf({3}), never = leaf({1});
  SGD sgd({a, never});
  (a * a).sum().backward();
  const Tensor held = a.grad();
  sgd.zero_grad(false);
  CHECK(value(a.grad()) == 0);
  CHECK(value(held) == 0);  // the same tensor
  CHECK_FALSE(never.grad().defined());
  sgd.zero_grad();
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("optimizers: 16-bit parameters with eps below their range stay finite") {
  for (const DType dtype : {float16, bfloat16}) {
    CAPTURE(name_of(dtype));
    const Tensor p = leaf({1, 1}, dtype);
    Adam adam({p}, {.lr = .01, .eps = 1e-8});
    for (int step = 0; step < 2; ++step) {
      give_grad(p, {0, 1e-4});
      adam.step();
    }
    CHECK(values(p)[0] == 1);
    CHECK(values(p)[1] == doctest::Approx(.98).epsilon(.01));
    const StateDict state = adam.state_dict();
    CHECK(state.at("state.0.exp_avg").dtype() == float32);
    CHECK(state.at("state.0.exp_avg_sq").dtype() == float32);
    CHECK(values(state.at("state.0.exp_avg_sq"))[1] == doctest::Approx(2e-11).epsilon(.02));
  }
}

TEST_CASE("optimizers: parameters in any layout get the same step") {
  const Shape shape{2, 3, 4, 5};
  const Tensor start = arange(120, {.dtype = float64, .device = test_device()}).reshape(shape).sin();
  const Tensor gradient = start.mul(3).cos();
  const auto run = [&](MemoryFormat parameter_format, MemoryFormat grad_format, bool adam) {
    Tensor p = start.clone().to(parameter_format).requires_grad_();
    std::unique_ptr<optim::Optimizer> optimizer;
    if (adam)
      optimizer = std::make_unique<Adam>(std::vector{p}, AdamOptions{.amsgrad = true});
    else
      optimizer = std::make_unique<SGD>(std::vector{p}, SgdOptions{.momentum = .9});
    for (int step = 0; step < 2; ++step) {
      p.set_grad(gradient.mul(step + 1).to(grad_format));
      optimizer->step();
    }
    CHECK(p.is_contiguous(parameter_format));
    const char* moment = adam ? "state.0.max_exp_avg_sq" : "state.0.momentum_buffer";
    CHECK(optimizer->state_dict().at(moment).is_contiguous(parameter_format));
    return p.detach();
  };
  for (const bool adam : {false, true}) {
    const Tensor expected = run(contiguous_format, contiguous_format, adam);
    CHECK(close(run(channels_last, channels_last, adam), expected, 1e-14));
    CHECK(close(run(channels_last, contiguous_format, adam), expected, 1e-14));
    CHECK(close(run(contiguous_format, channels_last, adam), expected, 1e-14));
  }
}
