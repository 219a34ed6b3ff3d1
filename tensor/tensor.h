// Long: the whole surface of Tensor in one place.
//
// Tensor: a small handle; copies share elements, gradient and history. Methods below the line "in the table"
// are ops: free functions of the same name stand in autograd/ops.def, with the formula and what they do.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/hooks.h"
#include "tensor/scalar.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace mezzo {

class Generator;
class Indexed;
class Node;
class Tensor;
struct TensorImpl;
struct TensorIndex;
struct ValuesAndIndices;
struct View;

/// Order of a 4-d tensor's memory: row-major N, C, H, W, or N, H, W, C. A property of strides, not a type.
enum class MemoryFormat : uint8_t { contiguous, channels_last };
inline constexpr MemoryFormat channels_last = MemoryFormat::channels_last;
inline constexpr MemoryFormat contiguous_format = MemoryFormat::contiguous;

/// How a tensor is made: `zeros({2, 3}, {.dtype = float16})`.
struct TensorOptions {
  std::optional<DType> dtype{};  ///< default: float32, or what the values say
  Device device{};
  bool requires_grad = false;
  MemoryFormat format = MemoryFormat::contiguous;
};

/// Sees a gradient, and returns what is to replace it; an undefined Tensor keeps it.
using TensorHook = std::function<Tensor(const Tensor& grad)>;

/// Dimensions to reduce: `{0, 2}`, or one: `1`. None stands for all. Negative ones count from the end.
struct Dims : Shape {
  Dims() = default;
  Dims(int dim) : Shape({dim}) {}
  Dims(std::initializer_list<int64_t> dims) : Shape(dims) {}
};

class Tensor {
 public:
  Tensor() = default;
  /// A number beside tensors: 0-d, and giving way to them in type promotion (`x + 1.5` keeps x's float16).
  template <Number T>
  Tensor(T number) : Tensor(Scalar(number)) {}
  Tensor(Scalar number);
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  // Of variables alone: `f(x) = y` would change a handle that nobody holds. x[0] = y writes elements:
  // tensor/index.h.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;

  // --- what it is
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  const Shape& strides() const;  ///< in elements
  int dim() const { return shape().dim(); }
  int64_t size(int dim) const;  ///< negative dims count from the end
  int64_t numel() const { return shape().numel(); }
  DType dtype() const;
  const Device& device() const;
  bool is_contiguous(MemoryFormat format = contiguous_format) const;
  uint32_t version() const;  ///< in-place changes of its memory so far, by any view

  // --- its elements
  /// First element, as T, which must be the dtype; the tensor must live in the CPU's memory. Strides apply.
  template <Element T>
  T* data() const {
    return static_cast<T*>(data_as(dtype_of<T>));
  }
  /// The value of a one-element tensor, converted to T.
  template <class T>
  T item() const {
    return item_as_scalar().to<T>();
  }
  /// Elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;

  // --- gradient; see autograd/
  bool requires_grad() const;
  Tensor& requires_grad_(bool requires_grad = true);
  bool is_leaf() const;
  const Tensor& grad() const;
  /// The gradient to assign to; an undefined tensor stands for none.
  void set_grad(const Tensor& grad);
  /// Keeps the gradient of a tensor that is not a leaf.
  void retain_grad();
  /// Runs `hook` in each backward on this tensor's gradient, once that is complete and before it goes on or
  /// is kept; several in their order. It must not change the gradient in place. Throws Error if the tensor
  /// does not require grad, and in backward if a hook returns another shape, dtype or device.
  HookHandle register_hook(TensorHook hook);
  /// Adds d this / d leaf to the gradient of every leaf below. `gradient` defaults to 1 for a scalar.
  /// Threads may run separate graphs at once that reach no common leaf; grad() may share those too.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// The same elements without history.
  Tensor detach() const;
  /// Takes over the memory, dtype and layout of `data` (of the same shape) and stays the tensor that it is:
  /// handles, modules and optimizers that share it see the new data.
  void set_data(const Tensor& data);
  const std::shared_ptr<Node>& grad_fn() const;

  // --- in place; each counts as one change of the memory. A leaf that requires grad refuses while recording.
  Tensor& copy_(const Tensor& from);
  Tensor& fill_(Scalar value);
  Tensor& zero_() { return fill_(0); }
  /// Writes `value`, broadcast, to what index({...}) would give. `accumulate` adds it instead, once for every
  /// time that a position occurs.
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false);
  Tensor& scatter_(int dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_add_(int dim, const Tensor& index, const Tensor& source);
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double std = 1);
  Tensor& add_(const Tensor& b);
  Tensor& sub_(const Tensor& b);
  Tensor& mul_(const Tensor& b);
  Tensor& div_(const Tensor& b);
  Tensor& floor_divide_(const Tensor& b);
  Tensor& remainder_(const Tensor& b);
  Tensor& fmod_(const Tensor& b);
  Tensor& pow_(const Tensor& b);
  Tensor& clamp_(const Tensor& low, const Tensor& high = {});
  Tensor& masked_fill_(const Tensor& mask, const Tensor& value);
  Tensor& neg_();
  Tensor& abs_();
  Tensor& exp_();
  Tensor& log_();
  Tensor& sqrt_();
  Tensor& tanh_();
  Tensor& sigmoid_();
  Tensor& relu_();
  Tensor& floor_();
  Tensor& ceil_();
  Tensor& round_();
  Tensor& trunc_();
  Tensor& operator+=(const Tensor& b) { return add_(b); }
  Tensor& operator-=(const Tensor& b) { return sub_(b); }
  Tensor& operator*=(const Tensor& b) { return mul_(b); }
  Tensor& operator/=(const Tensor& b) { return div_(b); }

  // --- in the table: dtype, device, layout
  Tensor to(DType dtype) const;
  Tensor to(const Device& device) const;
  Tensor to(MemoryFormat format) const;
  Tensor cpu() const { return to(Device()); }
  Tensor cuda(int index = 0) const { return to(Device(Device::Type::cuda, index)); }
  Tensor half() const;  ///< to(float16); float() and double() would be keywords: to(float32), to(float64)
  Tensor bfloat16() const;
  Tensor clone() const;
  Tensor contiguous(MemoryFormat format = contiguous_format) const;

  // --- in the table: views
  Tensor reshape(const Shape& shape) const;
  Tensor view(const Shape& shape) const;
  Tensor permute(const Shape& dims) const;
  Tensor transpose(int a, int b) const;
  Tensor t() const;
  Tensor expand(const Shape& shape) const;
  Tensor squeeze() const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  Tensor flatten(int start = 0, int end = -1) const;
  Tensor slice(int dim, int64_t start = 0, int64_t end = INT64_MAX, int64_t step = 1) const;
  Tensor narrow(int dim, int64_t start, int64_t length) const;
  Tensor select(int dim, int64_t index) const;
  Tensor repeat(const Shape& repeats) const;

  // --- in the table: elements by position; tensor/index.h says what indices there are
  Indexed operator[](int64_t position) const;
  Indexed index(const std::vector<TensorIndex>& indices) const;
  Tensor nonzero() const;
  Tensor gather(int dim, const Tensor& index) const;
  Tensor scatter(int dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter_add(int dim, const Tensor& index, const Tensor& source) const;
  Tensor index_select(int dim, const Tensor& index) const;

  // --- in the table: pointwise, with broadcasting and type promotion
  Tensor add(const Tensor& b) const;
  Tensor sub(const Tensor& b) const;
  Tensor mul(const Tensor& b) const;
  Tensor div(const Tensor& b) const;
  Tensor floor_divide(const Tensor& b) const;
  Tensor remainder(const Tensor& b) const;
  Tensor fmod(const Tensor& b) const;
  Tensor pow(const Tensor& b) const;
  Tensor maximum(const Tensor& b) const;
  Tensor minimum(const Tensor& b) const;
  Tensor clamp(const Tensor& low, const Tensor& high = {}) const;
  Tensor lerp(const Tensor& b, const Tensor& weight) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor neg() const;
  Tensor abs() const;
  Tensor square() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor log_sigmoid() const;
  Tensor relu() const;
  Tensor sign() const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor expm1() const;
  Tensor log1p() const;
  Tensor log2() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor erf() const;
  Tensor isnan() const;
  Tensor isinf() const;
  Tensor isfinite() const;
  Tensor eq(const Tensor& b) const;
  Tensor ne(const Tensor& b) const;
  Tensor lt(const Tensor& b) const;
  Tensor le(const Tensor& b) const;
  Tensor gt(const Tensor& b) const;
  Tensor ge(const Tensor& b) const;
  Tensor logical_and(const Tensor& b) const;
  Tensor logical_or(const Tensor& b) const;
  Tensor logical_xor(const Tensor& b) const;
  Tensor logical_not() const;

  // --- in the table: reductions and products
  Tensor sum(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = std::nullopt) const;
  Tensor mean(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = std::nullopt) const;
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor prod(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = std::nullopt) const;
  Tensor var(const Dims& dims = {}, int64_t correction = 1, bool keepdim = false) const;
  Tensor std(const Dims& dims = {}, int64_t correction = 1, bool keepdim = false) const;
  Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false,
              std::optional<DType> dtype = std::nullopt) const;
  Tensor argmax(const Dims& dim = {}, bool keepdim = false) const;
  Tensor argmin(const Dims& dim = {}, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  ValuesAndIndices max(int dim, bool keepdim = false) const;
  ValuesAndIndices min(int dim, bool keepdim = false) const;
  Tensor logsumexp(const Dims& dims, bool keepdim = false) const;
  Tensor softmax(int dim, std::optional<DType> dtype = std::nullopt) const;
  Tensor log_softmax(int dim, std::optional<DType> dtype = std::nullopt) const;
  Tensor matmul(const Tensor& b) const;
  Tensor addmm(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1) const;

  // --- for kernels and the engine
  TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<TensorImpl>& handle() const { return impl_; }
  View view_of_memory() const;
  void bump_version() const;

 private:
  void* data_as(DType dtype) const;
  Scalar item_as_scalar() const;

  std::shared_ptr<TensorImpl> impl_;
};

/// What an op finds along a dimension, and at which positions.
struct ValuesAndIndices {
  Tensor values, indices;
};

// --- making tensors; all throw Error for a negative size or a size that overflows
Tensor empty(const Shape& shape, const TensorOptions& options = {});
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});  ///< dtype from the value
Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
/// start, start + step, ... below `end`; int64 if all three are integers, else float32.
Tensor arange(Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, Scalar step = 1, const TensorOptions& options = {});
/// `steps` values from start to end, both included, evenly apart; float32.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});
/// [rows, columns] with ones where row and column are equal, else zeros. One number stands for both.
Tensor eye(int64_t rows, const TensorOptions& options = {});
Tensor eye(int64_t rows, int64_t columns, const TensorOptions& options = {});
/// Row-major values, converted to the dtype of the options (default float32; integers: int64).
Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& options = {});
Tensor tensor(std::initializer_list<double> values, const TensorOptions& options = {});
/// Uniform in [0, 1).
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Normal with mean 0 and variance 1.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// Integers of equal probability in [low, high); int64.
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {});
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options = {});
/// 0, 1, ..., n - 1 in random order; int64. The order is drawn from the default generator or the given one.
Tensor randperm(int64_t n, const TensorOptions& options = {});
Tensor randperm(int64_t n, Generator generator, const TensorOptions& options = {});
/// With the shape, device, dense layout and, if none is given, dtype of `like`; empty_like is not
/// initialised.
Tensor empty_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor zeros_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor ones_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor full_like(const Tensor& like, Scalar value, std::optional<DType> dtype = std::nullopt);
Tensor rand_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor randn_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);

/// Memory that somebody else owns.
struct Blob {
  void* data;
  size_t bytes;
  std::shared_ptr<const void> owner{};  ///< kept as long as a tensor uses the memory
};
/// A tensor over such memory, without a copy; dtype float32 unless options say another. `strides` (in
/// elements; none: row-major) must stay inside it. Throws Error if they do not, or if the memory is not
/// aligned for the dtype.
Tensor from_blob(const Blob& memory, const Shape& shape, const TensorOptions& options = {});
Tensor from_blob(const Blob& memory, const Shape& shape, const Shape& strides,
                 const TensorOptions& options = {});

/// Values as PyTorch prints them: 4 digits, columns aligned, the middle of large tensors left out; then what
/// is not the default: dtype, device, requires_grad or grad_fn.
std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// `[8,3,32,32] float32 cpu`, as errors describe an operand.
std::string describe(const Tensor& tensor);

}  // namespace mezzo
