// Runs of many steps under a scaler: beside PyTorch's, and saved in the middle.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "amp/autocast.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "tensor/random.h"
#include "tests/amp/scaler_rig.h"
#include "tests/files.h"
#include "tests/golden.h"

using namespace mezzo;

namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const std::vector<Tensor>& parameters,
                                                 const nlohmann::json& given) {
  const double lr = given.at("lr"), weight_decay = given.at("weight_decay");
  const std::string kind = given.at("class");
  if (kind == "SGD")
    return std::make_unique<optim::SGD>(
        parameters,
        optim::SgdOptions{.lr = lr, .momentum = given.at("momentum"), .weight_decay = weight_decay});
  const optim::AdamOptions options{.lr = lr, .weight_decay = weight_decay};
  if (kind == "AdamW") return std::make_unique<optim::AdamW>(parameters, options);
  REQUIRE(kind == "Adam");
  return std::make_unique<optim::Adam>(parameters, options);
}

}  // namespace

TEST_CASE("golden: scales, trackers and parameters of 40 steps, some of them skipped") {
  const Golden golden("scaler");
  const auto cases = nlohmann::json::parse(golden.metadata("cases"));
  CHECK(cases.size() == 3);
  for (const auto& entry : cases.items()) {
    const std::string name = entry.key();
    const nlohmann::json& given = entry.value();
    for (const bool unscale_first : {false, true}) {
      CAPTURE(name);
      CAPTURE(unscale_first);
      std::vector<Tensor> parameters, grads;
      for (const char* i : {"0", "1"}) {
        parameters.push_back(golden.tensor(text("param", i)).to(test_device()).requires_grad_());
        grads.push_back(golden.tensor(text("grads", i)).to(test_device()));
      }
      const auto optimizer = make_optimizer(parameters, given);
      amp::GradScaler scaler({.init_scale = given.at("init_scale"),
                              .growth_factor = given.at("growth_factor"),
                              .backoff_factor = given.at("backoff_factor"),
                              .growth_interval = given.at("growth_interval")});
      scaler.scale(scalar(0, float32));
      const Values scales = values(golden.tensor(name + ".scale")),
                   trackers = values(golden.tensor(name + ".tracker"));
      REQUIRE(scales.size() == 40);
      for (size_t step = 0; step < 40; ++step) {
        CAPTURE(step);
        for (size_t i = 0; i < 2; ++i) {
          parameters[i].set_grad(grads[i].select(0, static_cast<int64_t>(step)) * scaler.get_scale());
        }
        if (unscale_first) scaler.unscale_(*optimizer);
        scaler.step(*optimizer);
        scaler.update();
        CHECK(scaler.get_scale() == scales[step]);
        CHECK(scaler.state_dict().at("_growth_tracker").item<double>() == trackers[step]);
      }
      for (size_t i = 0; i < 2; ++i) {
        CHECK(
            close(parameters[i].detach(), golden.tensor(text(name, ".param", i)), golden_tolerance(float32)));
      }
    }
  }
}

namespace {

struct Net : nn::Module {
  nn::Sequential body =
      add("body", nn::Sequential(nn::Conv2d(2, 8, 1), nn::BatchNorm2d(8), nn::ReLU(), nn::Conv2d(8, 1, 1)));
  Net() { to(test_device()); }
  Tensor forward(const Tensor& x) override { return body(x); }
};

/// What is saved, and what goes on from it.
struct Run {
  Net net;
  optim::Adam adam{net.parameters(), {.lr = .01}};
  amp::GradScaler scaler{{.growth_interval = 3}};
  Values losses{};
  int skipped = 0;

  void train(int begin, int end) {
    const Tensor inputs =
        arange(128, {.dtype = float32, .device = test_device()}).sin().reshape({4, 2, 4, 4});
    const Tensor targets = inputs.narrow(1, 0, 1);
    for (int step = begin; step < end; ++step) {
      adam.zero_grad();
      Tensor loss;
      {
        const amp::Autocast autocast(test_device(), float16);
        loss = mse_loss(net(inputs), targets);
      }
      if (step == 9) loss = loss * 1e38;  // an overflow that no scale can help
      scaler.scale(loss).backward();
      skipped += scaler.step(adam).skipped();
      scaler.update();
      losses.push_back(loss.item<double>());
    }
  }
  StateDict state() {
    StateDict all;
    all.insert("model.", net.state_dict());
    all.insert("optimizer.", adam.state_dict());
    all.insert("scaler.", scaler.state_dict());
    return all;
  }
  void load(const StateDict& all) {
    net.load_state_dict(all.without_prefix("model."));
    adam.load_state_dict(all.without_prefix("optimizer."));
    scaler.load_state_dict(all.without_prefix("scaler."));
  }
};

}  // namespace

TEST_CASE("a float16 run that is saved in the middle goes on to the bit") {
  manual_seed(1);
  Run whole;
  whole.train(0, 20);
  CHECK(whole.skipped >= 1);
  CHECK(whole.skipped < 10);

  for (const int middle : {8, 10}) {  // before and after the overflow
    CAPTURE(middle);
    const TemporaryPath file;
    manual_seed(1);
    Run first;
    first.train(0, middle);
    save_safetensors(file.path, first.state());

    manual_seed(2);
    Run second;
    second.load(load_safetensors(file.path).tensors);
    second.train(middle, 20);
    CHECK(second.losses == Values(whole.losses.begin() + middle, whole.losses.end()));
    const StateDict end = second.state(), expected = whole.state();
    CHECK(end.size() == expected.size());
    for (const auto& entry : expected) {
      CAPTURE(entry.first);
      CHECK(values(end.at(entry.first)) == values(entry.second));
    }
  }
}
