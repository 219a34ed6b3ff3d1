#include "tensor/shape.h"

#include <algorithm>

#include "tensor/error.h"

namespace mezzo {

Shape::Shape(std::span<const int64_t> sizes) {
  if (sizes.size() > max_dims) {
    fail("shape", text("has ", sizes.size(), " dimensions but tensors have at most ", max_dims));
  }
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  dims_ = static_cast<int>(sizes.size());
}

Shape Shape::filled(int dims, int64_t value) {
  Shape shape;
  for (int d = 0; d < dims; ++d) shape.push_back(value);
  return shape;
}

void Shape::push_back(int64_t size) { insert(dims_, size); }

void Shape::insert(int at, int64_t size) {
  if (dims_ == max_dims) fail("shape", text("tensors have at most ", max_dims, " dimensions"));
  std::copy_backward(begin() + at, end(), end() + 1);
  sizes_[static_cast<size_t>(at)] = size;
  ++dims_;
}

void Shape::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --dims_;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int d = 0; d < shape.dim(); ++d) out += (d ? ", " : "") + std::to_string(shape[d]);
  return out + "]";
}

namespace {

/// Dense strides when dimension order[0] is the innermost, order[1] the next.
Shape dense_strides(const Shape& shape, std::span<const int> order) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int d : order) {
    strides[d] = stride;
    // Past 64 bits the number has no meaning, but no tensor either: checked_bytes refuses the shape.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[d], 1), &stride)) stride = 0;
  }
  return strides;
}

}  // namespace

Shape contiguous_strides(const Shape& shape) {
  std::array<int, Shape::max_dims> order{};
  for (int d = 0; d < shape.dim(); ++d) order[static_cast<size_t>(d)] = shape.dim() - 1 - d;
  return dense_strides(shape, std::span(order).first(static_cast<size_t>(shape.dim())));
}

Shape channels_last_strides(const Shape& shape) {
  constexpr std::array<int, 4> order = {1, 3, 2, 0};
  return dense_strides(shape, order);
}

bool is_dense(const Shape& shape, const Shape& strides) {
  const int64_t numel = shape.numel();
  if (numel == 0) return true;
  // Each round finds the dimension that continues where the ones found before end; row-major strides are done
  // in one.
  int64_t expected = 1;
  std::array<bool, Shape::max_dims> placed{};
  for (int round = 0; expected != numel && round < shape.dim(); ++round) {
    for (int d = shape.dim() - 1; d >= 0; --d) {
      bool& done = placed[static_cast<size_t>(d)];
      if (done || (shape[d] != 1 && strides[d] != expected)) continue;
      expected *= shape[d];
      done = true;
    }
  }
  return expected == numel;
}

bool broadcast(const Shape& a, const Shape& b, Shape& result) {
  result = a.dim() >= b.dim() ? a : b;
  const Shape& shorter = a.dim() >= b.dim() ? b : a;
  const int lead = result.dim() - shorter.dim();
  for (int d = 0; d < shorter.dim(); ++d) {
    int64_t& size = result[lead + d];
    if (size == 1)
      size = shorter[d];
    else if (shorter[d] != 1 && shorter[d] != size)
      return false;
  }
  return true;
}

}  // namespace mezzo
