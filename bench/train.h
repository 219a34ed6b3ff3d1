// The clock of a training loop and of its parts, the same for mezzo's networks and libtorch's; and that of
// work which a device does while the program goes on.
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

/// Times of steps on a device: of runs of them, each from and to a moment at which the device is done.
class RunTimes {
 public:
  /// `finish` waits for what the device has been asked for.
  template <class Step, class Finish>
  RunTimes(int64_t steps, Step&& step, Finish&& finish) {
    const int64_t runs = std::min<int64_t>(steps, kRuns);
    finish();
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t count = steps * (run + 1) / runs - steps * run / runs;
      const auto start = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < count; ++i) step();
      finish();
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
      seconds_ += ms.count() / 1e3;
      step_ms_.push_back(ms.count() / static_cast<double>(count));
    }
    std::ranges::sort(step_ms_);
  }

  /// Milliseconds of a step in the median run and in the fastest; seconds of all.
  nlohmann::ordered_json json() const {
    return {{"median_step_ms", median_ms()}, {"min_step_ms", step_ms_.front()}, {"seconds", seconds_}};
  }
  double median_ms() const { return step_ms_[step_ms_.size() / 2]; }

 private:
  static constexpr int64_t kRuns = 10;
  std::vector<double> step_ms_;
  double seconds_ = 0;
};

}  // namespace bench
