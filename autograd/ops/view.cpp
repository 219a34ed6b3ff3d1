// Views: they share x's memory and differ in shape, strides and offset. view, permute, expand, slice.
#include <algorithm>

#include "autograd/call.h"
#include "autograd/ops/parts.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// x's memory under another geometry, marked as a view.
Tensor share(const Tensor& x, int64_t offset, const Shape& shape, const Shape& strides) {
  Tensor out = make_view(x.impl()->storage, offset, shape, strides, x.dtype());
  out.impl()->is_view = true;
  out.impl()->rebases = x.impl()->storage->rebases();
  return out;
}

/// `shape` with a -1 replaced by what x's elements leave for it; throws Error if they do not fit.
Shape fit_shape(std::string_view op, const Tensor& x, Shape shape) {
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    *open = 1;
    const int64_t known = shape.numel();
    *open = known > 0 && x.numel() % known == 0 ? x.numel() / known : -1;
  }
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }) ||
      shape.numel() != x.numel()) {
    fail(op, text(x.numel(), " elements do not fit shape ", to_string(shape)), {{"input", x}});
  }
  return shape;
}

/// Strides that show `x`'s elements in row-major order as `shape`, if there are any: each run of x's
/// dimensions that lie behind each other in memory is cut anew.
std::optional<Shape> view_strides(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0) return contiguous_strides(shape);
  Shape strides = Shape::filled(shape.dim(), 1);
  int to = shape.dim() - 1;
  int64_t run = 1, filled = 1, stride = x.dim() ? x.strides()[x.dim() - 1] : 1;
  for (int from = x.dim() - 1; from >= 0; --from) {
    run *= x.shape()[from];
    const bool ends = from == 0 || (x.shape()[from - 1] != 1 && x.strides()[from - 1] != run * stride);
    if (!ends) continue;
    for (; to >= 0 && (filled < run || shape[to] == 1); --to) {
      strides[to] = filled * stride;
      filled *= shape[to];
    }
    if (filled != run) return std::nullopt;
    if (from > 0) stride = x.strides()[from - 1], run = filled = 1;
  }
  return strides;
}

}  // namespace

namespace ops {

Tensor joined(Inputs pieces, int dim) {
  const TensorImpl& first = *pieces[0].impl();
  const int d = wrap_dim("joined", dim, pieces[0]);
  Shape shape = first.shape;
  shape[d] = 0;
  for (const Tensor& piece : pieces) {
    const TensorImpl& impl = *piece.impl();
    Shape same = impl.shape;
    if (same.dim() == shape.dim()) same[d] = first.shape[d];
    if (same != first.shape || impl.storage != first.storage || impl.strides != first.strides ||
        impl.dtype != first.dtype || impl.offset != first.offset + shape[d] * first.strides[d])
      return {};
    shape[d] += impl.shape[d];
  }
  return share(pieces[0], first.offset, shape, first.strides);
}

struct ViewAs {
  static constexpr OpId id = OpId::view;
  Shape shape;

  struct Geometry {
    Shape shape, strides;
  };
  Geometry check(Inputs in) const {
    const Shape fitted = fit_shape("view", in[0], shape);
    const std::optional<Shape> strides = view_strides(in[0], fitted);
    if (!strides) {
      fail("view",
           text("strides ", to_string(in[0].strides()), " do not allow shape ", to_string(shape),
                " without a copy"),
           {{"input", in[0]}}, "use reshape");
    }
    return {fitted, *strides};
  }
  Tensor forward(Inputs in, Saver&, const Geometry& geometry) const {
    return share(in[0], in[0].impl()->offset, geometry.shape, geometry.strides);
  }
  Tensors backward(Node& node, Inputs g) const { return {reshape(g[0], node.input_info(0).shape)}; }
};

struct Permute {
  static constexpr OpId id = OpId::permute;
  Shape dims;

  void check(Inputs in) const {
    Shape seen = Shape::filled(in[0].dim(), 0);
    bool valid = dims.dim() == in[0].dim();
    for (int d = 0; valid && d < dims.dim(); ++d) valid = seen[wrap_dim("permute", dims[d], in[0])]++ == 0;
    if (!valid)
      fail("permute", text(to_string(dims), " does not name each dimension once"), {{"input", in[0]}});
  }
  Tensor forward(Inputs in, Saver&) const {
    Shape shape = in[0].shape(), strides = in[0].strides();
    for (int d = 0; d < dims.dim(); ++d) {
      const int from = wrap_dim("permute", dims[d], in[0]);
      shape[d] = in[0].shape()[from];
      strides[d] = in[0].strides()[from];
    }
    return share(in[0], in[0].impl()->offset, shape, strides);
  }
  /// The inverse permutation.
  Tensors backward(Node&, Inputs g) const {
    Shape inverse = dims;
    for (int d = 0; d < dims.dim(); ++d) inverse[wrap_dim("permute", dims[d], g[0])] = d;
    return {permute(g[0], inverse)};
  }
};

struct Expand {
  static constexpr OpId id = OpId::expand;
  Shape shape;

  /// The result's shape: -1 keeps a size.
  Shape target(const Tensor& x) const {
    Shape result = shape;
    const int lead = shape.dim() - x.dim();
    for (int d = std::max(lead, 0); d < shape.dim(); ++d) {
      if (result[d] == -1) result[d] = x.shape()[d - lead];
    }
    return result;
  }
  void check(Inputs in) const {
    Shape joint;
    const Shape wanted = target(in[0]);
    if (!broadcast(in[0].shape(), wanted, joint) || joint != wanted ||
        std::any_of(wanted.begin(), wanted.end(), [](int64_t size) { return size < 0; })) {
      fail("expand", text("cannot expand to ", to_string(shape)), {{"input", in[0]}},
           "only dimensions of size 1 can be repeated");
    }
  }
  Tensor forward(Inputs in, Saver&) const {
    const Shape wanted = target(in[0]);
    const int lead = wanted.dim() - in[0].dim();
    Shape strides = Shape::filled(wanted.dim(), 0);
    for (int d = lead; d < wanted.dim(); ++d) {
      if (in[0].shape()[d - lead] == wanted[d]) strides[d] = in[0].strides()[d - lead];
    }
    return share(in[0], in[0].impl()->offset, wanted, strides);
  }
  /// The engine sums over what broadcasting repeated.
  Tensors backward(Node&, Inputs g) const { return {g[0]}; }
};

struct SliceDim {
  static constexpr OpId id = OpId::slice;
  int dim;
  int64_t start, end, step;

  void check(Inputs in) const {
    wrap_dim("slice", dim, in[0]);
    if (in[0].dim() == 0) fail("slice", "a 0-d tensor has no dimension to slice", {{"input", in[0]}});
    if (step < 1)
      fail("slice", text("step = ", step, " is not positive"), {{"input", in[0]}}, "use index_select");
  }
  /// A bound as a position in [0, size].
  static int64_t clamped(int64_t bound, int64_t size) {
    return std::clamp<int64_t>(bound < 0 ? bound + size : bound, 0, size);
  }
  Tensor forward(Inputs in, Saver&) const {
    const int d = wrap_dim("slice", dim, in[0]);
    Shape shape = in[0].shape(), strides = in[0].strides();
    const int64_t size = shape[d], first = clamped(start, size), length = clamped(end, size) - first;
    shape[d] = length > 0 ? (length - 1) / step + 1 : 0;
    const int64_t offset = in[0].impl()->offset + first * strides[d];
    if (shape[d] > 1) strides[d] *= step;
    return share(in[0], offset, shape, strides);
  }
  Tensors backward(Node& node, Inputs g) const {
    const Shape whole = node.input_info(0).shape;
    const int64_t size = whole[dim < 0 ? dim + whole.dim() : dim];
    return {embed(g[0], dim, clamped(start, size), size, step)};
  }
};

struct Split {
  static constexpr OpId id = OpId::split;
  std::vector<int64_t> sizes;
  int dim;

  void check(Inputs in) const {
    const int d = wrap_dim("split", dim, in[0]);
    if (in[0].dim() == 0) fail("split", "a 0-d tensor has no dimension to split", {{"input", in[0]}});
    const int64_t size = in[0].shape()[d];
    int64_t sum = 0;
    for (const int64_t piece : sizes) {
      if (piece < 0 || piece > size) fail("split", text("a piece of size ", piece), {{"input", in[0]}});
      sum += piece;
    }
    if (sum != size)
      fail("split", text("the pieces have ", sum, " elements, not ", size), {{"input", in[0]}});
  }
  Tensors forward(Inputs in, Saver&) const {
    const int d = wrap_dim("split", dim, in[0]);
    Shape shape = in[0].shape();
    int64_t offset = in[0].impl()->offset;
    Tensors pieces;
    for (const int64_t size : sizes) {
      shape[d] = size;
      pieces.push_back(share(in[0], offset, shape, in[0].strides()));
      offset += size * in[0].strides()[d];
    }
    return pieces;
  }
  Tensors backward(Node& node, Inputs g) const {
    Tensors pieces(g.begin(), g.end());
    for (size_t i = 0; i < pieces.size(); ++i) {
      const OutputInfo& output = node.outputs[i];
      if (!pieces[i].defined())
        pieces[i] = zeros(output.shape, {.dtype = output.dtype, .device = output.device});
    }
    // An op whose inputs were the pieces may have laid their gradients out likewise.
    if (const Tensor whole = wants_record(pieces) ? Tensor() : joined(pieces, dim); whole.defined())
      return {whole};
    return {cat(pieces, dim)};
  }
};

}  // namespace ops

Tensor view(const Tensor& x, const Shape& shape) { return call(ops::ViewAs{shape}, x); }
Tensor permute(const Tensor& x, const Shape& dims) { return call(ops::Permute{dims}, x); }
Tensor expand(const Tensor& x, const Shape& shape) { return call(ops::Expand{shape}, x); }
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t end, int64_t step) {
  return call(ops::SliceDim{dim, start, end, step}, x);
}

Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int dim) {
  return call(ops::Split{sizes, dim}, x);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape fitted = fit_shape("reshape", x, shape);
  return view_strides(x, fitted) ? view(x, fitted) : view(clone(x, contiguous_format), fitted);
}

template <>
std::vector<Sample> samples<OpId::view>() {
  const auto as = [](Shape shape) { return [shape](Inputs in) { return Tensors{view(in[0], shape)}; }; };
  return {{"split and merge", {uniform_sample({2, 6, 4})}, as({3, 4, -1})},
          {"channels split", {uniform_sample({2, 4, 3, 3})}, as({2, 2, 2, 3, 3})},
          {"to 0-d", {uniform_sample({1, 1})}, as({})},
          {"from 0-d", {uniform_sample({})}, as({1, 1})},
          {"empty", {uniform_sample({0, 3})}, as({3, 0, 2})}};
}

template <>
std::vector<Sample> samples<OpId::permute>() {
  const auto by = [](Shape dims) { return [dims](Inputs in) { return Tensors{permute(in[0], dims)}; }; };
  return {{"cycle", {uniform_sample({2, 3, 4})}, by({1, 2, 0})},
          {"4-d", {uniform_sample({2, 3, 4, 5})}, by({0, -1, 1, 2})},
          {"0-d", {uniform_sample({})}, by({})},
          {"empty", {uniform_sample({0, 3})}, by({1, 0})}};
}

template <>
std::vector<Sample> samples<OpId::expand>() {
  const auto to = [](Shape shape) { return [shape](Inputs in) { return Tensors{expand(in[0], shape)}; }; };
  return {{"inner and leading", {uniform_sample({3, 1})}, to({2, -1, 4})},
          {"images", {uniform_sample({2, 3, 1, 4})}, to({2, 3, 5, 4})},
          {"0-d", {uniform_sample({})}, to({2, 3})},
          {"to nothing", {uniform_sample({1, 3})}, to({0, 3})}};
}

template <>
std::vector<Sample> samples<OpId::slice>() {
  const auto part = [](int dim, int64_t start, int64_t end, int64_t step) {
    return [=](Inputs in) { return Tensors{slice(in[0], dim, start, end, step)}; };
  };
  return {{"middle", {uniform_sample({3, 5, 2})}, part(1, 1, 4, 1)},
          {"last dimension, to beyond its end", {uniform_sample({2, 3, 4, 5})}, part(-1, 0, 9, 2)},
          {"every third, from the end", {uniform_sample({7, 2})}, part(0, -6, -1, 3)},
          {"nothing", {uniform_sample({3, 2})}, part(0, 3, 3, 1)}};
}

template <>
std::vector<Sample> samples<OpId::split>() {
  const auto into = [](const std::vector<int64_t>& sizes, int dim) {
    return [=](Inputs in) { return split(in[0], sizes, dim); };
  };
  return {{"three pieces, one of nothing", {uniform_sample({2, 5, 3})}, into({2, 0, 3}, 1)},
          {"last dimension", {uniform_sample({3, 4})}, into({1, 3}, -1)},
          {"4-d", {uniform_sample({2, 4, 3, 2})}, into({3, 1}, 1)},
          {"one piece", {uniform_sample({4})}, into({4}, 0)}};
}

}  // namespace mezzo
