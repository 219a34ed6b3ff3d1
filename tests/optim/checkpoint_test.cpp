// A training run that is saved to a file and goes on from it.
#include <doctest/doctest.h>

#include <cstdio>

#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tensor/io/safetensors.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/files.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

struct Net : nn::Module {
  nn::Sequential body =
      add("body", nn::Sequential(nn::Conv2d(2, 4, 1), nn::BatchNorm2d(4), nn::ReLU(), nn::Conv2d(4, 1, 1)));
  Net() { to(test_device()); }
  Tensor forward(const Tensor& x) override { return body(x); }
};

void train(Net& net, optim::Optimizer& optimizer, int steps) {
  const Tensor inputs = arange(128, {.dtype = float32, .device = test_device()}).sin().reshape({4, 2, 4, 4});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    mse_loss(net(inputs), inputs.narrow(1, 0, 1)).backward();
    optimizer.step();
  }
}

template <class O>
void check_resumed(const auto& options) {
  manual_seed(1);
  Net net;
  O optimizer(net.parameters(), options);
  train(net, optimizer, 3);

  const TemporaryPath file;
  StateDict checkpoint;
  checkpoint.insert("model.", net.state_dict());
  checkpoint.insert("optimizer.", optimizer.state_dict());
  save_safetensors(file.path, checkpoint, {{"step", "3"}});
  train(net, optimizer, 4);

  manual_seed(2);
  Net fresh;
  O resumed(fresh.parameters(), {.lr = 1});
  const auto [tensors, metadata] = load_safetensors(file.path);
  CHECK(metadata.at("step") == "3");
  fresh.load_state_dict(tensors.without_prefix("model."));
  resumed.load_state_dict(tensors.without_prefix("optimizer."));
  train(fresh, resumed, 4);

  const StateDict ends[] = {net.state_dict(), optimizer.state_dict()};
  const StateDict resumed_ends[] = {fresh.state_dict(), resumed.state_dict()};
  for (size_t i = 0; i < 2; ++i) {
    CHECK(ends[i].size() == resumed_ends[i].size());
    for (const auto& [key, tensor] : ends[i]) {
      const std::string& name = key;
      CAPTURE(name);
      CHECK(values(resumed_ends[i].at(name)) == values(tensor));
    }
  }
}

}  // namespace

TEST_CASE("checkpoint: model and optimizer in one file continue bit by bit") {
  check_resumed<optim::Adam>(optim::AdamOptions{.lr = .01, .weight_decay = .1, .amsgrad = true});
  check_resumed<optim::SGD>(optim::SgdOptions{.lr = .01, .momentum = .9, .nesterov = true});
}

TEST_CASE("StateDict: prefixes are put before names and taken off again") {
  StateDict inner, outer;
  inner.insert("weight", make({1}));
  inner.insert("bias", make({2}));
  outer.insert("model.weight", make({3}));
  CHECK(error_text([&] { outer.insert("model.", inner); }) ==
        "state_dict: the name \"model.weight\" is there already");
  CHECK(outer.size() == 1);
  outer.insert("other.", inner);
  outer.insert("twice.", outer);
  CHECK(outer.size() == 6);
  CHECK(values(outer.at("twice.other.bias")) == Values{2});

  const StateDict found = outer.without_prefix("other.");
  REQUIRE(found.size() == 2);
  CHECK(found.begin()->first == "weight");
  CHECK(values(found.at("bias")) == Values{2});
  CHECK(outer.without_prefix("none.").size() == 0);
}
