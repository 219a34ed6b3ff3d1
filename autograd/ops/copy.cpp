// Copies: to (dtype, device), clone (layout).
#include "autograd/call.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct To {
  static constexpr OpId id = OpId::to;
  DType dtype;
  Device device;

  Tensor forward(Inputs in, Saver&) const {
    const Tensor& x = in[0];
    const Shape strides = is_dense(x.shape(), x.strides()) ? x.strides() : contiguous_strides(x.shape());
    const Tensor out = empty_strided(x.shape(), strides, dtype, device);
    copy_elements(out, x);
    return out;
  }
  Tensors backward(Node& node, Inputs g) const {
    const OutputInfo x = node.input_info(0);
    return {to(g[0], x.dtype, x.device)};
  }
};

struct Clone {
  static constexpr OpId id = OpId::clone;
  std::optional<MemoryFormat> format;

  void check(Inputs in) const {
    if (format == channels_last && in[0].dim() != 4)
      fail("clone", "channels_last needs 4 dimensions", {{"input", in[0]}});
  }
  Tensor forward(Inputs in, Saver&) const {
    const Tensor& x = in[0];
    Shape strides = is_dense(x.shape(), x.strides()) ? x.strides() : contiguous_strides(x.shape());
    if (format == channels_last) strides = channels_last_strides(x.shape());
    if (format == contiguous_format) strides = contiguous_strides(x.shape());
    const Tensor out = empty_strided(x.shape(), strides, x.dtype(), x.device());
    kernels(x.device()).copy(out.view_of_memory(), x.view_of_memory());
    return out;
  }
  Tensors backward(Node&, Inputs g) const { return {g[0]}; }
};

}  // namespace ops

Tensor to(const Tensor& x, DType dtype, const Device& device) {
  if (x.dtype() == dtype && x.device() == device) return x;
  return call(ops::To{dtype, device}, x);
}

Tensor clone(const Tensor& x, std::optional<MemoryFormat> format) { return call(ops::Clone{format}, x); }

template <>
std::vector<Sample> samples<OpId::to>() {
  // Through float32 and back: the gradient passes in the input's own dtype.
  const auto run = [](Inputs in) {
    return Tensors{to(to(in[0], float64, in[0].device()), in[0].dtype(), in[0].device())};
  };
  return {{"4-d", {uniform_sample({2, 3, 4, 5})}, run},
          {"0-d", {uniform_sample({})}, run},
          {"empty", {uniform_sample({0, 2})}, run}};
}

template <>
std::vector<Sample> samples<OpId::clone>() {
  const auto as = [](std::optional<MemoryFormat> format) {
    return [format](Inputs in) { return Tensors{clone(in[0], format)}; };
  };
  return {{"same layout", {uniform_sample({2, 3, 4, 5})}, as(std::nullopt)},
          {"channels last", {uniform_sample({2, 3, 4, 5})}, as(channels_last)},
          {"row-major", {uniform_sample({2, 3, 4})}, as(contiguous_format)},
          {"0-d", {uniform_sample({})}, as(std::nullopt)},
          {"empty", {uniform_sample({0, 3})}, as(std::nullopt)}};
}

}  // namespace mezzo
