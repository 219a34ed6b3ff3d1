#include "amp/grad_scaler.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/ops/check.h"
#include "tensor/tensor_impl.h"

namespace mezzo::amp {

namespace {

/// The or of 0-d flags, on `device`.
Tensor any_of(const Tensors& flags, const Device& device) {
  Tensor any = flags.at(0).to(device);
  for (const Tensor& flag : std::span(flags).subspan(1)) any = maximum(any, flag.to(device));
  return any;
}

}  // namespace

/// Gradients on one device that hold the same scale.
struct GradScaler::Batch {
  Device device;
  Tensor scale;  ///< undefined: none, they have been unscaled
  std::vector<View> views{};
};

/// The gradients of one optimizer.
struct GradScaler::Gradients {
  std::vector<Batch> batches;
  Tensors scaled;     ///< those that hold a scale
  bool apart = true;  ///< none has been seen before, and no two elements of them all lie in one place
};

Tensor GradScaler::scale(const Tensor& x) {
  if (!options_.enabled) return x;
  ops::check_floating("GradScaler.scale", {{"output", x}});
  if (!scale_.defined()) {
    const Device device = device_.value_or(x.device());
    scale_ = full({}, options_.init_scale, {.dtype = float32, .device = device});
    tracker_ = full({}, init_tracker_, {.dtype = int32, .device = device});
  }
  return x * scale_.to(x.device());
}

Tensors GradScaler::scale(Inputs outputs) {
  Tensors scaled;
  for (const Tensor& x : outputs) scaled.push_back(scale(x));
  return scaled;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  check_scaled("GradScaler.unscale_");
  Record& record = record_of(optimizer);
  if (record.stage == Stage::unscaled) {
    fail("GradScaler.unscale_", "has already been called on this optimizer since the last update()");
  }
  if (record.stage == Stage::stepped) fail("GradScaler.unscale_", "is called after step()");
  check_gradients(record, gradients_of("GradScaler.unscale_", optimizer), true);
}

StepResult GradScaler::step(optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    const bool any =
        std::ranges::any_of(optimizer.parameters(), [](const Tensor& p) { return p.grad().defined(); });
    optimizer.step();
    return {any, {}};
  }
  check_scaled("GradScaler.step");
  Record& record = record_of(optimizer);
  if (record.stage == Stage::stepped) {
    fail("GradScaler.step", "has already been called on this optimizer since the last update()");
  }
  auto* unscaling = dynamic_cast<optim::UnscalingOptimizer*>(&optimizer);
  optim::LossScale loss_scale;
  Tensors unscaled_by_step;
  if (record.stage == Stage::ready) {
    const Gradients gradients = gradients_of("GradScaler.step", optimizer);
    const bool by_step = unscaling && gradients.apart;
    check_gradients(record, gradients, !by_step);
    if (by_step) loss_scale.scale = scale_, unscaled_by_step = gradients.scaled;
  }
  const bool had_gradients = !record.found_inf.empty();
  if (had_gradients) {
    loss_scale.found_inf = any_of(record.found_inf, scale_.device());
    if (unscaling)
      unscaling->step(loss_scale);
    else if (!loss_scale.skips_step())
      optimizer.step();
    for (const Tensor& gradient : unscaled_by_step) unscaled_.insert({gradient, loss_scale.found_inf});
  }
  record.stage = Stage::stepped;
  return {had_gradients, loss_scale.found_inf};
}

void GradScaler::update() {
  if (!options_.enabled) return;
  check_scaled("GradScaler.update");
  Tensors flags;
  for (const Record& record : records_) {
    flags.insert(flags.end(), record.found_inf.begin(), record.found_inf.end());
  }
  if (flags.empty()) {
    fail("GradScaler.update", "no gradient has been checked since the last update()", {},
         "step() or unscale_() come first, with an optimizer whose parameters have gradients");
  }
  kernels(scale_.device())
      .update_scale(scale_.view_of_memory(), tracker_.view_of_memory(),
                    any_of(flags, scale_.device()).view_of_memory(),
                    {options_.growth_factor, options_.backoff_factor, options_.growth_interval});
  scale_.bump_version();
  tracker_.bump_version();
  forget();
}

void GradScaler::forget() {
  records_.clear();
  unscaled_.clear();
}

void GradScaler::check_scaled(std::string_view op) const {
  if (!scale_.defined()) fail(op, "nothing has been scaled yet", {}, "call scale(loss) before backward()");
}

GradScaler::Record& GradScaler::record_of(const optim::Optimizer& optimizer) {
  const auto found = std::ranges::find(records_, optimizer.id(), &Record::optimizer);
  return found != records_.end() ? *found : records_.emplace_back(Record{optimizer.id()});
}

GradScaler::Gradients GradScaler::gradients_of(std::string_view op, const optim::Optimizer& optimizer) const {
  Gradients result;
  UnscaledGradients own;
  for (const Tensor& parameter : optimizer.parameters()) {
    const Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.dtype() == float16) {
      fail(op, "float16 gradients lose in unscaling what scaling had saved", {{"gradient", gradient}},
           "keep parameters in float32; autocast casts them where they are used");
    }
    if (own.find(gradient)) {  // with an earlier parameter's
      result.apart = false;
      continue;
    }
    own.insert({gradient, {}});
    const UnscaledGradients::Entry* before = unscaled_.find(gradient);
    Tensor scale = scale_;
    if (before) {  // unscaled, unless that was left to a step that was skipped
      scale = before->found_inf.defined() ? where(before->found_inf, scale_, 1.0f) : Tensor();
    }
    if (scale.defined()) result.scaled.push_back(gradient);
    const View view = distinct_elements(gradient);
    if (before || view.numel() != gradient.numel()) result.apart = false;
    auto& batches = result.batches;
    auto batch = std::ranges::find_if(batches, [&](const Batch& other) {
      return other.device == gradient.device() && other.scale.impl() == scale.impl();
    });
    if (batch == batches.end()) batch = batches.insert(batch, {gradient.device(), scale});
    batch->views.push_back(view);
  }
  return result;
}

void GradScaler::check_gradients(Record& record, const Gradients& gradients, bool unscale) {
  record.found_inf.clear();
  for (const Batch& batch : gradients.batches) {
    auto flag = std::ranges::find(record.found_inf, batch.device, [](const Tensor& x) { return x.device(); });
    if (flag == record.found_inf.end()) {
      flag = record.found_inf.insert(flag, zeros({}, {.dtype = float32, .device = batch.device}));
    }
    const Tensor scale = optim::LossScale{{}, batch.scale}.to(batch.device).scale;
    kernels(batch.device).unscale(batch.views, view_or_none(scale), flag->view_of_memory(), unscale);
  }
  if (!unscale) return;
  for (const Tensor& gradient : gradients.scaled) {
    gradient.bump_version();
    unscaled_.insert({gradient, {}});
  }
  record.stage = Stage::unscaled;
}

}  // namespace mezzo::amp
