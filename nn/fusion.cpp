#include "nn/fusion.h"

#include <array>
#include <atomic>
#include <ostream>
#include <typeinfo>

#include "autograd/cast_hook.h"
#include "autograd/ops.h"
#include "nn/activation.h"
#include "nn/residual.h"
#include "nn/stages.h"
#include "tensor/tensor_impl.h"

namespace mezzo::nn {

namespace {

std::atomic<bool> enabled = true;

/// The module as an M: of this very type, whose forward is known.
template <class M>
M* as(Module& module) {
  return typeid(module) == typeid(M) ? static_cast<M*>(&module) : nullptr;
}

BatchNorm* as_batch_norm(Module& module) {
  if (auto* layer = as<BatchNorm2d>(module)) return layer;
  return as<BatchNorm1d>(module);
}

bool is_relu(Module& module) { return as<ReLU>(module) != nullptr; }

/// Reads layers from a position on; what lies behind the last, or has hooks, is nothing that can be fused.
class Reader {
 public:
  explicit Reader(Layers layers) : layers_(layers) {}
  Module* at(size_t i) const {
    Module* module = i < layers_.size() ? layers_[i].second.get() : nullptr;
    return module && !module->has_hooks() ? module : nullptr;
  }
  Conv2d* conv(size_t i) const { return at(i) ? as<Conv2d>(*at(i)) : nullptr; }
  Conv2d* conv1x1(size_t i) const { return conv(i) && conv(i)->is_1x1() ? conv(i) : nullptr; }
  BatchNorm* batch_norm(size_t i) const { return at(i) ? as_batch_norm(*at(i)) : nullptr; }
  Linear* linear(size_t i) const { return at(i) ? as<Linear>(*at(i)) : nullptr; }
  bool gelu(size_t i) const {
    const GELU* layer = at(i) ? as<GELU>(*at(i)) : nullptr;
    return layer && layer->approximate() == "none";
  }
  bool relu(size_t i) const { return at(i) && is_relu(*at(i)); }

 private:
  Layers layers_;
};

/// Number of layers of the chain of 1x1 convolutions that begins at i: 4, 7, ... or 0.
size_t chain_length(const Reader& read, size_t i) {
  const Conv2d* conv = read.conv1x1(i);
  size_t n = conv ? 1 : 0;
  for (; conv; n += 3) {
    const BatchNorm* norm = read.batch_norm(i + n);
    const Conv2d* next = read.conv1x1(i + n + 2);
    const bool fits = norm && read.relu(i + n + 1) && next && norm->num_features() == conv->weight.size(0) &&
                      next->weight.size(1) == conv->weight.size(0) &&
                      next->weight.dtype() == conv->weight.dtype() &&
                      next->weight.device() == conv->weight.device();
    if (!fits) break;
    conv = next;
  }
  return n >= 4 ? n : 0;
}

std::string_view why_alone(Layers layers, size_t i) {
  if (layers[i].second->has_hooks()) return "it has hooks";
  if (i + 1 == layers.size()) return "it is the last layer: no ReLU follows";
  if (layers[i + 1].second->has_hooks()) return "the next layer has hooks";
  return "no ReLU follows";
}

/// Whether a product of x and a weight is no fault of dtype or device, cast or not.
bool go_together(const Tensor& x, const Tensor& weight) {
  if (x.device() != weight.device()) return false;
  if (!cast_hook()) return x.dtype() == weight.dtype();
  return is_floating(x.dtype()) && x.dtype() != float64 && weight.dtype() != float64;
}

/// Whether a layer takes x without complaint.
bool takes(const Conv2d& conv, const Tensor& x) {
  return x.defined() && x.dim() == 4 && x.size(1) == conv.weight.size(1) && go_together(x, conv.weight);
}
bool takes(const Linear& linear, const Tensor& x) {
  return x.defined() && x.dim() > 0 && x.size(-1) == linear.weight.size(1) && go_together(x, linear.weight);
}
/// Whether it takes gelu(x) too, made in the dtype of the product: autocast leaves gelu in that of its input.
bool takes_gelu(const Linear& linear, const Tensor& x) {
  return takes(linear, x) && (!cast_hook() || size_of(x.dtype()) == 2);
}

/// A chain; x fits its first convolution, and so all of them.
Tensor run_chain(Layers layers, const Tensor& x) {
  const Reader read(layers);
  std::array<Tensor, 3> y;
  {
    const ModuleScope scope(layers[0].first);
    y = conv1x1_stats(x, read.conv(0)->weight, read.conv(0)->bias);
  }
  for (size_t i = 1; i < layers.size(); i += 3) {
    BatchNorm& norm = *read.batch_norm(i);
    const Conv2d& conv = *read.conv(i + 2);
    const int64_t values = y[0].size(1) ? y[0].numel() / y[0].size(1) : 0;
    const auto [mean, var] = norm.statistics(y[1], y[2], values);
    const ModuleScope scope(layers[i + 2].first);
    y = conv1x1_stats(y[0], conv.weight, conv.bias, mean, var, norm.weight, norm.bias, norm.eps());
  }
  // Laid out as the layers would have left it one by one.
  return format_of(x) == channels_last ? y[0] : y[0].contiguous();
}

/// bn(conv(x)) with running statistics: y = (w s) * x + (b - mean) s + bias, s = weight / sqrt(var + eps).
Tensor run_folded(const Conv2d& conv, const BatchNorm& norm, const Tensor& x) {
  const DType dtype = conv.weight.dtype(), arithmetic = compute_type(dtype);
  const auto wide = [&](const Tensor& v) { return v.to(arithmetic); };
  Tensor scale = div(1.0, sqrt(add(wide(norm.running_var), norm.eps())));
  if (norm.weight.defined()) scale = mul(scale, wide(norm.weight));
  Tensor shift = neg(wide(norm.running_mean));
  if (conv.bias.defined()) shift = add(shift, wide(conv.bias));
  shift = mul(shift, scale);
  if (norm.bias.defined()) shift = add(shift, wide(norm.bias));
  const Tensor weight = mul(wide(conv.weight), reshape(scale, {scale.numel(), 1, 1, 1}));
  return conv2d(x, weight.to(dtype), shift.to(dtype), conv.geometry());
}

Tensor run_one_by_one(Layers layers, const Tensor& x) {
  Tensor y = x;
  for (const auto& [name, layer] : layers) y = (*layer)(y);
  return y;
}

Tensor run_stage(const Stage& stage, Layers layers, const Tensor& x) {
  const Reader read(layers);
  switch (stage.kind) {
    case Stage::chain: {
      // More than one value for each channel, or a BatchNorm will say so.
      const bool fits = takes(*read.conv(0), x) && x.numel() > x.size(1);
      if (fits) return run_chain(layers, x);
      break;
    }
    case Stage::batch_norm_relu:
      if (read.batch_norm(0)->takes(x)) {
        const ModuleScope scope(layers[0].first);
        return read.batch_norm(0)->forward_relu(x, {});
      }
      break;
    case Stage::folded:
      if (takes(*read.conv(0), x)) {
        const ModuleScope scope(layers[0].first);
        return run_folded(*read.conv(0), *read.batch_norm(1), x);
      }
      break;
    case Stage::linear_relu:
      if (takes(*read.linear(0), x)) {
        const ModuleScope scope(layers[0].first);
        return mezzo::linear_relu(x, read.linear(0)->weight, read.linear(0)->bias);
      }
      break;
    case Stage::gelu_linear:
      if (takes_gelu(*read.linear(1), x)) return gelu_linear(x, *read.linear(1));
      break;
    case Stage::alone:
      break;
  }
  return run_one_by_one(layers, x);
}

/// relu(bn(y) + residual), where bn is a layer of the module `within`.
Tensor normalised_sum(const Tensor& y, BatchNorm& bn, const Tensor& residual, std::string_view within = {}) {
  const bool fits = enabled && !bn.has_hooks() && bn.takes(y) &&
                    (!residual.defined() || (residual.shape() == y.shape() && residual.dtype() == y.dtype() &&
                                             residual.device() == y.device()));
  Tensor normalised;
  {
    const ModuleScope outer(within);
    if (fits) {
      const ModuleScope scope(bn.name());
      return bn.forward_relu(y, residual);
    }
    normalised = bn(y);
  }
  return relu(residual.defined() ? add(normalised, residual) : normalised);
}

void add_entries(FusionPlan& plan, const std::string& path, Module& module) {
  const auto path_of = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  const auto* residual = dynamic_cast<Residual*>(&module);
  const Layers layers = residual ? residual->body.children() : module.children();
  const std::string prefix = residual && !residual->body.name().empty() ? residual->body.name() + "." : "";
  const auto layer_path = [&](size_t i) { return path_of(prefix + layers[i].first); };
  const bool ends_in_sum =
      residual && !layers.empty() && Reader(layers).batch_norm(layers.size() - 1) && enabled;
  if (residual || dynamic_cast<Sequential*>(&module)) {
    for (const Stage& stage : stages_of(layers.first(layers.size() - (ends_in_sum ? 1 : 0)))) {
      const std::string first = layer_path(stage.first);
      const std::string to_last = first + " to " + layers[stage.first + stage.count - 1].first;
      switch (stage.kind) {
        case Stage::chain:
          plan.entries.push_back({to_last, text(stage.count / 3 + 1, " conv1x1_stats")});
          break;
        case Stage::batch_norm_relu:
          plan.entries.push_back({to_last, "batch_norm_relu"});
          break;
        case Stage::linear_relu:
          plan.entries.push_back({to_last, "linear_relu"});
          break;
        case Stage::gelu_linear:
          plan.entries.push_back({to_last, "gelu_linear"});
          break;
        case Stage::folded:
          plan.entries.push_back({to_last, "conv2d with the scaled weights of a BatchNorm in evaluation"});
          break;
        case Stage::alone:
          if (dynamic_cast<BatchNorm*>(layers[stage.first].second.get()))
            plan.entries.push_back({first, text("alone: ", stage.why_alone)});
          break;
      }
    }
    if (ends_in_sum)
      plan.entries.push_back({layer_path(layers.size() - 1), "batch_norm_relu with the residual"});
  }
  for (const auto& [name, child] : module.children()) add_entries(plan, path_of(name), *child);
}

}  // namespace

void fusion(bool on) { enabled = on; }
bool fusion() { return enabled; }

std::vector<Stage> stages_of(Layers layers) {
  std::vector<Stage> stages;
  const Reader read(layers);
  for (size_t i = 0; i < layers.size(); i += stages.back().count) {
    const BatchNorm *norm = read.batch_norm(i), *next = read.batch_norm(i + 1);
    if (!enabled)
      stages.push_back({Stage::alone, i, 1, "fusing is off"});
    else if (const size_t n = chain_length(read, i))
      stages.push_back({Stage::chain, i, n, {}});
    else if (norm && read.relu(i + 1))
      stages.push_back({Stage::batch_norm_relu, i, 2, {}});
    else if (read.linear(i) && read.relu(i + 1))
      stages.push_back({Stage::linear_relu, i, 2, {}});
    else if (read.gelu(i) && read.linear(i + 1))
      stages.push_back({Stage::gelu_linear, i, 2, {}});
    else if (read.conv(i) && next && !read.relu(i + 2) && !next->uses_batch() &&
             next->num_features() == read.conv(i)->weight.size(0))
      stages.push_back({Stage::folded, i, 2, {}});
    else
      stages.push_back({Stage::alone, i, 1, why_alone(layers, i)});
  }
  return stages;
}

Tensor run_layers(Layers layers, const Tensor& x) {
  if (!enabled) return run_one_by_one(layers, x);
  Tensor y = x;
  for (const Stage& stage : stages_of(layers))
    y = run_stage(stage, layers.subspan(stage.first, stage.count), y);
  return y;
}

Tensor conv_bn_relu(const Tensor& x, Conv2d& conv, BatchNorm& bn, const Tensor& residual) {
  return normalised_sum(conv(x), bn, residual);
}

Tensor gelu_linear(const Tensor& x, Linear& linear) {
  if (!enabled || linear.has_hooks() || !takes_gelu(linear, x)) return linear(gelu(x));
  const ModuleScope scope(linear.name());
  return mezzo::gelu_linear(x, linear.weight, linear.bias);
}

FusionPlan fusion_plan(Module& net) {
  FusionPlan plan;
  add_entries(plan, "", net);
  return plan;
}

std::ostream& operator<<(std::ostream& out, const FusionPlan& plan) {
  for (const auto& [layers, what] : plan.entries) out << layers << ": " << what << "\n";
  return out;
}

Residual::Residual(Sequential body_, Sequential shortcut_, const ResidualOptions& options)
    : body(std::move(body_)), shortcut(std::move(shortcut_)) {
  if (options.body.empty())
    for (const auto& [name, layer] : body.children()) add_child(name, layer);
  else
    add(options.body, body);
  if (!shortcut.children().empty()) add(options.shortcut, shortcut);
}

Tensor Residual::forward(const Tensor& x) {
  const Layers layers = body.children();
  const size_t before = layers.empty() ? 0 : layers.size() - 1;
  BatchNorm* last = Reader(layers).batch_norm(before);
  const bool whole = !fusion() || !last || body.has_hooks();
  Tensor y;
  if (whole) {
    y = body(x);
  } else {
    const ModuleScope scope(body.name());
    y = run_layers(layers.first(before), x);
  }
  const Tensor around = shortcut(x);  // after the body: layers that draw random numbers do so in this order
  return whole ? relu(mezzo::add(y, around)) : normalised_sum(y, *last, around, body.name());
}

}  // namespace mezzo::nn
