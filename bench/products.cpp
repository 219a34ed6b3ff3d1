// The matrix products of the checkerboard network's training step alone: what is left of its time is not the
// library's that multiplies. Prints one JSON object.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "examples/common/options.h"
#include "mezzo.h"

using namespace mezzo;
using nlohmann::ordered_json;

namespace {

struct Options : examples::TrainingOptions {
  int size = 256, channels = 256, warmup = 2;
};

struct Product {
  std::string what;
  double gflop;
  std::function<void()> run;
  std::vector<double> ms{};
};

/// By layer and direction: forward, in the weight, and in the input, which the first layer does not need.
std::vector<Product> products_of_step(const Options& options) {
  const int64_t size = options.size, channels = options.channels, pixels = size * size;
  const DType dtype = examples::amp_dtype(options).value_or(float32);
  std::vector<Product> products;
  for (const auto& [in, out] : {std::array{int64_t{2}, channels},
                                {channels, channels},
                                {channels, channels},
                                {channels, int64_t{1}}}) {
    const auto image = [&](int64_t depth) {
      return randn({1, depth, size, size}, {.format = channels_last}).to(dtype);
    };
    const Tensor x = image(in), g = image(out);
    const Tensor weight = randn({out, in, 1, 1}).to(dtype), bias = randn({out}).to(dtype);
    const auto add = [&, in = in, out = out](const char* direction, std::function<void()> run) {
      products.push_back({text(direction, ' ', in, " to ", out),
                          2e-9 * static_cast<double>(in * out * pixels), std::move(run)});
    };
    add("forward", [=] { conv2d(x, weight, bias); });
    add("weight", [=] { conv2d_weight_grad(g, x, weight.shape(), {}); });
    if (in > 2) add("input", [=] { conv2d_input_grad(g, weight, x.shape(), {}, channels_last); });
  }
  return products;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The total is the median over rounds of all products.
ordered_json time_products(const Options& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<Product> products = products_of_step(options);
  std::vector<double> totals;
  for (int64_t i = 0; i < options.warmup + options.steps; ++i) {
    double total = 0;
    for (Product& product : products) {
      const Clock::time_point start = Clock::now();
      product.run();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      if (i >= options.warmup) product.ms.push_back(ms);
      total += ms;
    }
    if (i >= options.warmup) totals.push_back(total);
  }
  ordered_json list;
  double gflop = 0;
  for (const Product& product : products) {
    gflop += product.gflop;
    const double ms = median(product.ms);
    list.push_back({{"product", product.what}, {"ms", ms}, {"gflops", product.gflop / ms * 1e3}});
  }
  return {{"workload", "checkerboard products"},
          {"framework", "mezzo"},
          {"threads", num_threads()},
          {"size", options.size},
          {"amp", options.amp},
          {"median_step_ms", median(totals)},
          {"min_step_ms", *std::ranges::min_element(totals)},
          {"gflop", gflop},
          {"products", list}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the matrix products of the checkerboard network's training step");
  app.option_defaults()->always_capture_default();
  Options options;
  options.steps = 5;
  app.add_option("--size", options.size, "Pixels of the board's side")->check(CLI::Range(2, 16384));
  app.add_option("--channels", options.channels, "Channels of the hidden layers")
      ->check(CLI::Range(3, 65536));
  app.add_option("--steps", options.steps, "Steps that are timed")->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Threads of the kernels")->check(CLI::PositiveNumber);
  app.add_option("--amp", options.amp, "Mixed precision")->check(CLI::IsMember({"off", "bf16", "fp16"}));
  return examples::run(app, argc, argv, [&options] {
    if (options.threads) set_num_threads(*options.threads);
    std::cout << time_products(options) << std::endl;
  });
}
