// Convolutions as graphs of cuDNN: one operation, or with a bias two.
#include "cuda/conv.h"

namespace mezzo::cuda {
namespace {

/// The descriptor of an operation, and its attributes' names.
struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t input, weight, out, geometry, alpha, beta;
};

Names names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::input_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::weight_grad:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// Stride, padding and dilation; groups show in the shapes.
Descriptor describe_geometry(const ConvGeometry& geometry, DType compute) {
  const auto values = [](const std::array<int64_t, 2>& a) { return std::span<const int64_t>(a); };
  std::array<int64_t, 2> after = geometry.padding;
  for (size_t i = 0; i < 2; ++i) after[i] += geometry.padding_after[i];
  return Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, dnn_dtype(compute))
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, values(geometry.padding))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, values(after))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, values(geometry.stride))
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, values(geometry.dilation))
      .finalize();
}

/// y = a + b
Descriptor addition(const Descriptor& a, const Descriptor& b, const Descriptor& y, DType compute) {
  const Descriptor add = Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                             .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD)
                             .set(CUDNN_ATTR_POINTWISE_MATH_PREC, dnn_dtype(compute))
                             .finalize();
  return Descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalize();
}

}  // namespace

std::optional<DnnPlan> find_conv_plan(const ConvProblem& problem, const Descriptor& device) {
  const DType dtype = problem.dtype, compute = compute_type(dtype);
  const auto tensor = [&](int64_t id, const Shape& shape) {
    return describe_tensor(id, dtype, shape, problem.strides(shape));
  };
  const Descriptor input = tensor(conv_id::input, problem.input),
                   weight = tensor(conv_id::weight, problem.weight), out = tensor(conv_id::out, problem.out);
  // With a bias, the convolution's own result is in the compute type, in no memory.
  const Descriptor sum =
      describe_tensor(conv_id::sum, compute, problem.out, problem.strides(problem.out), true);
  const Names names = names_of(problem.pass);
  Descriptor convolution(names.type);
  convolution.set(names.input, input)
      .set(names.weight, weight)
      .set(names.out, problem.with_bias ? sum : out)
      .set(names.geometry, describe_geometry(problem.geometry, compute))
      .set(names.alpha, 1.0f)
      .set(names.beta, 0.0f);
  if (!convolution.is_supported()) return std::nullopt;
  const EngineRules rules{.tensor_cores = dtype != DType::float32 || problem.tf32};
  if (!problem.with_bias) return DnnPlan::find({&convolution}, device, rules);
  const Descriptor bias = tensor(conv_id::bias, {1, problem.out[1], 1, 1});
  const Descriptor with_bias = addition(sum, bias, out, compute);
  return DnnPlan::find({&convolution, &with_bias}, device, rules);
}

}  // namespace mezzo::cuda
