// Functions that are made of pointwise rows.
#include <cmath>
#include <limits>

#include "autograd/ops/inplace.h"
#include "autograd/ops/pointwise_op.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// The row for bounds that are numbers or that for tensors; x if there is no bound.
template <class ForNumber, class ForTensor>
Tensor bounded(const Tensor& x, const Tensor& bound) {
  if (!bound.defined()) return x;
  return bound.impl()->is_number ? call(ops::Pointwise<ForNumber>{}, x, bound)
                                 : call(ops::Pointwise<ForTensor>{}, x, bound);
}

/// Whether the dtype holds the value, rounded: a finite one must not become infinite, or wrap.
bool in_range(double value, DType dtype) {
  return dispatch(dtype, [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_same_v<T, bool>)
      return true;
    else if constexpr (std::is_integral_v<T>)
      return value >= static_cast<double>(Limits::min()) && value < static_cast<double>(Limits::max()) + 1;
    else
      return !std::isfinite(value) || std::isfinite(+Scalar(value).to<T>());  // +: 16-bit values as floats
  });
}

}  // namespace

Tensor ops::bound_in_range(std::string_view op, const Tensor& x, const Tensor& bound, bool low) {
  if (!bound.defined() || !bound.impl()->is_number || is_floating(x.dtype()) || is_floating(bound.dtype()))
    return bound;
  const auto value = bound.item<int64_t>();
  if (in_range(static_cast<double>(value), x.dtype())) return bound;
  if (low == (value < 0)) return {};
  fail(op, text("the bound ", value, " is outside the range of ", name_of(x.dtype())), {{"tensor", x}});
}

Tensor clamp(const Tensor& x, const Tensor& low_bound, const Tensor& high_bound) {
  if (!low_bound.defined() && !high_bound.defined()) fail("clamp", "needs a bound", {{"x", x}});
  using namespace pointwise;
  const Tensor low = ops::bound_in_range("clamp", x, low_bound, true),
               high = ops::bound_in_range("clamp", x, high_bound, false);
  if (!low.defined() && !high.defined()) return x.clone();
  return bounded<ClampMax, Minimum>(bounded<ClampMin, Maximum>(x, low), high);
}

Tensor gelu(const Tensor& x, std::string_view approximate) {
  if (approximate == "none") return gelu(x);
  if (approximate == "tanh") return gelu_tanh(x);
  fail("gelu", text("approximate is \"", approximate, "\""), {{"x", x}}, "it may be \"none\" or \"tanh\"");
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  const std::array<Tensor, 3> in{x, mask, value};
  check_inputs("masked_fill", in, true);
  for (const Tensor& operand : in) {
    if (!operand.defined())
      fail("masked_fill", "an operand is undefined", {{"x", x}, {"mask", mask}, {"value", value}});
  }
  if (mask.dtype() != bool_)
    fail("masked_fill", text("the mask is ", name_of(mask.dtype()), ", not bool"),
         {{"x", x}, {"mask", mask}});
  if (value.dim() != 0)
    fail("masked_fill", "the value has dimensions", {{"x", x}, {"value", value}}, "where takes such values");
  if (const auto number = value.item<double>(); !in_range(number, x.dtype())) {
    fail("masked_fill", text("the value ", number, " is outside the range of ", name_of(x.dtype())),
         {{"x", x}}, "a mask before softmax may be -infinity");
  }
  const Device& device = value.impl()->is_number ? x.device() : value.device();
  return where(mask, to(value, x.dtype(), device), x);
}

}  // namespace mezzo
