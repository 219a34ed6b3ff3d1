// The checkerboard's network, trained for 50 steps from PyTorch's initial weights.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

struct Net : nn::Module {
  nn::Sequential net;

  explicit Net(int64_t channels) {
    for (const int64_t inputs : {int64_t{2}, channels, channels}) {
      net.push_back(nn::Conv2d(inputs, channels, 1));
      net.push_back(nn::BatchNorm2d(channels));
      net.push_back(nn::ReLU());
    }
    net.push_back(nn::Conv2d(channels, 1, 1));
    add("net", net);
  }
  Tensor forward(const Tensor& x) override { return net(x); }
};

Net initial_net(const Golden& golden, DType dtype) {
  Net net(16);
  const std::string prefix = "initial.";
  StateDict state;
  for (const std::string& key : golden.keys(prefix))
    state.insert(key.substr(prefix.size()), golden.tensor(key));
  net.load_state_dict(state);
  net.to(dtype).to(test_device());
  return net;
}

/// Losses of 50 steps of Adam.
std::vector<double> train(Net& net, const Tensor& inputs, const Tensor& targets) {
  optim::Adam optimizer(net.parameters(), {.lr = 0.001});
  std::vector<double> losses;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    const Tensor loss = nn::MSELoss()(net(inputs), targets);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// Steps are counted from 1. Rounding grows with each step of float32, until the biases before a BatchNorm,
/// whose gradient is nothing but rounding and which Adam moves as far as any other, show in the third digit.
double allowed(DType dtype, size_t step) {
  if (dtype == float64) return 1e-8;
  return step <= 5 ? 1e-5 : step <= 20 ? 1e-4 : 1e-2;
}

}  // namespace

TEST_CASE("golden: state dict of the checkerboard's network") {
  const Golden golden("checkerboard");
  const StateDict state = Net(16).state_dict();
  const auto keys = nlohmann::json::parse(golden.metadata("keys")).get<std::vector<std::string>>();
  REQUIRE(state.size() == keys.size());
  auto key = keys.begin();
  for (const auto& [name, value] : state) {
    CHECK(name == *key++);
    CHECK(value.shape() == golden.tensor("initial." + name).shape());
    CHECK(value.dtype() == golden.tensor("initial." + name).dtype());
  }
}

TEST_CASE("golden: 50 steps of training on the checkerboard") {
  const Golden golden("checkerboard");
  for (const DType dtype : {float32, float64}) {
    for (const MemoryFormat format : {contiguous_format, channels_last}) {
      CAPTURE(name_of(dtype));
      CAPTURE(format == channels_last);
      Net net = initial_net(golden, dtype);
      net.to(format);
      const Tensor inputs = golden.tensor("run.inputs").to(dtype).to(test_device()).to(format);
      const Tensor targets = golden.tensor("run.targets").to(dtype).to(test_device()).to(format);
      const auto losses = train(net, inputs, targets);
      const auto expected = golden.tensor(text("run.", name_of(dtype), ".losses")).to_vector<double>();
      REQUIRE(losses.size() == expected.size());
      for (size_t i = 0; i < losses.size(); ++i) {
        CAPTURE(i + 1);
        CHECK(std::abs(losses[i] - expected[i]) <= allowed(dtype, i + 1) * expected[i]);
      }
      if (dtype == float64) {
        net.eval();
        CHECK(close(net(inputs).detach(), golden.tensor("run.float64.output"), 1e-7));
      }
    }
  }
}
