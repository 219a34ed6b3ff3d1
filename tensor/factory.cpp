// Making tensors.
#include <algorithm>
#include <cmath>

#include "tensor/random.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

Tensor make(const Shape& shape, const TensorOptions& options, DType default_dtype) {
  const bool last = options.format == MemoryFormat::channels_last;
  if (last && shape.dim() != 4) {
    fail("empty", text("channels_last needs 4 dimensions but the shape is ", to_string(shape)));
  }
  const Shape strides = last ? channels_last_strides(shape) : contiguous_strides(shape);
  return empty_strided(shape, strides, options.dtype.value_or(default_dtype), options.device);
}

/// Turns on gradients where the options ask for them: last, so that filling is no change of a leaf.
Tensor finish(Tensor x, const TensorOptions& options) {
  if (options.requires_grad) x.requires_grad_();
  return x;
}

DType default_dtype(Scalar value) { return value.dtype() == float64 ? float32 : value.dtype(); }

}  // namespace

size_t checked_bytes(std::string_view op, const Shape& shape, DType dtype) {
  size_t bytes = size_of(dtype);
  for (int64_t size : shape) {
    if (size < 0) fail(op, text("size ", size, " is negative; shape ", to_string(shape)));
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes) || bytes > PTRDIFF_MAX) {
      fail(op, text("a tensor of shape ", to_string(shape), ' ', name_of(dtype),
                    " has more bytes than can be addressed"));
    }
  }
  return bytes;
}

Tensor make_view(const std::shared_ptr<Storage>& storage, int64_t offset, const Shape& shape,
                 const Shape& strides, DType dtype) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = storage;
  impl->offset = offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Device& device) {
  const size_t bytes = checked_bytes("empty", shape, dtype);
  return make_view(std::make_shared<Storage>(bytes, device), 0, shape, strides, dtype);
}

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return finish(make(shape, options, float32), options);
}

Tensor empty_like(const Tensor& like) {
  const bool keep = is_dense(like.shape(), like.strides());
  return empty_strided(like.shape(), keep ? like.strides() : contiguous_strides(like.shape()), like.dtype(),
                       like.device());
}

Tensor full(const Shape& shape, Scalar value, const TensorOptions& options) {
  const Tensor x = make(shape, options, default_dtype(value));
  kernels(x.device()).fill(x.view_of_memory(), value);
  return finish(x, options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0.0, options); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1.0, options); }

Tensor arange(Scalar end, const TensorOptions& options) { return arange(0, end, 1, options); }

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options) {
  const double span = end.to<double>() - start.to<double>(), by = step.to<double>();
  const double count = std::ceil(span / by);
  if (by == 0 || count < 0 || !std::isfinite(count) || count > 0x1p62) {
    fail("arange", text("no steps of ", by, " lead from ", start.to<double>(), " to ", end.to<double>()));
  }
  const bool floating = start.dtype() == float64 || end.dtype() == float64 || step.dtype() == float64;
  const Tensor x = make({static_cast<int64_t>(count)}, options, floating ? float32 : int64);
  kernels(x.device()).arange(x.view_of_memory(), start, step);
  return finish(x, options);
}

Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& options) {
  if (static_cast<int64_t>(values.size()) != shape.numel()) {
    fail("tensor", text(values.size(), " values do not fill shape ", to_string(shape)));
  }
  const Tensor host = empty(shape, {.dtype = float64});
  std::copy(values.begin(), values.end(), host.data<double>());
  const Tensor x = make(shape, options, float32);
  kernels(x.device()).copy(x.view_of_memory(), host.view_of_memory());
  return finish(x, options);
}

Tensor tensor(std::initializer_list<double> values, const TensorOptions& options) {
  return tensor(std::vector<double>(values), {static_cast<int64_t>(values.size())}, options);
}

Tensor rand(const Shape& shape, const TensorOptions& options) {
  const Tensor x = make(shape, options, float32);
  kernels(x.device()).uniform(x.view_of_memory(), default_generator().take(x.numel()), 0, 1);
  return finish(x, options);
}

Tensor randn(const Shape& shape, const TensorOptions& options) {
  const Tensor x = make(shape, options, float32);
  kernels(x.device()).normal(x.view_of_memory(), default_generator().take(x.numel()), 0, 1);
  return finish(x, options);
}

}  // namespace mezzo
