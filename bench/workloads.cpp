// Training steps, timed: bench/workloads resnet18 --amp bf16 --threads 2. Prints one JSON object;
// torch_workloads.py trains the same networks on the same shapes in PyTorch, and --load takes its weights and
// data. On a GPU: bench/workloads checkerboard --device cuda --graph
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
  bool tf32 = false, graph = false;
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

/// The training of a workload on its device.
class Training {
 public:
  explicit Training(const Options& options)
      : device_(options.device), half_(examples::amp_dtype(options)), workload_(make_workload(options)) {
    if (!options.load.empty()) load(options.load, workload_);
    Tensor& input = workload_.input;
    if (input.dim() == 4) input = input.contiguous(channels_last);
    input = input.to(device_);
    workload_.target = workload_.target.to(device_);
    workload_.net->to(device_);
    adam_.emplace(workload_.net->parameters(), optim::AdamOptions{.lr = 0.001});
    scaler_.emplace(device_, amp::GradScalerOptions{.enabled = half_ == float16});
  }

  void forward() {
    adam_->zero_grad();
    const amp::Autocast autocast(device_, half_, half_.has_value());
    loss_ = workload_.loss((*workload_.net)(workload_.input), workload_.target);
  }
  void backward() { scaler_->scale(loss_).backward(); }
  void optimize() {
    scaler_->step(*adam_);
    scaler_->update();
  }
  void step() {
    forward();
    backward();
    optimize();
  }
  double loss() const { return loss_.item<double>(); }
  DType dtype() const { return half_.value_or(float32); }
  /// What a result says of it besides times.
  ordered_json json(const Options& options, double first_loss) const {
    int64_t count = 0;
    for (const Tensor& parameter : workload_.net->parameters()) count += parameter.numel();
    return {{"workload", options.workload},
            {"framework", "mezzo"},
            {"threads", num_threads()},
            {"parameters", count},
            {"first_loss", first_loss}};
  }

 private:
  Device device_;
  std::optional<DType> half_;
  Workload workload_;
  std::optional<optim::Adam> adam_;
  std::optional<amp::GradScaler> scaler_;
  Tensor loss_;
};

ordered_json time_steps(const Options& options) {
  Training training(options);
  examples::TrainingRecord record;
  bench::StepTimes times(options.warmup);
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    record.begin_step();
    times.begin();
    training.forward();
    times.lap();
    training.backward();
    times.lap();
    training.optimize();
    times.lap();
    record.end_step(training.loss());
  }
  ordered_json more = training.json(options, record.losses().front());
  more.update(times.json());
  return record.result(options, training.dtype(), more);
}

/// On a GPU, where a step's calls return before its work is done: the loss is read once in a run of steps.
ordered_json time_runs(const Options& options) {
  const Device device = options.device;
  Training training(options);
  synchronize(device);
  const size_t before = memory_stats(device).live;
  reset_peak_memory(device);
  const std::function<void()> step = [&training] { training.step(); };
  step();
  const double first_loss = training.loss();
  std::optional<cuda::Graph> graph;
  if (options.graph) graph.emplace(step, device, options.warmup);
  for (int i = 0; i < options.warmup && !graph; ++i) step();
  const bench::RunTimes times(
      options.steps, [&] { graph ? graph->replay() : step(); }, [&] { synchronize(device); });

  const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  ordered_json result = training.json(options, first_loss);
  result.update({{"device", to_string(device)},
                 {"amp", options.amp},
                 {"tf32", options.tf32},
                 {"graph", options.graph},
                 {"steps", options.steps},
                 {"training_mib", mib(memory_stats(device).peak - before)},
                 {"live_peak_mib", mib(memory_stats(device).peak)}});
  result.update(times.json());
  result["loss"] = training.loss();
  return result;
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
  app.add_option("--device", options.device, "Where it trains")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--tf32", options.tf32, "On a GPU: products of float32 may use TensorFloat-32");
  app.add_flag("--graph", options.graph, "On a GPU: the step is a CUDA graph");
  app.add_option("--amp", options.amp, "Mixed precision")->check(CLI::IsMember({"off", "bf16", "fp16"}));
  app.add_option("--size", options.size, "Pixels of the checkerboard's side")->check(CLI::Range(2, 16384));
  app.add_option("--channels", options.channels, "Channels of its hidden layers")
      ->check(CLI::Range(1, 65536));
  app.add_option("--load", options.load, "Weights and data to begin with, of torch_workloads.py --save")
      ->type_name("FILE.safetensors");
  return examples::run(app, argc, argv, [&options] {
    if (options.threads) set_num_threads(*options.threads);
    manual_seed(options.seed);
    cuda::allow_tf32_matmul(options.tf32);
    cuda::allow_tf32_convolution(options.tf32);
    std::cout << (options.device == "cuda" ? time_runs(options) : time_steps(options)) << std::endl;
  });
}
