// The checkerboard network's training step, timed, or with --products its matrix products alone. Prints one
// JSON object; torch_workloads.py trains the same network on the same shapes in PyTorch.
#include "examples/checkerboard.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>

#include "examples/common/result.h"
#include "mezzo.h"

using namespace mezzo;
using nlohmann::ordered_json;

namespace {

struct Options {
  int size = 256, channels = 256, steps = 5, warmup = 2, threads = 2;
  uint64_t seed = 0;
  bool products = false;
  std::string amp = "off";

  /// What the step runs in.
  DType dtype() const { return amp == "bf16" ? bfloat16 : amp == "fp16" ? float16 : float32; }
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Step {
  double total, forward, backward, optimizer;
};

/// The loop of examples/checkerboard.cpp, its parts timed apart. Parts are those of the median step.
ordered_json time_training(const Options& options) {
  const Tensor inputs = examples::grid(options.size, options.size).unsqueeze(0).contiguous(channels_last);
  const Tensor targets = examples::checker(options.size, options.size, 8).unsqueeze(0).unsqueeze(1);
  examples::Net net(options.channels);
  const nn::MSELoss loss_fn;
  optim::Adam adam(net.parameters(), {.lr = 0.001});
  amp::GradScaler scaler({.enabled = options.dtype() == float16});

  examples::TrainingRecord record;
  std::vector<Step> steps;
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    record.begin_step();
    const double start = now_ms();
    adam.zero_grad();
    Tensor loss;
    {
      const amp::Autocast autocast("cpu", options.dtype(), options.dtype() != float32);
      loss = loss_fn(net(inputs), targets);
    }
    const double computed = now_ms();
    scaler.scale(loss).backward();
    const double differentiated = now_ms();
    scaler.step(adam);
    scaler.update();
    const double end = now_ms();
    record.end_step(loss.item<double>());
    if (i < options.warmup) continue;
    steps.push_back({end - start, computed - start, differentiated - computed, end - differentiated});
  }
  std::ranges::sort(steps, {}, &Step::total);
  const Step& median = steps[steps.size() / 2];
  return record.result({.amp = options.amp}, options.dtype(),
                       {{"workload", "checkerboard"},
                        {"framework", "mezzo"},
                        {"threads", options.threads},
                        {"size", options.size},
                        {"median_step_ms", median.total},
                        {"min_step_ms", steps.front().total},
                        {"forward_ms", median.forward},
                        {"backward_ms", median.backward},
                        {"optimizer_ms", median.optimizer},
                        {"first_loss", record.losses().front()}});
}

/// Times of the products that the step makes, by layer and direction: forward, in the weight, and in the
/// input, which the first layer does not need. The total is the median over rounds of all of them.
ordered_json time_products(const Options& options) {
  const int64_t size = options.size, channels = options.channels, pixels = size * size;
  struct Product {
    std::string what;
    double gflop;
    std::function<void()> run;
    std::vector<double> ms{};
  };
  std::vector<Product> products;
  for (const auto& [in, out] : {std::array{int64_t{2}, channels},
                                {channels, channels},
                                {channels, channels},
                                {channels, int64_t{1}}}) {
    const auto image = [&](int64_t depth) {
      return randn({1, depth, size, size}, {.format = channels_last}).to(options.dtype());
    };
    const Tensor x = image(in), g = image(out);
    const Tensor weight = randn({out, in, 1, 1}).to(options.dtype()), bias = randn({out}).to(options.dtype());
    const auto add = [&, in = in, out = out](const char* direction, std::function<void()> run) {
      products.push_back({text(direction, ' ', in, " to ", out),
                          2e-9 * static_cast<double>(in * out * pixels), std::move(run)});
    };
    add("forward", [=] { conv2d(x, weight, bias); });
    add("weight", [=] { conv2d_weight_grad(g, x, weight.shape(), {}); });
    if (in > 2) add("input", [=] { conv2d_input_grad(g, weight, x.shape(), {}); });
  }

  std::vector<double> totals;
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    double total = 0;
    for (Product& product : products) {
      const double start = now_ms();
      product.run();
      const double ms = now_ms() - start;
      if (i >= options.warmup) product.ms.push_back(ms);
      total += ms;
    }
    if (i >= options.warmup) totals.push_back(total);
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  ordered_json list;
  double gflop = 0;
  for (const Product& product : products) {
    gflop += product.gflop;
    const double ms = median(product.ms);
    list.push_back({{"product", product.what}, {"ms", ms}, {"gflops", product.gflop / ms * 1e3}});
  }
  return {{"workload", "checkerboard products"},
          {"framework", "mezzo"},
          {"threads", options.threads},
          {"size", options.size},
          {"amp", options.amp},
          {"median_ms", median(totals)},
          {"min_ms", *std::ranges::min_element(totals)},
          {"gflop", gflop},
          {"products", list}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times a training step of the checkerboard network");
  app.option_defaults()->always_capture_default();
  Options options;
  app.add_option("--size", options.size, "Pixels of the board's side")->check(CLI::Range(2, 16384));
  app.add_option("--channels", options.channels, "Channels of the hidden layers")
      ->check(CLI::Range(3, 65536));
  app.add_option("--steps", options.steps, "Steps that are timed")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Threads of the kernels")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Seed of the initial weights");
  app.add_option("--amp", options.amp, "Mixed precision")->check(CLI::IsMember({"off", "bf16", "fp16"}));
  app.add_flag("--products", options.products, "Time the matrix products of a step and nothing else");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(options.threads);
  manual_seed(options.seed);
  std::cout << (options.products ? time_products(options) : time_training(options)) << std::endl;
}
