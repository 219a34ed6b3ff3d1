// The training step of torch_workloads.py's MLP by libtorch from C++: for a network as small as this, Python
// costs more than the arithmetic. Prints one JSON object.
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "bench/train.h"

int main(int argc, char** argv) {
  CLI::App app("Times the training step of a small network in libtorch");
  app.option_defaults()->always_capture_default();
  int steps = 2000, warmup = 200, threads = 2;
  std::string amp = "off";
  app.add_option("--steps", steps, "Steps that are timed")->check(CLI::PositiveNumber);
  app.add_option("--warmup", warmup, "Steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--threads", threads, "Threads of the kernels")->check(CLI::PositiveNumber);
  app.add_option("--amp", amp, "Mixed precision")->check(CLI::IsMember({"off", "bf16"}));
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(threads);
  torch::manual_seed(0);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);

  torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::ReLU(), torch::nn::Linear(64, 10));
  const at::Tensor x = torch::randn({32, 64}), y = torch::randint(0, 10, {32}, torch::kLong);
  torch::optim::Adam adam(net->parameters(), 0.001);
  bench::StepTimes times(warmup);
  for (int step = 0; step < warmup + steps; ++step) {
    times.begin();
    adam.zero_grad();
    at::autocast::set_autocast_enabled(at::kCPU, amp == "bf16");
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    times.lap();
    loss.backward();
    times.lap();
    adam.step();
    times.lap();
  }
  nlohmann::ordered_json result = {
      {"workload", "mlp"}, {"framework", "libtorch"}, {"threads", threads}, {"amp", amp}};
  result.update(times.json());
  std::cout << result << std::endl;
}
