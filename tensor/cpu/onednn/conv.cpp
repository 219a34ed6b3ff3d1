// Convolutions by oneDNN's primitives. Activations in channels-last are used in place, row-major ones are
// reordered.
#include "tensor/cpu/onednn/plan.h"
#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu::onednn {
namespace {

using dnnl::memory;

enum Operation { forward = 1, input_grad, weight_grad };

Key key_of(Operation operation, const ConvGeometry& geometry) {
  Key key(operation);
  for (const auto& pair : {geometry.stride, geometry.padding, geometry.dilation, geometry.padding_after})
    key.add(pair[0]).add(pair[1]);
  return key.add(geometry.groups);
}

/// Activations as the primitives get them: channels-last, in which all have fast implementations. Left to
/// choose, oneDNN takes its slow reference for some, such as one output channel.
memory::desc channels_last(View view) {
  view.strides = channels_last_strides(view.shape);
  return describe(view);
}

/// Weights [O, C / groups, KH, KW] as oneDNN counts them: [groups, O / groups, C / groups, KH, KW] if there
/// are groups.
memory::desc describe_weight(const View& weight, int64_t groups) {
  if (groups == 1) return describe(weight);
  View grouped = weight;
  grouped.shape[0] /= groups;
  grouped.shape.insert(0, groups);
  grouped.strides.insert(0, grouped.shape[1] * weight.strides[0]);
  return describe(grouped);
}

/// Geometry in oneDNN's words: a dilation of 0 is dense.
struct Window {
  memory::dims stride, dilation, before, after;

  explicit Window(const ConvGeometry& geometry)
      : stride(geometry.stride.begin(), geometry.stride.end()),
        dilation{geometry.dilation[0] - 1, geometry.dilation[1] - 1},
        before(geometry.padding.begin(), geometry.padding.end()),
        after{before[0] + geometry.padding_after[0], before[1] + geometry.padding_after[1]} {}
};

/// As in training, also where nothing is trained: for inference Winograd's weights have a layout of their
/// own, which takes longer to reach than it saves.
dnnl::convolution_forward::primitive_desc forward_desc(dnnl::algorithm algorithm, const memory::desc& input,
                                                       const memory::desc& weight, const memory::desc& bias,
                                                       const memory::desc& out,
                                                       const ConvGeometry& geometry) {
  const Window window(geometry);
  return {{dnnl::prop_kind::forward_training, algorithm, input, weight, bias, out, window.stride,
           window.dilation, window.before, window.after},
          attributes(),
          engine()};
}

/// The description of a gradient's primitive, which takes what the convolution itself takes.
template <class Gradient>
typename Gradient::primitive_desc gradient_desc(dnnl::algorithm algorithm, const memory::desc& input,
                                                const memory::desc& weight, const memory::desc& out,
                                                const ConvGeometry& geometry) {
  const Window window(geometry);
  return {{algorithm, input, weight, out, window.stride, window.dilation, window.before, window.after},
          attributes(),
          engine(),
          forward_desc(algorithm, input, weight, {}, out, geometry)};
}

/// Winograd's algorithm F(4x4, 3x3) takes 36 multiplications where a direct convolution takes 144; its sums
/// are as exact. Lavin, Gray, "Fast algorithms for convolutional neural networks" (2016). An infinity or NaN
/// reaches all pixels of its tile. oneDNN's is wrong if padding differs between sides.
bool suits_winograd(const View& input, const View& weight, const ConvGeometry& geometry) {
  constexpr std::array<int64_t, 2> zeros{0, 0}, ones{1, 1};
  constexpr int64_t kMultiple = 16;  // of channels, for oneDNN's layout
  return input.dtype == DType::float32 && weight.shape[2] == 3 && weight.shape[3] == 3 &&
         geometry.groups == 1 && geometry.stride == ones && geometry.dilation == ones &&
         (geometry.padding == zeros || geometry.padding == ones) && geometry.padding_after == zeros &&
         weight.shape[0] % kMultiple == 0 && weight.shape[1] % kMultiple == 0;
}

/// make(algorithm, layout of activations) with the fastest algorithm that oneDNN has for the shape.
template <class Make>
Plan with_algorithm(const View& input, const View& weight, const ConvGeometry& geometry, Make&& make) {
  if (suits_winograd(input, weight, geometry)) {
    // What weights of many channels become is many times their size, and gains nothing on small images.
    constexpr size_t kMostScratch = size_t{64} << 20;
    try {
      Plan plan = make(dnnl::algorithm::convolution_winograd,
                       [](const View& view) { return any_layout(describe(view)); });
      if (plan.scratch_bytes() <= kMostScratch) return plan;
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
  }
  return make(dnnl::algorithm::convolution_direct, channels_last);
}

}  // namespace

void conv2d(const View& out, const View& input, const View& weight, const View& bias,
            const ConvGeometry& geometry) {
  const Key key = key_of(forward, geometry).add(out).add(input).add(weight).add(bias);
  plan(key, [&] {
    return with_algorithm(input, weight, geometry, [&](dnnl::algorithm algorithm, auto&& layout) {
      const memory::desc weight_desc = describe_weight(weight, geometry.groups);
      const memory::desc bias_desc = bias.given() ? describe(bias) : memory::desc();
      const auto desc =
          forward_desc(algorithm, layout(input), any_layout(weight_desc), bias_desc, layout(out), geometry);
      return Plan(desc, dnnl::convolution_forward(desc),
                  {{DNNL_ARG_SRC, describe(input), desc.src_desc()},
                   {DNNL_ARG_WEIGHTS, weight_desc, desc.weights_desc()},
                   {DNNL_ARG_BIAS, bias_desc, bias_desc}},
                  {{DNNL_ARG_DST, describe(out), desc.dst_desc()}});
    });
  })->run({input.data, weight.data, bias.data, out.data});
}

void conv2d_input_grad(const View& grad_input, const View& grad_out, const View& weight,
                       const ConvGeometry& geometry) {
  const Key key = key_of(input_grad, geometry).add(grad_input).add(grad_out).add(weight);
  plan(key, [&] {
    return with_algorithm(grad_input, weight, geometry, [&](dnnl::algorithm algorithm, auto&& layout) {
      const memory::desc weight_desc = describe_weight(weight, geometry.groups);
      const auto desc = gradient_desc<dnnl::convolution_backward_data>(
          algorithm, layout(grad_input), any_layout(weight_desc), layout(grad_out), geometry);
      return Plan(desc, dnnl::convolution_backward_data(desc),
                  {{DNNL_ARG_DIFF_DST, describe(grad_out), desc.diff_dst_desc()},
                   {DNNL_ARG_WEIGHTS, weight_desc, desc.weights_desc()}},
                  {{DNNL_ARG_DIFF_SRC, describe(grad_input), desc.diff_src_desc()}});
    });
  })->run({grad_out.data, weight.data, grad_input.data});
}

/// Without the bias' gradient, for which oneDNN 2 takes a third of the time in a plain loop: a reduction has
/// it for the price of one read.
void conv2d_weight_grad(const View& grad_weight, const View& grad_out, const View& input,
                        const ConvGeometry& geometry) {
  const Key key = key_of(weight_grad, geometry).add(grad_weight).add(grad_out).add(input);
  plan(key, [&] {
    return with_algorithm(input, grad_weight, geometry, [&](dnnl::algorithm algorithm, auto&& layout) {
      const memory::desc weight_desc = describe_weight(grad_weight, geometry.groups);
      const auto desc = gradient_desc<dnnl::convolution_backward_weights>(
          algorithm, layout(input), any_layout(weight_desc), layout(grad_out), geometry);
      return Plan(desc, dnnl::convolution_backward_weights(desc),
                  {{DNNL_ARG_SRC, describe(input), desc.src_desc()},
                   {DNNL_ARG_DIFF_DST, describe(grad_out), desc.diff_dst_desc()}},
                  {{DNNL_ARG_DIFF_WEIGHTS, weight_desc, desc.diff_weights_desc()}});
    });
  })->run({input.data, grad_out.data, grad_weight.data});
}

}  // namespace mezzo::cpu::onednn
