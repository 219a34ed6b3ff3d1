// Loss scaling at work: what it saves, the usual patterns, optimizers that unscale by themselves, gradients
// that share memory, several devices.
#include <doctest/doctest.h>

#include <cmath>

#include "amp/autocast.h"
#include "autograd/engine.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "tensor/backend.h"
#include "tests/amp/scaler_rig.h"
#include "tests/error_text.h"
#include "tests/golden.h"

using namespace mezzo;

namespace {

constexpr double inf = INFINITY;

void give(Tensor parameter, const Values& gradient) {
  parameter.set_grad(
      tensor(gradient, parameter.shape(), {.dtype = parameter.dtype(), .device = parameter.device()}));
}

}  // namespace

TEST_CASE("a gradient that float16 cannot hold arrives with a scale") {
  const auto gradient = [](amp::GradScaler& scaler) {
    const Tensor w = leaf({1}, float32);
    scaler.scale((w.to(float16).to(float32) * 1e-8).sum()).backward();
    UsersSgd sgd({w});
    scaler.unscale_(sgd);
    return gradients({w})[0];
  };
  amp::GradScaler off({.enabled = false}), on;
  CHECK(gradient(off) == 0);
  CHECK(gradient(on) == doctest::Approx(6.5517e-4 / 65536).epsilon(1e-4));  // 1e-8 * 65536 in float16
}

TEST_CASE("real float16 gradients: the first overflows at the default scale, the second does not") {
  for_both_kinds([](bool by_itself) {
    const Tensor w = leaf({1}, {1, 1}, float32), x = make({1}, {1, 1}, float32);
    const auto sgd = make_sgd(by_itself, {w});
    amp::GradScaler scaler;
    const auto iterate = [&] {
      sgd->zero_grad();
      Tensor loss;
      {
        const amp::Autocast autocast(test_device(), float16);
        const Tensor product = matmul(w, x);
        CHECK(product.dtype() == float16);
        loss = product.to(float32).sum();
      }
      scaler.scale(loss).backward();
      const amp::StepResult result = scaler.step(*sgd);
      scaler.update();
      return result.skipped();
    };
    CHECK(iterate());
    CHECK(values(w) == Values{1});
    CHECK(scaler.get_scale() == 32768);
    CHECK_FALSE(iterate());
    CHECK(values(w) == Values{0});
    CHECK(gradients({w}) == Values{1});
    CHECK(scaler.get_scale() == 32768);
  });
}

TEST_CASE("clipping sees true gradients after unscale_") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {16}, {.init_scale = 4});
    rig.scaler.unscale_(*rig.optimizer);
    CHECK(optim::clip_grad_norm_(rig.parameters, 1).item<float>() == 4);
    CHECK(gradients(rig.parameters)[0] == doctest::Approx(.99999976));
    rig.scaler.step(*rig.optimizer);
    CHECK(values(rig.parameters)[0] == doctest::Approx(1 - .99999976).epsilon(1e-8));

    // Or the limit is scaled instead.
    Rig scaled(by_itself, {16}, {.init_scale = 4});
    optim::clip_grad_norm_(scaled.parameters, 4);
    scaled.scaler.step(*scaled.optimizer);
    CHECK(gradients(scaled.parameters)[0] == doctest::Approx(.9999999));

    // An infinite gradient becomes NaN, and the step is skipped all the same.
    Rig overflow(by_itself, {inf, 1});
    overflow.scaler.unscale_(*overflow.optimizer);
    optim::clip_grad_norm_(overflow.parameters, 1);
    CHECK(overflow.scaler.step(*overflow.optimizer).skipped());
    CHECK(values(overflow.parameters) == Values{1, 1});
  });
}

TEST_CASE("gradients are accumulated with their scale") {
  for_both_kinds([](bool by_itself) {
    const Tensor w = leaf({1}, float32);
    const auto sgd = make_sgd(by_itself, {w});
    amp::GradScaler scaler({.init_scale = 8, .growth_interval = 1});
    for (int step = 0; step < 2; ++step) {
      sgd->zero_grad();
      for (double part : {.5, .25, .125}) scaler.scale((w * part).sum()).backward();
      CHECK(gradients({w}) == Values{.875 * scaler.get_scale()});
      scaler.step(*sgd);
      CHECK(gradients({w}) == Values{.875});
      scaler.update();
    }
    CHECK(scaler.get_scale() == 32);
    CHECK(values(w) == Values{1 - 2 * .875});
  });
}

TEST_CASE("a gradient penalty") {
  for_both_kinds([](bool by_itself) {
    const Tensor w = leaf({3}, float32);
    const auto sgd = make_sgd(by_itself, {w});
    amp::GradScaler scaler({.init_scale = 1024});
    const Tensor loss = (w * w).sum();
    const Tensor scaled = grad({scaler.scale(loss)}, {w}, {}, {.create_graph = true})[0];
    const Tensor penalty = (scaled * (1 / scaler.get_scale())).square().sum();
    scaler.scale(loss + penalty).backward();
    scaler.step(*sgd);
    CHECK(gradients({w}) == Values{30});  // 2 w + 8 w
    CHECK(values(w) == Values{-27});
  });
}

TEST_CASE("a schedule follows the steps that were taken") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {1}, {.init_scale = 8});
    int schedule = 0;
    for (const double gradient : {inf, 1., 1., inf, 1.}) {
      give(rig.parameters[0], {gradient});
      const double before = rig.scaler.get_scale();
      const bool skipped = rig.scaler.step(*rig.optimizer).skipped();
      rig.scaler.update();
      CHECK(skipped == (rig.scaler.get_scale() < before));  // as PyTorch's users tell it
      schedule += !skipped;
    }
    CHECK(schedule == 3);
    CHECK(rig.scaler.get_scale() == 2);
  });
}

TEST_CASE("one infinity in the last of 40 parameters: parameters, state and step count stay to the bit") {
  const auto check = [](auto make_optimizer) {
    for (const bool unscale_first : {false, true}) {
      std::vector<Tensor> parameters;
      for (int i = 0; i < 40; ++i) {
        parameters.push_back(randn({3, 100}, {.device = test_device()}).requires_grad_());
      }
      auto optimizer = make_optimizer(parameters);
      amp::GradScaler scaler({.init_scale = 1024});
      scaler.scale(scalar(0, float32));
      const auto draw = [&] {
        for (Tensor& p : parameters) p.set_grad(randn(p.shape(), {.device = test_device()}) * 1024);
      };
      const auto everything = [&] {
        std::vector<Values> all;
        for (const Tensor& p : parameters) all.push_back(values(p));
        const StateDict state = optimizer.state_dict();
        for (const auto& [name, value] : state) all.push_back(values(value));
        return all;
      };
      for (const bool started : {false, true}) {  // before there are moments, and after
        CAPTURE(started);
        const auto before = everything();
        const uint32_t version = parameters[0].version();
        draw();
        parameters[39].grad().select(0, 2).select(0, 99).fill_(inf);
        std::vector<Values> scaled;
        for (const Tensor& p : parameters) scaled.push_back(values(p.grad()));
        if (unscale_first) scaler.unscale_(optimizer);
        CHECK(scaler.step(optimizer).skipped());
        scaler.update();
        CHECK(everything() == before);
        if (in_host_memory(test_device())) CHECK(parameters[0].version() == version);
        for (size_t i = 0; i < 40 && !unscale_first; ++i) CHECK(values(parameters[i].grad()) == scaled[i]);

        draw();
        CHECK_FALSE(scaler.step(optimizer).skipped());
        scaler.update();
        CHECK(everything() != before);
      }
      CHECK(scaler.get_scale() == 256);
    }
  };
  check([](const auto& parameters) { return optim::Adam(parameters, {.amsgrad = true}); });
  check([](const auto& parameters) { return optim::AdamW(parameters); });
  check([](const auto& parameters) { return optim::SGD(parameters, {.momentum = .9}); });
}

TEST_CASE("a skipped step does not count as one of Adam's") {
  for (const bool unscale_first : {false, true}) {
    const std::vector<Tensor> parameters = with_gradients({1});
    optim::Adam adam(parameters, {.lr = .5});
    adam.step();
    StateDict state;
    for (const auto& [name, value] : adam.state_dict()) {
      state.insert(name, name == "state.0.step" ? tensor({7}, Shape{}, {.dtype = int64}) : value);
    }
    adam.load_state_dict(state);
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale(scalar(0, float32));
    for (const auto& [gradient, steps] : {std::pair{inf, 7}, std::pair{8., 8}}) {
      give(parameters[0], {gradient});
      if (unscale_first) scaler.unscale_(adam);
      scaler.step(adam);
      scaler.update();
      CHECK(adam.state_dict().at("state.0.step").item<int64_t>() == steps);
    }
    CHECK(gradients(parameters) == Values{4});

    // Two devices' flags added up: not 0 is what counts.
    adam.step({scalar(2, float32), scalar(4, float32)});
    CHECK(adam.state_dict().at("state.0.step").item<int64_t>() == 8);
    CHECK(gradients(parameters) == Values{4});
  }
}

TEST_CASE("optimizers by themselves: one step by PyTorch's fused numbers") {
  const auto check = [](auto make_optimizer, double after) {
    const std::vector<Tensor> parameters = with_gradients({8});
    auto optimizer = make_optimizer(parameters);
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale(scalar(0, float32));
    scaler.step(optimizer);
    scaler.update();
    CHECK(values(parameters)[0] == doctest::Approx(after));
    CHECK(gradients(parameters) == Values{2});
    CHECK(scaler.get_scale() == 4);
  };
  check([](const auto& p) { return optim::SGD(p, {.lr = .5}); }, 0);
  check([](const auto& p) { return optim::Adam(p, {.lr = .5}); }, .5);
  check([](const auto& p) { return optim::AdamW(p, {.lr = .5}); }, .495);
}

TEST_CASE("a parameter of two optimizers is unscaled once, whichever of them unscales by itself") {
  for (const bool first_by_itself : {false, true}) {
    for (const bool second_by_itself : {false, true}) {
      for (const bool unscale_first : {false, true}) {
        for (const bool unscale_second : {false, true}) {
          for (const bool overflow : {false, true}) {  // in another parameter of the first optimizer
            CAPTURE(first_by_itself);
            CAPTURE(second_by_itself);
            CAPTURE(unscale_first);
            CAPTURE(unscale_second);
            CAPTURE(overflow);
            const std::vector<Tensor> own = with_gradients({overflow ? inf : 4, 4});
            const Tensor shared = with_gradients({16})[0], last = with_gradients({16})[0];
            const auto first = make_sgd(first_by_itself, {own[0], shared, own[1]});
            const auto second = make_sgd(second_by_itself, {shared, last});
            const auto third = make_sgd(second_by_itself, {shared});
            amp::GradScaler scaler({.init_scale = 4});
            scaler.scale(scalar(0, float32));
            if (unscale_first) scaler.unscale_(*first);
            CHECK(scaler.step(*first).skipped() == overflow);
            if (unscale_second) scaler.unscale_(*second);
            CHECK_FALSE(scaler.step(*second).skipped());
            CHECK(gradients({shared, last}) == Values{4, 4});
            CHECK(values({shared, last}) == Values{overflow ? -3. : -7., -3});
            scaler.step(*third);
            CHECK(gradients({shared}) == Values{4});
            scaler.update();
            CHECK(scaler.get_scale() == (overflow ? 2 : 4));
          }
        }
      }
    }
  }
}

TEST_CASE("an infinite gradient of a shared parameter stops both optimizers") {
  for (const bool first_by_itself : {false, true}) {
    for_both_kinds([&](bool second_by_itself) {
      const Tensor shared = with_gradients({inf})[0];
      const auto first = make_sgd(first_by_itself, {shared}), second = make_sgd(second_by_itself, {shared});
      amp::GradScaler scaler({.init_scale = 4});
      scaler.scale(scalar(0, float32));
      CHECK(scaler.step(*first).skipped());
      CHECK(scaler.step(*second).skipped());
      CHECK(values(shared) == Values{1});
    });
  }
}

TEST_CASE("gradients that share memory are unscaled once") {
  for_both_kinds([](bool by_itself) {
    const auto run = [&](const Tensor& of_a, const Tensor& of_b) {
      Tensor a = zeros(of_a.shape(), {.device = test_device()}).requires_grad_();
      Tensor b = zeros(of_b.shape(), {.device = test_device()}).requires_grad_();
      a.set_grad(of_a);
      b.set_grad(of_b);
      const auto both = make_sgd(by_itself, {a, b});
      amp::GradScaler scaler({.init_scale = 4});
      scaler.scale(scalar(0, float32));
      scaler.step(*both);
      return std::vector{values(a), values(b)};
    };
    const Values flat = {-1, -2, -3, -4, -5, -6};
    const auto fresh = [] { return make({4, 8, 12, 16, 20, 24}, {2, 3}, float32); };
    Tensor g = fresh();
    CHECK(run(g, g) == std::vector{flat, flat});
    g = fresh();
    CHECK(run(g, g.view({6})) == std::vector{flat, flat});
    g = fresh();
    CHECK(run(g, g.t()) == std::vector{flat, Values{-1, -4, -2, -5, -3, -6}});
    g = fresh();  // one memory, different places
    CHECK(run(g.slice(0, 0, 1), g.slice(0, 1, 2)) == std::vector{Values{-1, -2, -3}, Values{-4, -5, -6}});
    g = fresh();
    const Tensor column = g.slice(1, 0, 1);
    CHECK(run(column, column.view({2})) == std::vector{Values{-1, -4}, Values{-1, -4}});
    g = make({4, 8}, float32);  // elements that share one place
    CHECK(run(g.expand({3, 2}), fresh()) == std::vector{Values{-1, -2, -1, -2, -1, -2}, flat});
    g = make({4, 8}, float32);
    CHECK(run(g.expand({3, 2}), g) == std::vector{Values{-1, -2, -1, -2, -1, -2}, Values{-1, -2}});
    g = fresh();
    const Tensor before = g.clone();
    CHECK(error_text([&] { run(g.slice(0, 0, 1).view({3}), g.view({6}).slice(0, 2, 5)); })
              .starts_with("GradScaler: the memory of two gradients is shared in part, so they cannot be "
                           "unscaled once each; "));
    CHECK(values(g) == values(before));
  });
}

TEST_CASE("backward makes no gradients that share memory") {
  for_both_kinds([](bool by_itself) {
    const Tensor a = leaf({1, 1}, float32), b = leaf({1, 1}, float32);
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale((a + b).sum()).backward();
    const auto sgd = make_sgd(by_itself, {a, b});
    scaler.step(*sgd);
    CHECK(values(a) == Values{0, 0});
    CHECK(values(b) == Values{0, 0});
    CHECK(values(a.grad()) == Values{1, 1});
    CHECK(values(b.grad()) == Values{1, 1});
  });
}

TEST_CASE("gradients that stay in their memory are unscaled in every iteration") {
  for_both_kinds([](bool by_itself) {
    const Tensor w = leaf({1}, float32);
    const auto sgd = make_sgd(by_itself, {w});
    amp::GradScaler scaler({.init_scale = 4});
    for (int step = 0; step < 3; ++step) {
      sgd->zero_grad(false);
      scaler.scale((w * 2).sum()).backward();
      scaler.step(*sgd);
      CHECK(gradients({w}) == Values{2});
      step == 1 ? scaler.update(8) : scaler.update();
    }
    CHECK(values(w) == Values{-5});
  });
}

TEST_CASE("gradients that come between two optimizers' steps are unscaled too") {
  for_both_kinds([](bool by_itself) {
    const Tensor shared = with_gradients({16})[0];
    const auto first = make_sgd(by_itself, {shared}), second = make_sgd(by_itself, {shared});
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale(scalar(0, float32));
    scaler.step(*first);
    give(shared, {8});
    scaler.step(*second);
    CHECK(values(shared) == Values{1 - 4 - 2});
  });
}

TEST_CASE("parameters on several devices: an overflow on one of them counts everywhere") {
  for_both_kinds([](bool by_itself) {
    for (const Values& given : {Values{4, 8}, {inf, 8}, {4, inf}, {inf, inf}}) {
      for (const bool unscale_first : {false, true}) {
        CAPTURE(given[0]);
        CAPTURE(given[1]);
        std::vector<Tensor> parameters;
        for (const char* device : {"cpu", "reference"}) {
          parameters.push_back(ones({1}, {.device = device, .requires_grad = true}));
        }
        give(parameters[0], {given[0]});
        give(parameters[1], {given[1]});
        const auto optimizer = make_sgd(by_itself, parameters);
        amp::GradScaler scaler({.init_scale = 4});
        CHECK(scaler.scale(scalar(1, float32)).device() == test_device());
        CHECK(scaler.scale(ones({}, {.device = "cpu"})).item<float>() == 4);
        CHECK(scaler.scale(ones({}, {.device = "reference"})).device() == Device("reference"));
        const bool overflow = std::isinf(given[0] + given[1]);
        if (unscale_first) scaler.unscale_(*optimizer);
        CHECK(scaler.step(*optimizer).skipped() == overflow);
        CHECK(values(parameters) == (overflow ? Values{1, 1} : Values{0, -1}));
        scaler.update();
        CHECK(scaler.get_scale() == (overflow ? 2 : 4));
      }
    }
  });
}
