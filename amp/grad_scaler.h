// Loss scaling: float16 gradients below 2^-25 are zero, so the loss is multiplied by a large number before
// backward, and the gradients are divided by it before the step.
//
//   amp::GradScaler scaler(device);
//   ...
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);  // only if something looks at the gradients: clipping
//   scaler.step(optimizer);      // unscales, and skips the step if a gradient is infinite or NaN
//   scaler.update();             // the scale for the next iteration
//
// As PyTorch's, whose names and keys these are. Other on purpose:
// - step() returns a StepResult. An optimizer without gradients is told there; in PyTorch it is an error.
//   Where nothing at all was checked, update() throws, as PyTorch's does.
// - an overflow is an or over devices and optimizers; PyTorch adds flags up and some of its kernels test == 1
// - back-off stops at 2^-126, and no smaller scale is accepted: PyTorch's reaches 0, from which it never
//   grows, and infinite reciprocals before. Factors that do not grow or back off and an interval below 1 are
//   refused too.
// - a gradient that is finite but not after unscaling (a scale below 1) counts as overflow
// - memory is unscaled once, also if it is the gradient of two parameters or its parameter has two optimizers
// - float16 gradients are refused whatever the optimizer; PyTorch's fused optimizers take them
// - the scaler follows the device of the first loss, and never turns itself off because a device is missing
// - what is known of an optimizer goes with it, not with its address
//
// The rule for the scale is `next` in tensor/scale_rule.h.
#pragma once

#include <optional>

#include "amp/unscaled.h"
#include "autograd/node.h"
#include "optim/optimizer.h"

namespace mezzo::amp {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< of the scale, after growth_interval updates without overflow
  double backoff_factor = 0.5;  ///< of the scale, after an overflow
  int64_t growth_interval = 2000;
  bool enabled = true;  ///< false: everything passes through, and step() is the optimizer's
};

/// What came of a step.
class StepResult {
 public:
  StepResult(bool had_gradients, const Tensor& found_inf)
      : had_gradients_(had_gradients), found_inf_(found_inf) {}
  /// Whether any parameter had a gradient. If none had there was nothing to step.
  bool had_gradients() const { return had_gradients_; }
  /// Whether the parameters stayed as they were, for want of gradients or because one was not finite: a
  /// schedule should not go on then. Reads the flag from its device, so the host waits for it.
  bool skipped() const { return !had_gradients_ || optim::LossScale{found_inf_, {}}.skips_step(); }

 private:
  bool had_gradients_;
  Tensor found_inf_;  ///< undefined: no check was made
};

class GradScaler {
 public:
  /// Scale, tracker and flags will lie on the device of the first loss, or on the one that is given. Throws
  /// Error for options outside their range and for a device that is not there.
  explicit GradScaler(const GradScalerOptions& options = {});
  explicit GradScaler(const Device& device, const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  /// x times the scale. The scale is a 0-d float32 tensor: a 0-d float16 loss becomes float32, a float16
  /// vector stays float16. Throws Error if x is not floating.
  Tensor scale(const Tensor& x);
  Tensors scale(Inputs outputs);

  /// Divides the gradients of the optimizer's parameters by the scale, in place, and records whether one is
  /// not finite. Once for each update, and before step. Throws Error for a float16 gradient, and then changes
  /// nothing.
  void unscale_(optim::Optimizer& optimizer);
  /// Unscales, if unscale_ has not, and steps if all gradients are finite. Once for each update. An
  /// UnscalingOptimizer gets one pass that reads all gradients, then one that unscales and updates.
  StepResult step(optim::Optimizer& optimizer);
  /// The scale for the next iteration, from what has been recorded of all optimizers since the last. Throws
  /// Error if nothing has.
  void update();
  /// A new scale instead, whatever has been recorded; growth counts on.
  void update(double new_scale);
  void update(const Tensor& new_scale);

  /// 1 if disabled. Reads the device.
  double get_scale() const;
  double get_growth_factor() const { return options_.growth_factor; }
  double get_backoff_factor() const { return options_.backoff_factor; }
  int64_t get_growth_interval() const { return options_.growth_interval; }
  /// In force from the next update on. Throw Error for values outside their range.
  void set_growth_factor(double factor);
  void set_backoff_factor(double factor);
  void set_growth_interval(int64_t interval);
  bool is_enabled() const { return options_.enabled; }

  /// scale, growth_factor, backoff_factor, growth_interval, _growth_tracker, to be taken after update();
  /// empty if disabled.
  StateDict state_dict() const;
  /// Does nothing if disabled. Throws Error for an empty state, missing or unexpected keys and values outside
  /// their range, and then changes nothing.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : uint8_t { ready, unscaled, stepped };
  /// What has happened to one optimizer since the last update.
  struct Record {
    uint64_t optimizer;
    Stage stage = Stage::ready;
    Tensors found_inf{};  ///< one for each device that has gradients of it
  };
  struct Batch;
  struct Gradients;

  void check_scaled(std::string_view op) const;
  void forget();
  Record& record_of(const optim::Optimizer& optimizer);
  Gradients gradients_of(std::string_view op, const optim::Optimizer& optimizer) const;
  void check_gradients(Record& record, const Gradients& gradients, bool unscale);
  template <class T>
  void set(T GradScalerOptions::*option, T value);

  GradScalerOptions options_;  ///< init_scale: until the first scale()
  int64_t init_tracker_ = 0;
  std::optional<Device> device_;
  Tensor scale_, tracker_;  ///< 0-d float32 and int32, made by the first scale()
  std::vector<Record> records_;
  UnscaledGradients unscaled_;
};

}  // namespace mezzo::amp
