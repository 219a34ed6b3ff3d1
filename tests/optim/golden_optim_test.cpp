// Optimizers against PyTorch's numbers.
#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "autograd/grad_mode.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tensor/index.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(std::vector<Tensor> parameters,
                                                 const nlohmann::json& given) {
  const auto number = [&](const char* name, double otherwise) { return given.value(name, otherwise); };
  const auto flag = [&](const char* name) { return given.value(name, false); };
  if (given.at("class") == "SGD") {
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SgdOptions{.lr = given.at("lr"),
                                                          .momentum = number("momentum", 0),
                                                          .dampening = number("dampening", 0),
                                                          .weight_decay = number("weight_decay", 0),
                                                          .nesterov = flag("nesterov"),
                                                          .maximize = flag("maximize")});
  }
  REQUIRE(given.at("class") == "Adam");
  const auto betas = given.value("betas", std::vector<double>{0.9, 0.999});
  return std::make_unique<optim::Adam>(std::move(parameters),
                                       optim::AdamOptions{.lr = given.at("lr"),
                                                          .beta1 = betas[0],
                                                          .beta2 = betas[1],
                                                          .eps = number("eps", 1e-8),
                                                          .weight_decay = number("weight_decay", 0),
                                                          .amsgrad = flag("amsgrad"),
                                                          .maximize = flag("maximize")});
}

void check_run(const Golden& golden, const std::string& name, const nlohmann::json& options, DType dtype) {
  const std::string kind = text(name_of(dtype), '.'), prefix = text(name, '.', kind);
  CAPTURE(prefix);
  std::vector<Tensor> parameters, grads;
  for (const char* i : {"0", "1"}) {
    parameters.push_back(golden.tensor(kind + "param" + i).to(test_device()).requires_grad_());
    grads.push_back(golden.tensor(kind + "grads" + i).to(test_device()));
  }
  const auto optimizer = make_optimizer(parameters, options);
  for (int step = 1; step <= 100; ++step) {
    CAPTURE(step);
    for (size_t i = 0; i < 2; ++i) parameters[i].set_grad(grads[i][step - 1]);
    optimizer->step();
    if (step != 1 && step != 10 && step != 100) continue;
    for (size_t i = 0; i < 2; ++i) {
      CAPTURE(i);
      const Tensor expected = golden.tensor(text(prefix, "step", step, ".param", i));
      CHECK(close(parameters[i].detach(), expected, golden_tolerance(dtype)));
    }
  }
}

}  // namespace

TEST_CASE("golden: optimizers after 1, 10 and 100 steps") {
  const Golden golden("optim");
  const auto cases = nlohmann::json::parse(golden.metadata("cases"));
  CHECK(cases.size() == 12);
  for (const auto& [name, options] : cases.items()) {
    for (const DType dtype : {float32, float64}) check_run(golden, name, options, dtype);
  }
}
