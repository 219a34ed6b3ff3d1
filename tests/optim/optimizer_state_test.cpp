// Saving optimizers and going on where they were.
#include <doctest/doctest.h>

#include <memory>

#include "autograd/ops.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;
using optim::Adam;
using optim::AdamOptions;
using optim::SGD;
using optim::SgdOptions;

namespace {

Tensor start(DType dtype) {
  return arange(6, {.dtype = float64, .device = test_device()})
      .sin()
      .reshape({2, 3})
      .to(dtype)
      .requires_grad_();
}

/// Gives the gradient of step `t` and steps.
void step(optim::Optimizer& optimizer, int t) {
  for (Tensor p : optimizer.parameters()) p.set_grad(p.detach().add(t).cos());
  optimizer.step();
}

using Make = std::function<std::unique_ptr<optim::Optimizer>(const Tensor&)>;

/// Five steps in one go, and with the optimizer saved after two of them: the rest by a fresh one.
void check_resumed(const Make& make, DType dtype) {
  CAPTURE(name_of(dtype));
  const Tensor whole = start(dtype), part = start(dtype);
  const auto once = make(whole), first = make(part);
  for (int t = 0; t < 5; ++t) step(*once, t);

  for (int t = 0; t < 2; ++t) step(*first, t);
  const StateDict saved = first->state_dict();
  const Tensor resumed = part.detach().clone().requires_grad_();
  for (int t = 2; t < 5; ++t) step(*first, t);  // what was saved does not follow
  CHECK(part.to_vector<double>() == whole.to_vector<double>());

  const auto fresh = make(resumed);
  fresh->load_state_dict(saved);
  for (int t = 2; t < 5; ++t) step(*fresh, t);
  CHECK(resumed.to_vector<double>() == whole.to_vector<double>());
}

std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : state) all.push_back(name);
  return all;
}

StateDict without(const StateDict& state, const std::string& name) {
  StateDict rest;
  for (const auto& [other, tensor] : state) {
    if (other != name) rest.insert(other, tensor);
  }
  return rest;
}

}  // namespace

TEST_CASE("optimizers: a saved optimizer continues bit by bit") {
  const Make makes[] = {
      [](const Tensor& p) { return std::make_unique<SGD>(std::vector{p}, SgdOptions{.lr = .1}); },
      [](const Tensor& p) {
        return std::make_unique<SGD>(
            std::vector{p}, SgdOptions{.lr = .1, .momentum = .9, .weight_decay = .1, .nesterov = true});
      },
      [](const Tensor& p) {
        return std::make_unique<Adam>(std::vector{p}, AdamOptions{.lr = .1, .amsgrad = true});
      },
      [](const Tensor& p) { return std::make_unique<optim::AdamW>(std::vector{p}); },
  };
  for (const Make& make : makes) {
    for (const DType dtype : {float64, float32, float16}) check_resumed(make, dtype);
  }
}

TEST_CASE("optimizers: options are saved with the state") {
  const Tensor p = start(float32), q = start(float32);
  Adam adam({p}, {.lr = .5,
                  .beta1 = .8,
                  .beta2 = .99,
                  .eps = 1e-3,
                  .weight_decay = .1,
                  .amsgrad = true,
                  .maximize = true});
  Adam other({q});
  other.load_state_dict(adam.state_dict());
  const AdamOptions& loaded = other.groups()[0].options;
  CHECK(loaded.lr == .5);
  CHECK(loaded.beta1 == .8);
  CHECK(loaded.beta2 == .99);
  CHECK(loaded.eps == 1e-3);
  CHECK(loaded.weight_decay == .1);
  CHECK(loaded.amsgrad);
  CHECK(loaded.maximize);

  SGD sgd({p}, {.lr = .5, .momentum = .8, .weight_decay = .1, .nesterov = true, .maximize = true});
  SGD plain({q});
  plain.load_state_dict(sgd.state_dict());
  CHECK(plain.groups()[0].options.nesterov);
  CHECK(plain.groups()[0].options.maximize);
  CHECK(names(sgd.state_dict()) == std::vector<std::string>{"group.0.lr", "group.0.momentum",
                                                            "group.0.dampening", "group.0.weight_decay",
                                                            "group.0.nesterov", "group.0.maximize"});
}

TEST_CASE("optimizers: a parameter that has not stepped yet has no moments, also after loading") {
  Tensor p = start(float32);
  Adam adam({p});
  const StateDict before = adam.state_dict();
  CHECK(before.contains("state.0.step"));
  CHECK_FALSE(before.contains("state.0.exp_avg"));
  step(adam, 0);
  CHECK(adam.state_dict().contains("state.0.exp_avg"));
  CHECK_FALSE(adam.state_dict().contains("state.0.max_exp_avg_sq"));
  adam.load_state_dict(before);
  CHECK(names(adam.state_dict()) == names(before));

  // A count of steps without moments counts for nothing.
  StateDict counted = without(before, "state.0.step");
  counted.insert("state.0.step", full({}, int64_t{7}));
  Adam loaded({p});
  loaded.load_state_dict(counted);
  const Tensor at = p.detach().clone();
  p.set_grad(ones({2, 3}, {.device = test_device()}));
  loaded.step();
  CHECK(close(p.detach(), at - 1e-3, 1e-6));
  CHECK(loaded.state_dict().at("state.0.step").item<int64_t>() == 1);
}

TEST_CASE("optimizers: load_state_dict lists what does not fit and changes nothing") {
  const Tensor p = start(float32);
  Adam adam({p}, {.lr = .1});
  step(adam, 0);
  const StateDict good = adam.state_dict();
  StateDict bad = without(without(good, "group.0.lr"), "state.0.exp_avg_sq");
  bad = without(bad, "state.0.exp_avg");
  bad.insert("state.0.exp_avg", zeros({3, 2}));
  bad.insert("state.1.exp_avg", zeros({2, 3}));
  CHECK(error_text([&] { adam.load_state_dict(bad); }) ==
        "load_state_dict: wrong shape state.0.exp_avg [3, 2] for [2, 3], missing state.0.exp_avg_sq, "
        "missing group.0.lr, unexpected state.1.exp_avg");
  const StateDict after = adam.state_dict();
  CHECK(names(after) == names(good));
  for (const auto& [name, tensor] : good)
    CHECK(after.at(name).to_vector<double>() == tensor.to_vector<double>());
}
