// The clock of a training loop and of its parts, the same for mezzo's networks and libtorch's.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

namespace bench {

/// Times of steps after the first few. In each: begin(), then lap() after the loss, after backward and after
/// the optimizer's step.
class StepTimes {
 public:
  explicit StepTimes(int warmup) : warmup_(warmup) {}

  void begin() {
    last_ = Clock::now();
    parts_ = 0;
    step_ = {};
  }
  void lap() {
    const Clock::time_point now = Clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    step_.parts.at(parts_++) = ms;
    step_.total += ms;
    if (parts_ == step_.parts.size() && warmup_-- <= 0) steps_.push_back(step_);
  }

  /// Milliseconds of the median step and of its parts, and of the fastest step.
  nlohmann::ordered_json json() const {
    std::vector<Step> sorted = steps_;
    std::ranges::sort(sorted, {}, &Step::total);
    const Step& median = sorted.at(sorted.size() / 2);
    return {{"median_step_ms", median.total},
            {"min_step_ms", sorted.front().total},
            {"forward_ms", median.parts[0]},
            {"backward_ms", median.parts[1]},
            {"optimizer_ms", median.parts[2]}};
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Step {
    double total = 0;
    std::array<double, 3> parts{};
  };

  int warmup_;
  Clock::time_point last_{};
  size_t parts_ = 0;
  Step step_;
  std::vector<Step> steps_;
};

}  // namespace bench
