// The real cuDNN, without a device: each convolution of tests, examples and benchmarks has a plan on an H200,
// which h200.json describes by NVIDIA's specifications.
#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <set>

#include "cuda/conv.h"
#include "tensor/error.h"
#include "tests/cuda/conv_cases.h"
#include "tests/golden.h"

namespace mezzo {
namespace {

using cuda::ConvPass;

const cuda::Descriptor& h200() {
  static const cuda::Descriptor device = [] {
    std::ifstream file(test_path("cuda/h200.json"));
    REQUIRE(file.is_open());
    return cuda::describe_device(std::string(std::istreambuf_iterator<char>(file), {}));
  }();
  return device;
}

std::string name_of(ConvPass pass) {
  const char* const names[] = {"forward", "input gradient", "weight gradient"};
  return names[static_cast<int>(pass)];
}

cuda::ConvProblem problem_of(const ConvCase& c, ConvPass pass, DType dtype, bool channels_last,
                             bool with_bias, bool tf32) {
  return {pass, dtype, channels_last, with_bias, tf32, c.out(), c.input, c.weight, c.geometry};
}

/// A row of the table that the test prints: what the plans of one kind are.
struct Row {
  size_t plans = 0, deterministic = 0, workspace = 0;
  std::set<int64_t> engines;

  void add(const cuda::DnnPlan& plan) {
    ++plans;
    deterministic += plan.is_deterministic();
    workspace = std::max(workspace, plan.workspace_size());
    engines.insert(plan.engine());
  }
  void print(const std::string& what) const {
    std::cout << std::left << std::setw(58) << what << std::right << std::setw(4) << plans << std::setw(6)
              << deterministic << std::setw(9) << workspace / 1000000 << "   ";
    for (const int64_t engine : engines) std::cout << ' ' << engine;
    std::cout << '\n';
  }
};

}  // namespace

TEST_CASE("cuDNN has a plan for every convolution, in every dtype and layout") {
  std::vector<ConvCase> cases = small_conv_cases();
  for (const ConvCase& c : large_conv_cases()) cases.push_back(c);
  const auto start = std::chrono::steady_clock::now();
  std::cout << std::left << std::setw(58) << "plans of"
            << "   n  same  most MB   engines\n"
            << std::setw(58) << ""
            << "      bits  scratch\n";
  for (const DType dtype : {float64, float32, float16, bfloat16})
    for (const bool tf32 : {true, false}) {
      if (tf32 && dtype != float32) continue;
      for (const bool channels_last : {false, true})
        for (const ConvPass pass : {ConvPass::forward, ConvPass::input_grad, ConvPass::weight_grad})
          for (const bool with_bias : {false, true}) {
            if (with_bias && pass != ConvPass::forward) continue;
            Row row;
            for (const ConvCase& c : cases) {
              CAPTURE(name_of(dtype));
              CAPTURE(tf32);
              CAPTURE(channels_last);
              CAPTURE(name_of(pass));
              CAPTURE(with_bias);
              CAPTURE(c.what);
              const auto plan =
                  find_conv_plan(problem_of(c, pass, dtype, channels_last, with_bias, tf32), h200());
              CHECK(plan.has_value());
              if (plan) row.add(*plan);
            }
            row.print(text(name_of(dtype), tf32 ? " as TF32, " : ", ",
                           channels_last ? "channels-last, " : "row-major, ", name_of(pass),
                           with_bias ? " with bias" : ""));
          }
    }
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s\n";
}

TEST_CASE("a plan asked for again is the same engine") {
  const ConvCase c = large_conv_cases()[1];
  const auto engine = [&] {
    return find_conv_plan(problem_of(c, ConvPass::weight_grad, bfloat16, true, false, true), h200())
        ->engine();
  };
  CHECK(engine() == engine());
}

TEST_CASE("what cuDNN does not have has no plan, what is wrong is an error") {
  const ConvCase images{"more than it counts", {int64_t{1} << 33, 1, 1, 1}, {1, 1, 1, 1}, {}};
  CHECK_FALSE(
      find_conv_plan(problem_of(images, ConvPass::forward, float32, false, false, true), h200()).has_value());
  const ConvCase c{"", {1, 1, 4, 4}, {1, 1, 3, 3}, {}};
  cuda::ConvProblem problem = problem_of(c, ConvPass::forward, float32, false, false, true);
  problem.out = {1, 1, 3, 3};
  CHECK_THROWS_AS(find_conv_plan(problem, h200()), Error);
}

}  // namespace mezzo
