// The checkerboard's network, trained for 50 steps from PyTorch's initial weights.
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
