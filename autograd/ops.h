// The public functions, declared from the rows of ops.def. Formulas, shapes and notes stand there.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/node.h"
#include "tensor/index.h"
#include "tensor/kernels.h"

namespace mezzo {

/// Position in pointwise::Ops.
using PointwiseId = size_t;

enum class LossReduction : uint8_t { none, mean, sum };

struct NllLossOptions {
  LossReduction reduction = LossReduction::mean;
  int64_t ignore_index = -100;  ///< a target of this value counts for nothing
};

struct CrossEntropyOptions {
  LossReduction reduction = LossReduction::mean;
  int64_t ignore_index = -100;  ///< a target of this value counts for nothing
  double label_smoothing = 0;   ///< part of each target that is spread evenly over all classes
};

struct AttentionOptions {
  bool is_causal = false;         ///< position i sees the keys 0 to i alone
  std::optional<double> scale{};  ///< of the products; none: 1 / sqrt(E)
};

struct MaxPool2dOptions {
  std::optional<Size2> stride{};  ///< none: the kernel's size
  Size2 padding = 0;              ///< rows and columns on each side that never win
  Size2 dilation = 1;             ///< distance of a window's cells
  bool ceil_mode = false;         ///< a last window may hang over the end of the input
};

struct BatchNormOptions {
  bool batch_statistics = true;  ///< normalise with the batch's mean and variance, else with the running ones
  double momentum = 0.1;  ///< weight of the batch in the running statistics, updated if batch_statistics
  double eps = 1e-5;      ///< added to the variance
};

/// What an op returns: one tensor, but for those that stand here.
template <class Struct>
struct ReturnOf {
  using type = Tensor;
};
namespace ops {
struct BatchNormGrad;
struct Conv1x1Stats;
struct LayerNormGrad;
struct Split;
}  // namespace ops
template <>
struct ReturnOf<ops::BatchNormGrad> {
  using type = std::array<Tensor, 3>;
};
template <>
struct ReturnOf<ops::Conv1x1Stats> {
  using type = std::array<Tensor, 3>;
};
template <>
struct ReturnOf<ops::LayerNormGrad> {
  using type = std::array<Tensor, 3>;
};
template <>
struct ReturnOf<ops::Split> {
  using type = Tensors;
};

namespace ops {
#define OP(name, Struct, ...) struct Struct;
#include "autograd/ops.def"
#undef OP
}  // namespace ops

#define OP(name, Struct, order, what, parameters, ...) ReturnOf<ops::Struct>::type name parameters;
#include "autograd/ops.def"
#undef OP

// --- compositions of the rows above
/// x's elements under another shape: a view where strides allow it, else a copy.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Elements start .. start + length of dimension dim, all of which must be there.
Tensor narrow(const Tensor& x, int dim, int64_t start, int64_t length);
/// Pieces of `size` along dim, the last one smaller where that does not come out even.
Tensors split(const Tensor& x, int64_t size, int dim = 0);
/// At most `count` pieces of equal size, as split.
Tensors chunk(const Tensor& x, int64_t count, int dim = 0);
/// x at each position of dimension dim, without that dimension.
Tensors unbind(const Tensor& x, int dim = 0);
/// x at one position of dimension dim, without that dimension.
Tensor select(const Tensor& x, int dim, int64_t index);
/// x with dimensions a and b exchanged.
Tensor transpose(const Tensor& x, int a, int b);
/// A matrix transposed; x itself if it has fewer dimensions.
Tensor t(const Tensor& x);
/// x without its dimensions of size 1, or without dimension dim if that has size 1.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int dim);
/// x with a new dimension of size 1 at dim.
Tensor unsqueeze(const Tensor& x, int dim);
/// Dimensions start to end (included) as one.
Tensor flatten(const Tensor& x, int start = 0, int end = -1);
/// x side by side with itself, repeats[d] times along dimension d; counts beyond x's dimensions lead.
Tensor repeat(const Tensor& x, const Shape& repeats);
/// Positions of the elements that are not 0, in row-major order: int64 [n, x.dim()]. Their number decides the
/// shape, so the host waits for the values.
Tensor nonzero(const Tensor& x);
/// The largest (smallest) of all elements; equals share the gradient.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// The largest (smallest) along dim and where it stands; the first of equals, which gets the gradient.
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false);
/// x within [low, high], either of which may be left out ({}). A number as bound: slope 0 at it; a tensor: x
/// and the bound share the gradient where they are equal.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high = {});
/// gelu, exact (approximate "none") or by tanh ("tanh").
Tensor gelu(const Tensor& x, std::string_view approximate);
/// x with the 0-d `value`, in x's dtype, where the bool mask holds. Throws Error for a finite value that is
/// outside the dtype's range.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// Tensors of one shape along a new dimension.
Tensor stack(Inputs tensors, int dim = 0);
/// x summed over the dimensions that broadcasting to x's shape from `shape` added: the inverse of expand.
Tensor sum_to(const Tensor& x, const Shape& shape);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }

}  // namespace mezzo
