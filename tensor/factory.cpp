// Making tensors.
#include <algorithm>
#include <cmath>

#include "tensor/backend.h"
#include "tensor/pointwise_traits.h"
#include "tensor/pool.h"
#include "tensor/random_values.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

Shape format_strides(const Shape& shape, MemoryFormat format) {
  if (format == MemoryFormat::contiguous) return contiguous_strides(shape);
  if (shape.dim() != 4)
    fail("empty", text("channels_last needs 4 dimensions but the shape is ", to_string(shape)));
  return channels_last_strides(shape);
}

Tensor make(const Shape& shape, const TensorOptions& options, DType default_dtype) {
  return empty_strided(shape, format_strides(shape, options.format), options.dtype.value_or(default_dtype),
                       options.device);
}

Tensor filled_uniform(Tensor x) {
  kernels(x.device()).uniform(x.view_of_memory(), default_generator().take(x.numel(), x.device()), 0, 1);
  return x;
}

Tensor filled_normal(Tensor x) {
  kernels(x.device()).normal(x.view_of_memory(), default_generator().take(x.numel(), x.device()), 0, 1);
  return x;
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
  bool empty = false, too_many = false;
  for (int64_t size : shape) {
    if (size < 0) fail(op, text("size ", size, " is negative; shape ", to_string(shape)));
    empty |= size == 0;
    too_many |= __builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes) || bytes > PTRDIFF_MAX;
  }
  if (empty) return 0;
  if (too_many) {
    fail(op, text("a tensor of shape ", to_string(shape), ' ', name_of(dtype),
                  " has more bytes than can be addressed"));
  }
  return bytes;
}

Tensor make_view(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, const Shape& strides,
                 DType dtype) {
  return Tensor(make_pooled<TensorImpl>(std::move(storage), offset, shape, strides, dtype));
}

Tensor empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Device& device) {
  const size_t bytes = checked_bytes("empty", shape, dtype);
  return make_view(make_pooled<Storage>(bytes, device), 0, shape, strides, dtype);
}

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return finish(make(shape, options, float32), options);
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

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options) {
  if (steps < 0) fail("linspace", text("steps = ", steps, " is negative"));
  const Tensor x = make({steps}, options, float32);
  const double step = (end - start) / static_cast<double>(std::max<int64_t>(1, steps - 1));
  // From both ends to the middle, so that both are exact, as in PyTorch: the second half runs backwards.
  View first = x.view_of_memory(), second = first;
  first.shape[0] = (steps + 1) / 2;
  second.shape[0] = steps / 2;
  second.strides[0] = -1;
  second.data = second.as<std::byte>() + (steps - 1) * static_cast<int64_t>(size_of(x.dtype()));
  const Kernels& table = kernels(x.device());
  table.arange(first, start, step);
  if (steps > 1) table.arange(second, end, -step);
  return finish(x, options);
}

Tensor eye(int64_t rows, const TensorOptions& options) { return eye(rows, rows, options); }

Tensor eye(int64_t rows, int64_t columns, const TensorOptions& options) {
  const Tensor x = full({rows, columns}, 0.0, {.dtype = options.dtype, .device = options.device});
  View diagonal = x.view_of_memory();
  diagonal.shape = {std::min(rows, columns)};
  diagonal.strides = {columns + 1};
  kernels(x.device()).fill(diagonal, 1);
  return finish(x, options);
}

Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& options) {
  if (static_cast<int64_t>(values.size()) != shape.numel()) {
    fail("tensor", text(values.size(), " values do not fill shape ", to_string(shape)));
  }
  const Tensor host = empty(shape, {.dtype = float64});
  std::copy(values.begin(), values.end(), host.data<double>());
  const Tensor x = make(shape, options, float32);
  copy_elements(x, host);
  return finish(x, options);
}

Tensor tensor(std::initializer_list<double> values, const TensorOptions& options) {
  return tensor(std::vector<double>(values), {static_cast<int64_t>(values.size())}, options);
}

Tensor rand(const Shape& shape, const TensorOptions& options) {
  return finish(filled_uniform(make(shape, options, float32)), options);
}

Tensor randn(const Shape& shape, const TensorOptions& options) {
  return finish(filled_normal(make(shape, options, float32)), options);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options) {
  const double span = static_cast<double>(high) - static_cast<double>(low);
  if (!(span >= 1 && span <= 0x1p53))
    fail("randint", text("the range [", low, ", ", high, ") is empty, or too large"));
  const Tensor x = make(shape, options, int64);
  // A uniform number below 2^53 in float64 has a fraction to cut off; it cannot round up to the span.
  const Tensor fractions = empty(shape, {.dtype = float64, .device = options.device}),
               cut = empty_like(fractions, int64);
  const Kernels& table = kernels(x.device());
  table.uniform(fractions.view_of_memory(), default_generator().take(x.numel(), x.device()), 0, span);
  table.copy(cut.view_of_memory(), fractions.view_of_memory());
  const Tensor lowest = full({}, low, {.dtype = int64, .device = options.device}).expand(shape);
  const std::array<View, 2> sum{cut.view_of_memory(), lowest.view_of_memory()};
  table.pointwise[pointwise::index<pointwise::Add>].value(int64, x.view_of_memory(), sum);
  return finish(x, options);
}

Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options) {
  return randint(0, high, shape, options);
}

Tensor randperm(int64_t n, const TensorOptions& options) { return randperm(n, default_generator(), options); }

Tensor randperm(int64_t n, Generator generator, const TensorOptions& options) {
  if (n < 0) fail("randperm", text("n = ", n, " is negative"));
  const Tensor order = arange(n);
  auto* values = order.data<int64_t>();
  const PhiloxState state = generator.take(n);
  for (int64_t i = n - 1; i > 0; --i) {  // Fisher and Yates
    const auto draw = draws_of_block<double>(state, i / 2)[static_cast<size_t>(i % 2)];
    // The high word of draw * (i + 1): a number in [0, i], as good as evenly for any n that fits in memory.
    const auto other =
        static_cast<int64_t>(static_cast<unsigned __int128>(draw) * static_cast<uint64_t>(i + 1) >> 64);
    std::swap(values[i], values[other]);
  }
  const Tensor x = make({n}, options, int64);
  copy_elements(x, order);
  return finish(x, options);
}

Tensor empty_like(const Tensor& like, std::optional<DType> dtype) {
  const bool keep = is_dense(like.shape(), like.strides());
  return empty_strided(like.shape(), keep ? like.strides() : contiguous_strides(like.shape()),
                       dtype.value_or(like.dtype()), like.device());
}

Tensor full_like(const Tensor& like, Scalar value, std::optional<DType> dtype) {
  const Tensor x = empty_like(like, dtype);
  kernels(x.device()).fill(x.view_of_memory(), value);
  return x;
}

Tensor zeros_like(const Tensor& like, std::optional<DType> dtype) { return full_like(like, 0, dtype); }
Tensor ones_like(const Tensor& like, std::optional<DType> dtype) { return full_like(like, 1, dtype); }
Tensor rand_like(const Tensor& like, std::optional<DType> dtype) {
  return filled_uniform(empty_like(like, dtype));
}
Tensor randn_like(const Tensor& like, std::optional<DType> dtype) {
  return filled_normal(empty_like(like, dtype));
}

Tensor from_blob(const Blob& memory, const Shape& shape, const TensorOptions& options) {
  return from_blob(memory, shape, format_strides(shape, options.format), options);
}

Tensor from_blob(const Blob& memory, const Shape& shape, const Shape& strides, const TensorOptions& options) {
  const DType dtype = options.dtype.value_or(float32);
  checked_bytes("from_blob", shape, dtype);
  if (strides.dim() != shape.dim())
    fail("from_blob", text("strides ", to_string(strides), " do not belong to shape ", to_string(shape)));
  int64_t last = 0;  // position of the last element
  for (int d = 0; d < shape.dim(); ++d) {
    int64_t reach = 0;
    if (strides[d] < 0 || __builtin_mul_overflow(strides[d], std::max<int64_t>(shape[d] - 1, 0), &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      fail("from_blob", text("strides ", to_string(strides), " are negative or too large"));
    }
  }
  const auto held = memory.bytes / size_of(dtype);
  if (shape.numel() > 0 && (!memory.data || static_cast<uint64_t>(last) >= held)) {
    fail("from_blob",
         text("shape ", to_string(shape), " with strides ", to_string(strides), " needs ", last + 1,
              " elements of ", name_of(dtype), ", but the memory holds ", memory.data ? held : 0));
  }
  if (reinterpret_cast<uintptr_t>(memory.data) % size_of(dtype) != 0)
    fail("from_blob", text("the memory is not aligned for ", name_of(dtype)));
  if (memory.data && !in_host_memory(options.device) &&
      !backend(options.device).is_memory(memory.data, options.device.index))
    fail("from_blob", text("the memory is not that of ", to_string(options.device)), {},
         "make the tensor on the CPU, and move it with to(device)");
  auto storage = make_pooled<Storage>(memory.data, memory.bytes, options.device, memory.owner);
  return finish(make_view(std::move(storage), 0, shape, strides, dtype), options);
}

}  // namespace mezzo
