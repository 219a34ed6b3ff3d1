// What a training run measured, and the one form in which every example reports it.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "examples/common/options.h"
#include "tensor/dtype.h"

namespace mezzo::examples {

/// Losses, times and memory of a training loop. Make it when the model and the data are there, right before
/// the loop: what memory grows by from then on is training's.
class TrainingRecord {
 public:
  TrainingRecord();

  /// Starts the clock of a step.
  void begin_step();
  /// Stops it. That `loss` has been read from the device means that the device has done its work.
  void end_step(double loss);

  const std::vector<double>& losses() const { return losses_; }
  /// From the beginning of the first step to the end of the last, logging and all.
  double seconds() const;

  /// The result: device and amp of the options, dtype, memory in MiB, times, then `more`, which the example
  /// measured, then loss and seconds. peak_mib is the most memory that the process held, training_mib what
  /// the loop added to that, live_peak_mib the most that tensors held.
  nlohmann::ordered_json result(const TrainingOptions& options, DType dtype,
                                const nlohmann::ordered_json& more = {}) const;

 private:
  using Clock = std::chrono::steady_clock;

  double peak_mib_before_;
  Clock::time_point start_{}, step_start_{}, end_{};
  std::vector<double> step_ms_, losses_;
};

/// Median of the times of a loop's steps without the first two, which fill caches; of all if there are no
/// more.
double median_step_ms(std::vector<double> step_ms);

/// Prints a line for the picture and one for each value of the result, and with --json the result itself.
void report(const TrainingOptions& options, const nlohmann::ordered_json& result);

}  // namespace mezzo::examples
