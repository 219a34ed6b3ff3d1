// Training steps, timed: bench/workloads resnet18 --amp bf16 --threads 2. Prints one JSON object;
// torch_workloads.py trains the same networks on the same shapes in PyTorch, and --load takes its weights and
// data.
#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include "bench/nets.h"
#include "bench/train.h"
#include "examples/checkerboard.h"
#include "examples/common/options.h"
#include "examples/common/result.h"
#include "mezzo.h"

using namespace mezzo;
using nlohmann::ordered_json;

namespace {

struct Options : examples::TrainingOptions {
  std::string workload, load;
  int size = 256, channels = 256, warmup = 2;
};

struct Workload {
  std::shared_ptr<nn::Module> net;
  Tensor input, target;
  std::function<Tensor(const Tensor& output, const Tensor& target)> loss;
};

Tensor classes(const Shape& shape, int64_t count) { return (rand(shape) * count).to(int64); }

Tensor class_loss(const Tensor& output, const Tensor& target) { return cross_entropy(output, target); }

template <class Net>
std::shared_ptr<nn::Module> shared(Net net) {
  return std::make_shared<Net>(std::move(net));
}

Workload make_workload(const Options& options) {
  const std::string& name = options.workload;
  if (name == "checkerboard") {
    const int side = options.size;
    return {shared(examples::Net(options.channels).net), examples::grid(side, side).unsqueeze(0),
            examples::checker(side, side, 8).unsqueeze(0).unsqueeze(1),
            [](const Tensor& output, const Tensor& target) { return mse_loss(output, target); }};
  }
  if (name == "resnet18")
    return {shared(nets::ResNet18()), randn({32, 3, 32, 32}), classes({32}, 10), class_loss};
  if (name == "lenet") return {shared(nets::LeNet()), randn({64, 1, 28, 28}), classes({64}, 10), class_loss};
  if (name == "gpt") {
    const Tensor text = classes({8, 129}, 256);
    return {shared(nets::Gpt()), text.slice(1, 0, 128).contiguous(), text.slice(1, 1, 129).contiguous(),
            [](const Tensor& output, const Tensor& target) {
              return cross_entropy(output.reshape({-1, nets::Gpt::vocabulary}), target.reshape({-1}));
            }};
  }
  return {shared(nets::mlp()), randn({32, 64}), classes({32}, 10), class_loss};
}

/// Weights, input and target of the other framework.
void load(const std::string& path, Workload& workload) {
  const StateDict state = load_safetensors(path).tensors;
  workload.net->load_state_dict(state.without_prefix("net."));
  workload.input = state.at("input");
  workload.target = state.at("target");
}

ordered_json time_training(const Options& options) {
  Workload workload = make_workload(options);
  if (!options.load.empty()) load(options.load, workload);
  nn::Module& net = *workload.net;
  const Tensor input = workload.input.dim() == 4 ? workload.input.contiguous(channels_last) : workload.input;
  int64_t count = 0;
  for (const Tensor& parameter : net.parameters()) count += parameter.numel();

  optim::Adam adam(net.parameters(), {.lr = 0.001});
  const std::optional<DType> half = examples::amp_dtype(options);
  amp::GradScaler scaler({.enabled = half == float16});
  examples::TrainingRecord record;
  bench::StepTimes times(options.warmup);
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    record.begin_step();
    times.begin();
    adam.zero_grad();
    Tensor loss;
    {
      const amp::Autocast autocast("cpu", half, half.has_value());
      loss = workload.loss(net(input), workload.target);
    }
    times.lap();
    scaler.scale(loss).backward();
    times.lap();
    scaler.step(adam);
    scaler.update();
    times.lap();
    record.end_step(loss.item<double>());
  }

  ordered_json more = {{"workload", options.workload},
                       {"framework", "mezzo"},
                       {"threads", num_threads()},
                       {"parameters", count},
                       {"first_loss", record.losses().front()}};
  more.update(times.json());
  return record.result(options, half.value_or(float32), more);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the training step of a network");
  app.option_defaults()->always_capture_default();
  Options options;
  options.steps = 5;
  app.add_option("workload", options.workload, "The network")
      ->check(CLI::IsMember({"checkerboard", "resnet18", "lenet", "mlp", "gpt"}))
      ->required();
  app.add_option("--steps", options.steps, "Steps that are timed")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Threads of the kernels")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Seed of weights and data");
  app.add_option("--amp", options.amp, "Mixed precision")->check(CLI::IsMember({"off", "bf16", "fp16"}));
  app.add_option("--size", options.size, "Pixels of the checkerboard's side")->check(CLI::Range(2, 16384));
  app.add_option("--channels", options.channels, "Channels of its hidden layers")
      ->check(CLI::Range(1, 65536));
  app.add_option("--load", options.load, "Weights and data to begin with, of torch_workloads.py --save")
      ->type_name("FILE.safetensors");
  return examples::run(app, argc, argv, [&options] {
    if (options.threads) set_num_threads(*options.threads);
    manual_seed(options.seed);
    std::cout << time_training(options) << std::endl;
  });
}
