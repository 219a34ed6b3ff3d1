#include "amp/weight_cast.h"

#include "autograd/call.h"
#include "autograd/ops.h"
#include "tensor/tensor_impl.h"
#include "tensor/weight_cast.h"

namespace mezzo::amp {

namespace {

bool is_weight(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  return impl.requires_grad && !impl.grad_fn && !impl.is_view && impl.dtype == float32;
}

/// to(dtype) of a weight, on kept data.
struct CastWeight {
  static constexpr auto name = "to";
  DType dtype;

  Tensor forward(Inputs in, Saver&) const {
    Tensor data = kept_cast(in[0], dtype);
    if (!data.defined()) keep_cast(in[0], data = to(in[0].detach(), dtype, in[0].device()));
    return data.detach();
  }
  Tensors backward(Node& node, Inputs g) const { return {to(g[0], node.input_info(0).dtype, g[0].device())}; }
};

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const CastHookGuard plain(nullptr);
  return is_weight(x) ? call(CastWeight{dtype}, x) : to(x, dtype, x.device());
}

}  // namespace mezzo::amp
