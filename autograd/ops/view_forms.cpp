// Functions that are made of the view rows: narrow, split by size, chunk, unbind, select, transpose, t,
// squeeze, unsqueeze, flatten, repeat.
#include <algorithm>

#include "autograd/ops.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

Tensor narrow(const Tensor& x, int dim, int64_t start, int64_t length) {
  const int d = wrap_dim("narrow", dim, x);
  if (x.dim() == 0) fail("narrow", "a 0-d tensor has no dimension to narrow", {{"input", x}});
  const int64_t size = x.shape()[d];
  if (start < 0 || length < 0 || start > size - length) {
    fail("narrow",
         text("elements ", start, " to ", start + length, " are outside dimension ", dim, " of size ", size),
         {{"input", x}});
  }
  return slice(x, d, start, start + length);
}

Tensors split(const Tensor& x, int64_t size, int dim) {
  const int d = wrap_dim("split", dim, x);
  if (size < 1) fail("split", text("pieces of ", size, " elements"), {{"input", x}});
  std::vector<int64_t> sizes;
  for (int64_t left = x.dim() ? x.shape()[d] : 0; left > 0; left -= size)
    sizes.push_back(std::min(size, left));
  return split(x, sizes.empty() ? std::vector<int64_t>{0} : sizes, d);
}

Tensors chunk(const Tensor& x, int64_t count, int dim) {
  const int d = wrap_dim("chunk", dim, x);
  if (count < 1) fail("chunk", text(count, " pieces"), {{"input", x}});
  const int64_t size = x.dim() ? x.shape()[d] : 0;
  if (size == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(count), 0), d);
  return split(x, (size + count - 1) / count, d);
}

Tensors unbind(const Tensor& x, int dim) {
  const int d = wrap_dim("unbind", dim, x);
  if (x.dim() == 0) fail("unbind", "a 0-d tensor has no dimension to unbind", {{"input", x}});
  Tensors slices = split(x, std::vector<int64_t>(static_cast<size_t>(x.shape()[d]), 1), d);
  for (Tensor& slice : slices) slice = slice.squeeze(d);
  return slices;
}

Tensor select(const Tensor& x, int dim, int64_t index) {
  const int d = wrap_dim("select", dim, x);
  const int64_t size = x.dim() ? x.shape()[d] : 0;
  if (index < -size || index >= size) {
    fail("select", text("index ", index, " is out of range for dimension ", dim, " of size ", size),
         {{"input", x}});
  }
  return narrow(x, d, index < 0 ? index + size : index, 1).squeeze(d);
}

Tensor transpose(const Tensor& x, int a, int b) {
  Shape dims;
  for (int d = 0; d < x.dim(); ++d) dims.push_back(d);
  const int from = wrap_dim("transpose", a, x), to = wrap_dim("transpose", b, x);
  if (x.dim() > 0) std::swap(dims[from], dims[to]);
  return permute(x, dims);
}

Tensor t(const Tensor& x) {
  if (x.dim() > 2) fail("t", "needs at most 2 dimensions", {{"input", x}}, "use transpose");
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

Tensor squeeze(const Tensor& x) {
  Shape squeezed;
  for (int64_t size : x.shape()) {
    if (size != 1) squeezed.push_back(size);
  }
  return squeezed == x.shape() ? x : view(x, squeezed);
}

Tensor squeeze(const Tensor& x, int dim) {
  const int d = wrap_dim("squeeze", dim, x);
  if (x.dim() == 0 || x.shape()[d] != 1) return x;
  Shape squeezed = x.shape();
  squeezed.erase(d);
  return view(x, squeezed);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const int d = dim < 0 ? dim + x.dim() + 1 : dim;
  if (d < 0 || d > x.dim()) {
    fail("unsqueeze", text("dimension ", dim, " is outside [", -x.dim() - 1, ", ", x.dim(), "]"),
         {{"input", x}});
  }
  Shape longer = x.shape();
  longer.insert(d, 1);
  return view(x, longer);
}

Tensor flatten(const Tensor& x, int start, int end) {
  const int from = wrap_dim("flatten", start, x), to = wrap_dim("flatten", end, x);
  if (from > to) fail("flatten", text("dimension ", start, " comes after ", end), {{"input", x}});
  if (x.dim() == 0) return reshape(x, {1});
  Shape flat;
  for (int d = 0; d < x.dim(); ++d) {
    if (d > from && d <= to)
      flat[flat.dim() - 1] *= x.shape()[d];
    else
      flat.push_back(x.shape()[d]);
  }
  return reshape(x, flat);
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  if (repeats.dim() < x.dim() ||
      std::any_of(repeats.begin(), repeats.end(), [](int64_t n) { return n < 0; })) {
    fail("repeat", text(to_string(repeats), " must give every dimension a count of at least 0"),
         {{"input", x}});
  }
  // Each dimension becomes [repeat, size]: the repeats are strides of 0 until reshape copies them.
  Shape apart, repeated, result;
  const int lead = repeats.dim() - x.dim();
  for (int d = 0; d < repeats.dim(); ++d) {
    const int64_t size = d < lead ? 1 : x.shape()[d - lead];
    result.push_back(repeats[d] * size);
    if (repeats[d] != 1) apart.push_back(1), repeated.push_back(repeats[d]);
    if (d >= lead) apart.push_back(size), repeated.push_back(size);
  }
  return reshape(x, apart).expand(repeated).reshape(result);
}

}  // namespace mezzo
