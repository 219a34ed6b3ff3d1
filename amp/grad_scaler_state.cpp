// The part of the scaler that is set and saved: its options, its scale, its state.
#include "amp/grad_scaler.h"
#include "autograd/ops/check.h"
#include "tensor/kernels.h"

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

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  check_options("GradScaler", options);
}

GradScaler::GradScaler(const Device& device, const GradScalerOptions& options) : GradScaler(options) {
  if (options.enabled) kernels(device);
  device_ = device;
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

}  // namespace mezzo::amp
