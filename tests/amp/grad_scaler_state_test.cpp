// The scaler's options, its scale set by hand, what it saves, and one that is disabled.
#include <doctest/doctest.h>

#include <cmath>

#include "optim/adam.h"
#include "tests/amp/scaler_rig.h"
#include "tests/error_text.h"

using namespace mezzo;
using amp::GradScaler;
using amp::GradScalerOptions;

namespace {

Values saved_values(const StateDict& state) {
  Values all;
  for (const auto& [name, value] : state) all.push_back(value.item<double>());
  return all;
}

StateDict state_of(const Values& values) {
  const char* names[] = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"};
  StateDict state;
  for (size_t i = 0; i < values.size(); ++i)
    state.insert(names[i], tensor({values[i]}, Shape{}, {.dtype = float64}));
  return state;
}

}  // namespace

TEST_CASE("options: defaults, and what is outside the range") {
  const GradScaler scaler;
  CHECK(scaler.is_enabled());
  CHECK(scaler.get_scale() == 65536);
  CHECK(scaler.get_growth_factor() == 2);
  CHECK(scaler.get_backoff_factor() == .5);
  CHECK(scaler.get_growth_interval() == 2000);

  const std::pair<GradScalerOptions, const char*> refused[] = {
      {{.growth_factor = 1}, "GradScaler: growth_factor must be above 1, not 1"},
      {{.growth_factor = NAN}, "GradScaler: growth_factor must be above 1, not nan"},
      {{.backoff_factor = 1}, "GradScaler: backoff_factor must be between 0 and 1, not 1"},
      {{.backoff_factor = 0}, "GradScaler: backoff_factor must be between 0 and 1, not 0"},
      {{.backoff_factor = -1}, "GradScaler: backoff_factor must be between 0 and 1, not -1"},
      {{.growth_interval = 0}, "GradScaler: growth_interval must be at least 1, not 0"},
  };
  for (const auto& [options, said] : refused) CHECK(error_text([&, &o = options] { GradScaler{o}; }) == said);
  for (const double scale : {0., -3., 0x1p-127, double{INFINITY}, double{NAN}, 1e39}) {
    CAPTURE(scale);
    CHECK(error_text([&] {
            GradScaler({.init_scale = scale});
          }).starts_with("GradScaler: the scale must be at least 2^-126 and finite in float32"));
  }
  CHECK(GradScaler({.init_scale = 0x1p-126}).get_scale() == 0x1p-126);
  CHECK_FALSE(GradScaler({.init_scale = -3, .growth_factor = .5, .enabled = false}).is_enabled());
}

TEST_CASE("options: a device that is not there is an error, not a scaler that does nothing") {
  CHECK(error_text([] { GradScaler("cuda:7"); }).starts_with("cuda:7: "));
  CHECK_FALSE(GradScaler("cuda:7", {.enabled = false}).is_enabled());
  GradScaler scaler(test_device(), {.init_scale = 8});
  CHECK(scaler.scale(scalar(1, float32)).item<float>() == 8);
}

TEST_CASE("setters: in force from the next update on") {
  Rig rig(true, {1}, {.init_scale = 8});
  rig.scaler.step(*rig.optimizer);
  rig.scaler.set_growth_factor(4);
  rig.scaler.set_growth_interval(1);
  rig.scaler.update();
  CHECK(rig.scaler.get_scale() == 32);
  rig.scaler.set_backoff_factor(.25);
  rig.parameters[0].set_grad(make({INFINITY}, float32));
  rig.scaler.step(*rig.optimizer);
  rig.scaler.update();
  CHECK(rig.scaler.get_scale() == 8);

  CHECK_THROWS_AS(rig.scaler.set_growth_factor(1), Error);
  CHECK_THROWS_AS(rig.scaler.set_backoff_factor(1), Error);
  CHECK_THROWS_AS(rig.scaler.set_growth_interval(0), Error);
  CHECK(rig.scaler.get_growth_factor() == 4);
  CHECK(rig.scaler.get_backoff_factor() == .25);
  CHECK(rig.scaler.get_growth_interval() == 1);
}

TEST_CASE("update with a new scale: the value is copied, the tracker counts on, nothing need be recorded") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {1});
    rig.scaler.step(*rig.optimizer);
    rig.scaler.update();
    Tensor scale = scalar(16, float32);
    rig.scaler.update(scale);
    scale.fill_(3);
    CHECK(rig.scaler.get_scale() == 16);
    CHECK(rig.tracker() == 1);

    rig.parameters[0].set_grad(make({INFINITY}, float32));
    rig.scaler.unscale_(*rig.optimizer);
    rig.scaler.update(4);  // forgets the overflow
    CHECK(rig.scaler.get_scale() == 4);
    CHECK(rig.tracker() == 1);
    rig.parameters[0].set_grad(make({8}, float32));
    rig.scaler.unscale_(*rig.optimizer);
    CHECK(gradients(rig.parameters) == Values{2});
  });
}

TEST_CASE("update with a new scale: what is refused") {
  Rig rig(true, {1});
  CHECK(error_text([&] { rig.scaler.update(make({4}, float32)); })
            .starts_with(
                "GradScaler.update: a new scale must be 0-d and not require grad; new_scale [1] float32 "));
  CHECK_THROWS_AS(rig.scaler.update(leaf({4}, Shape{}, float32)), Error);
  CHECK_THROWS_AS(rig.scaler.update(scalar(4, int64)), Error);
  CHECK_THROWS_AS(rig.scaler.update(Tensor()), Error);
  CHECK(error_text([&] {
          rig.scaler.update(0x1p-127);
        }).starts_with("GradScaler.update: the scale must be at least 2^-126"));
  CHECK_THROWS_AS(rig.scaler.update(scalar(INFINITY, float32)), Error);
  CHECK(rig.scaler.get_scale() == 65536);
  CHECK_FALSE(rig.scaler.step(*rig.optimizer).skipped());
}

TEST_CASE("state_dict: PyTorch's keys") {
  Rig rig(true, {1}, {.init_scale = 8, .growth_factor = 3, .backoff_factor = .25, .growth_interval = 7});
  rig.scaler.step(*rig.optimizer);
  rig.scaler.update();
  const StateDict state = rig.scaler.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, value] : state) {
    names.push_back(name);
    CHECK(value.dim() == 0);
  }
  CHECK(names == std::vector<std::string>{"scale", "growth_factor", "backoff_factor", "growth_interval",
                                          "_growth_tracker"});
  CHECK(saved_values(state) == Values{8, 3, .25, 7, 1});
  CHECK(state.at("scale").dtype() == float64);
  CHECK(state.at("_growth_tracker").dtype() == int64);
  CHECK(saved_values(GradScaler({.init_scale = 1e38}).state_dict()) == Values{1e38, 2, .5, 2000, 0});
}

TEST_CASE("load_state_dict: before the first loss and after it") {
  const StateDict state = state_of({4, 3, .25, 7, 5});
  for (const bool live : {false, true}) {
    GradScaler scaler;
    if (live) scaler.scale(scalar(1, float32));
    scaler.load_state_dict(state);
    CHECK(scaler.get_scale() == 4);
    CHECK(scaler.scale(scalar(1, float32)).item<float>() == 4);
    CHECK(saved_values(scaler.state_dict()) == saved_values(state));
  }
}

TEST_CASE("load_state_dict: what is refused changes nothing") {
  for (const bool live : {false, true}) {
    GradScaler scaler;
    if (live) scaler.scale(scalar(1, float32));
    const auto said = [&](const Values& values) {
      return error_text([&] { scaler.load_state_dict(state_of(values)); });
    };
    CHECK(said({}) == "GradScaler.load_state_dict: the state is empty; a disabled scaler saves an empty one");
    CHECK(said({4, 3}) ==
          "load_state_dict: missing backoff_factor, missing growth_interval, missing _growth_tracker");
    CHECK(said({0, 2, .5, 2000, 0})
              .starts_with("GradScaler.load_state_dict: the scale must be at least 2^-126"));
    CHECK(said({4, 1, .5, 2000, 0}).find("growth_factor") != std::string::npos);
    CHECK(said({4, 2, 1.5, 2000, 0}).find("backoff_factor") != std::string::npos);
    CHECK(said({4, 2, .5, 0, 0}).find("growth_interval") != std::string::npos);
    CHECK(said({4, 2, .5, 2000, -1}).find("_growth_tracker") != std::string::npos);
    CHECK(said({4, 2, .5, 2000, 0x1p31}).find("_growth_tracker") != std::string::npos);
    StateDict wrong = state_of({4, 2, .5, 2000, 0});
    wrong.insert("lr", scalar(1));
    CHECK(error_text([&] { scaler.load_state_dict(wrong); }) == "load_state_dict: unexpected lr");
    CHECK(saved_values(scaler.state_dict()) == Values{65536, 2, .5, 2000, 0});
  }
}

TEST_CASE("disabled: everything passes through") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {INFINITY, 3}, {.enabled = false});
    const Tensor x = scalar(1, int64);
    CHECK(rig.scaler.scale(x).impl() == x.impl());
    CHECK(rig.scaler.scale(Tensors{x})[0].impl() == x.impl());
    rig.scaler.unscale_(*rig.optimizer);
    rig.scaler.unscale_(*rig.optimizer);
    rig.scaler.update();
    rig.scaler.update(4);
    rig.scaler.update(x);
    CHECK(gradients(rig.parameters) == Values{INFINITY, 3});
    const amp::StepResult result = rig.scaler.step(*rig.optimizer);
    CHECK(result.had_gradients());
    CHECK_FALSE(result.skipped());
    CHECK(values(rig.parameters) == Values{-INFINITY, -2});
    rig.optimizer->zero_grad();
    CHECK_FALSE(rig.scaler.step(*rig.optimizer).had_gradients());
    CHECK(rig.scaler.get_scale() == 1);
    CHECK(rig.scaler.state_dict().size() == 0);
    rig.scaler.load_state_dict({});
    rig.scaler.load_state_dict(state_of({4}));
    CHECK(rig.scaler.get_scale() == 1);
  });
}
