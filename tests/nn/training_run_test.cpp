// The checkerboard's network, trained for 50 steps from PyTorch's initial weights.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/nn/checkerboard_run.h"

using namespace mezzo;

namespace {

/// Steps are counted from 1. Rounding grows with each step of float32, until the biases before a BatchNorm,
/// whose gradient is nothing but rounding and which Adam moves as far as any other, show in the third digit.
double allowed(DType dtype, size_t step) {
  if (dtype == float64) return 1e-8;
  return step <= 5 ? 1e-5 : step <= 20 ? 1e-4 : 1e-2;
}

}  // namespace

TEST_CASE("golden: state dict of the checkerboard's network") {
  const Golden golden("checkerboard");
  const StateDict state = examples::Net(16).state_dict();
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
      examples::Net net = initial_net(golden, dtype);
      net.to(format);
      const Tensor inputs = golden.tensor("run.inputs").to(dtype).to(test_device()).to(format);
      const Tensor targets = golden.tensor("run.targets").to(dtype).to(test_device()).to(format);
      const Values losses = train(net, [&] { return nn::MSELoss()(net(inputs), targets); });
      check_losses(losses, golden, name_of(dtype), [&](size_t step) { return allowed(dtype, step); });
      if (dtype == float64) {
        net.eval();
        CHECK(close(net(inputs).detach(), golden.tensor("run.float64.output"), 1e-7));
      }
    }
  }
}

TEST_CASE("fusion: 50 steps of training as without it") {
  const Golden golden("checkerboard");
  const Tensor inputs = golden.tensor("run.inputs").to(float32).to(test_device()).to(channels_last);
  const Tensor targets = golden.tensor("run.targets").to(float32).to(test_device());
  const auto run = [&](bool fused, Tensors& first_gradients) {
    nn::fusion(fused);
    examples::Net net = initial_net(golden, float32);
    net.to(channels_last);
    // Their gradients are nothing but rounding, of which Adam makes steps as long as any other: allowed()
    // above.
    for (const auto& [name, parameter] : net.named_parameters()) {
      if (name == "net.0.bias" || name == "net.3.bias" || name == "net.6.bias")
        Tensor(parameter).requires_grad_(false);
    }
    const Values losses = train(net, [&] {
      if (first_gradients.empty()) {
        nn::MSELoss()(net(inputs), targets).backward();
        for (const auto& [name, parameter] : net.named_parameters())
          first_gradients.push_back(parameter.requires_grad() ? parameter.grad() : Tensor());
        net.zero_grad();
      }
      return nn::MSELoss()(net(inputs), targets);
    });
    nn::fusion(true);
    return losses;
  };
  Tensors fused_gradients, plain_gradients;
  const Values fused = run(true, fused_gradients), plain = run(false, plain_gradients);
  double largest = 0, difference = 0;
  for (size_t i = 0; i < plain_gradients.size(); ++i) {
    if (!plain_gradients[i].defined()) continue;
    largest = std::max(largest, plain_gradients[i].abs().max().item<double>());
    difference = std::max(difference, (fused_gradients[i] - plain_gradients[i]).abs().max().item<double>());
  }
  CHECK(difference <= 1e-5 * largest);
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i + 1);
    CHECK(std::abs(fused[i] - plain[i]) <= 1e-4 * plain[i]);
  }
}
