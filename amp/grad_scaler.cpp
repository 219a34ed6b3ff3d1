#include "amp/grad_scaler.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/ops/check.h"
#include "tensor/tensor_impl.h"

namespace mezzo::amp {

namespace {

void check_options(std::string_view op, const GradScalerOptions& options, int64_t tracker = 0) {
  if (!options.enabled) return;
  const auto check = [op](bool good, std::string_view name, const auto& value, std::string_view range) {
    if (!good) fail(op, text(name, " must be ", range, ", not ", value));
  };
  check(options.init_scale >= kSmallestScale && options.init_scale <= largest_of(float32), "the scale",
        options.init_scale, "at least 2^-126 and finite in float32, so that its reciprocal is finite");
  check(options.growth_factor > 1, "growth_factor", options.growth_factor, "above 1");
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
        "between 0 and 1");
  check(options.growth_interval >= 1, "growth_interval", options.growth_interval, "at least 1");
  check(tracker >= 0 && tracker <= INT32_MAX, "_growth_tracker", tracker, "an int32 of at least 0");
}

/// Everything that a scaler saves.
void visit(optim::StateVisitor& visitor, GradScalerOptions& options, int64_t& tracker) {
  visitor.number("scale", options.init_scale);
  visitor.number("growth_factor", options.growth_factor);
  visitor.number("backoff_factor", options.backoff_factor);
  visitor.number("growth_interval", options.growth_interval);
  visitor.number("_growth_tracker", tracker);
}

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

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  check_options("GradScaler", options);
}

GradScaler::GradScaler(const Device& device, const GradScalerOptions& options) : GradScaler(options) {
  if (options.enabled) kernels(device);
  device_ = device;
}

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

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  check_scaled("GradScaler.update");
  GradScalerOptions changed = options_;
  changed.init_scale = new_scale;
  check_options("GradScaler.update", changed);
  scale_.fill_(new_scale);
  forget();
}

void GradScaler::update(const Tensor& new_scale) {
  if (!options_.enabled) return;
  ops::check_floating("GradScaler.update", {{"new_scale", new_scale}});
  if (new_scale.dim() != 0 || new_scale.requires_grad()) {
    fail("GradScaler.update", "a new scale must be 0-d and not require grad", {{"new_scale", new_scale}});
  }
  update(new_scale.item<double>());
}

double GradScaler::get_scale() const {
  return !options_.enabled ? 1 : scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  GradScalerOptions saved = options_;
  saved.init_scale = get_scale();
  int64_t tracker = tracker_.defined() ? tracker_.item<int64_t>() : init_tracker_;
  return optim::save_state([&](optim::StateVisitor& visitor) { visit(visitor, saved, tracker); });
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  if (state.size() == 0) {
    fail("GradScaler.load_state_dict", "the state is empty", {}, "a disabled scaler saves an empty one");
  }
  GradScalerOptions loaded = options_;
  int64_t tracker = 0;
  optim::load_state([&](optim::StateVisitor& visitor) { visit(visitor, loaded, tracker); }, state);
  check_options("GradScaler.load_state_dict", loaded, tracker);
  options_ = loaded;
  init_tracker_ = tracker;
  if (!scale_.defined()) return;
  scale_.fill_(loaded.init_scale);
  tracker_.fill_(tracker);
}

template <class T>
void GradScaler::set(T GradScalerOptions::*option, T value) {
  GradScalerOptions changed = options_;
  changed.*option = value;
  check_options("GradScaler", changed);
  options_ = changed;
}

void GradScaler::set_growth_factor(double factor) { set(&GradScalerOptions::growth_factor, factor); }
void GradScaler::set_backoff_factor(double factor) { set(&GradScalerOptions::backoff_factor, factor); }
void GradScaler::set_growth_interval(int64_t interval) { set(&GradScalerOptions::growth_interval, interval); }

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
    const Tensor scale = optim::LossScale{{}, batch.scale}.scale_on(batch.device);
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
