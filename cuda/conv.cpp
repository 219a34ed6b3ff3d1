// Convolutions: moves operands into the layout that cuDNN is to work in, finds its plan and runs it.
#include "cuda/conv.h"

#include <algorithm>
#include <list>
#include <map>

#include "cuda/context.h"
#include "cuda/kernel_families.h"
#include "cuda/staged.h"
#include "tensor/cuda_settings.h"

namespace mezzo::cuda {
namespace {

/// The plans that a thread has used last. Finding one takes a millisecond or so, and training asks for the
/// same few again and again.
class PlanCache {
 public:
  /// None if cuDNN has no engine.
  const std::optional<DnnPlan>& plan_for(const ConvProblem& problem, int device) {
    const Key key = key_of(problem, device);
    if (const auto found = places_.find(key); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);  // used last, leaves last
    } else {
      if (entries_.size() == kMost) {
        places_.erase(entries_.back().key);
        entries_.pop_back();
      }
      entries_.push_front({key, find_conv_plan(problem, describe_device(device))});
      places_[key] = entries_.begin();
    }
    return entries_.front().plan;
  }

 private:
  static constexpr size_t kMost = 512;
  using Key = std::array<int64_t, 27>;
  struct Entry {
    Key key;
    std::optional<DnnPlan> plan;
  };

  static Key key_of(const ConvProblem& problem, int device) {
    Key key{device,
            static_cast<int64_t>(problem.pass),
            static_cast<int64_t>(problem.dtype),
            problem.channels_last,
            problem.with_bias,
            problem.tf32,
            problem.geometry.groups};
    auto at = key.begin() + 7;
    for (const Shape& shape : {problem.out, problem.input, problem.weight})
      at = std::copy(shape.begin(), shape.end(), at);
    const auto& [stride, padding, dilation, groups, padding_after] = problem.geometry;
    for (const auto& sizes : {stride, padding, dilation, padding_after})
      at = std::copy(sizes.begin(), sizes.end(), at);
    return key;
  }

  std::list<Entry> entries_;  // the one used last in front
  std::map<Key, std::list<Entry>::iterator> places_;
};

/// Whether an image is channels-last, and not row-major as well.
bool is_channels_last_only(const View& image) {
  return has_strides(image, channels_last_strides(image.shape)) &&
         !has_strides(image, contiguous_strides(image.shape));
}

/// Tensor cores multiply 16-bit operands with channels side by side; what is not laid out so is moved once by
/// us, rather than by cuDNN in each engine. Other dtypes run in the layout of the images.
bool runs_in_channels_last(const Convolution& conv) {
  return is_half(conv.out.dtype) || is_channels_last_only(conv.input) || is_channels_last_only(conv.out);
}

/// The operands must lie as the plan has it.
void run(const DnnPlan& plan, const Convolution& conv) {
  using namespace conv_id;
  const std::array<int64_t, 4> ids{out, input, weight, bias};
  const std::array<void*, 4> memory{conv.out.data, conv.input.data, conv.weight.data, conv.bias.data};
  const size_t count = conv.bias.given() ? 4 : 3;
  const Scratch workspace(plan.workspace_size());
  plan.execute(context().dnn(), std::span(ids).first(count), std::span(memory).first(count),
               workspace.data());
}

/// By cuDNN, or where it has no engine by the definition.
void convolve(const Convolution& conv) {
  const auto& [pass, out, input, weight, bias, geometry] = conv;
  if (conv.result().numel() == 0) return;
  // Sums of no terms are not cuDNN's.
  if (out.numel() == 0 || input.numel() == 0 || weight.numel() == 0) return conv_direct(conv);
  const ConvProblem problem{pass,
                            out.dtype,
                            runs_in_channels_last(conv),
                            bias.given(),
                            tf32_convolution_allowed(),
                            out.shape,
                            input.shape,
                            weight.shape,
                            geometry};
  thread_local PlanCache plans;
  const std::optional<DnnPlan>& plan = plans.plan_for(problem, context().device());
  if (!plan) return conv_direct(conv);
  const auto staged = [&](const View& view) { return Staged(view, problem.strides(view.shape)); };
  const Staged y = staged(out), x = staged(input), w = staged(weight), b(bias, {1});
  const Staged& result = pass == ConvPass::forward ? y : pass == ConvPass::input_grad ? x : w;
  for (const Staged* operand : {&y, &x, &w, &b}) {
    if (operand != &result) operand->load();
  }
  run(*plan, {pass, y.view(), x.view(), w.view(), b.view(), geometry});
  result.store();
}

void conv2d(const View& out, const View& input, const View& weight, const View& bias,
            const ConvGeometry& geometry) {
  convolve({ConvPass::forward, out, input, weight, bias, geometry});
}

void conv2d_input_grad(const View& grad_input, const View& grad_out, const View& weight,
                       const ConvGeometry& geometry) {
  convolve({ConvPass::input_grad, grad_out, grad_input, weight, {}, geometry});
}

void conv2d_weight_grad(const View& grad_weight, const View& grad_out, const View& input,
                        const ConvGeometry& geometry) {
  convolve({ConvPass::weight_grad, grad_out, input, grad_weight, {}, geometry});
}

}  // namespace

void add_conv(Kernels& table) {
  table.conv2d = conv2d;
  table.conv2d_input_grad = conv2d_input_grad;
  table.conv2d_weight_grad = conv2d_weight_grad;
}

}  // namespace mezzo::cuda
