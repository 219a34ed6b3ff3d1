#include "amp/weight_cast.h"

#include <mutex>

#include "autograd/call.h"
#include "autograd/ops.h"
#include "tensor/tensor_impl.h"

namespace mezzo::amp {

namespace {

/// Guards the `cast` of every tensor: it is held for a comparison, not while casting.
std::mutex casts_mutex;

bool is_weight(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  return impl.requires_grad && !impl.grad_fn && !impl.is_view && impl.dtype == float32;
}

/// The weight's data in `dtype`, from the weight or made anew.
Tensor kept_cast(const Tensor& weight, DType dtype) {
  TensorImpl& impl = *weight.impl();
  const uint32_t version = weight.version();
  {
    const std::lock_guard lock(casts_mutex);
    if (impl.cast && impl.cast->version == version && impl.cast->data.dtype() == dtype)
      return impl.cast->data;
  }
  auto made =
      std::make_shared<const WeightCast>(WeightCast{to(weight.detach(), dtype, weight.device()), version});
  const std::lock_guard lock(casts_mutex);
  impl.cast = made;
  return made->data;
}

/// to(dtype) of a weight, on kept data.
struct CastWeight {
  static constexpr auto name = "to";
  DType dtype;

  Tensor forward(Inputs in, Saver&) const { return kept_cast(in[0], dtype).detach(); }
  Tensors backward(Node& node, Inputs g) const { return {to(g[0], node.input_info(0).dtype, g[0].device())}; }
};

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const CastHookGuard plain(nullptr);
  return is_weight(x) ? call(CastWeight{dtype}, x) : to(x, dtype, x.device());
}

}  // namespace mezzo::amp
