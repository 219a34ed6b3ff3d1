// x.index({...}): integers, ranges, new dimensions and ellipsis give a view, one entry after the other; index
// tensors then become one list of positions along one dimension, which index_select and scatter know.
#include <algorithm>

#include "autograd/ops/along.h"
#include "autograd/ops/check.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// x after the entries that make views, and the index tensors by the dimension of that at which they stand.
struct Parts {
  Tensor view;
  std::vector<int> dims;
  Tensors positions;
};

/// How many of x's dimensions an entry speaks of.
int dims_of(const TensorIndex& index) {
  if (const auto* tensor = std::get_if<Tensor>(&index.value)) {
    return tensor->defined() && tensor->dtype() == bool_ ? tensor->dim() : 1;
  }
  return std::holds_alternative<int64_t>(index.value) || std::holds_alternative<Slice>(index.value) ? 1 : 0;
}

/// Takes an index tensor in at dimension d, which it moves on: positions as they are, masks as the positions
/// that they hold at.
void add_tensor(std::string_view op, Parts& parts, const Tensor& index, int& d) {
  if (!index.defined()) fail(op, "an index tensor is undefined");
  if (index.dtype() == int64 || index.dtype() == int32) {
    parts.dims.push_back(d++);
    parts.positions.push_back(index.to(int64));
    return;
  }
  if (index.dtype() != bool_) {
    fail(op, "an index tensor must be int64 or int32, or a bool mask",
         {{"input", parts.view}, {"index", index}});
  }
  if (index.dim() == 0) {  // takes all or nothing, in a new dimension
    parts.view = parts.view.unsqueeze(d);
    return add_tensor(op, parts, index.unsqueeze(0), d);
  }
  for (int i = 0; i < index.dim(); ++i) {
    if (index.size(i) != parts.view.size(d + i)) {
      fail(op, text("the mask does not fit the dimensions from ", d, " on"),
           {{"input", parts.view}, {"mask", index}});
    }
  }
  const Tensor found = nonzero(index);
  for (int i = 0; i < index.dim(); ++i) {
    parts.dims.push_back(d++);
    parts.positions.push_back(found.select(1, i));
  }
}

Parts apply(std::string_view op, const Tensor& x, const std::vector<TensorIndex>& indices) {
  int named = 0;
  for (const TensorIndex& index : indices) named += dims_of(index);
  const auto is_ellipsis = [](const TensorIndex& index) {
    return std::holds_alternative<EllipsisType>(index.value);
  };
  if (std::ranges::count_if(indices, is_ellipsis) > 1) fail(op, "there are several ellipses", {{"input", x}});
  if (named > x.dim()) {
    fail(op, text("there are indices for ", named, " dimensions, but the input has ", x.dim()),
         {{"input", x}});
  }
  Parts parts{x, {}, {}};
  int d = 0;
  for (const TensorIndex& index : indices) {
    Tensor& view = parts.view;
    if (const auto* position = std::get_if<int64_t>(&index.value)) {
      view = view.select(d, *position);
    } else if (const auto* range = std::get_if<Slice>(&index.value)) {
      view = view.slice(d++, range->start.value_or(0), range->stop.value_or(INT64_MAX), range->step);
    } else if (is_ellipsis(index)) {
      d += x.dim() - named;
    } else if (const auto* tensor = std::get_if<Tensor>(&index.value)) {
      add_tensor(op, parts, *tensor, d);
    } else {
      view = view.unsqueeze(d++);
    }
  }
  return parts;
}

/// The index tensors as one: `rows` along dimension `dim` of `source`, which is the view with the indexed
/// dimensions made one. They go to the front first if they do not lie side by side.
struct Rows {
  Tensor together;  ///< the view, its indexed dimensions side by side
  Tensor source, rows;
  int dim;
  Shape result;  ///< shape of together[rows]

  Rows(std::string_view op, const Parts& parts) : together(parts.view), dim(parts.dims.front()) {
    const int count = static_cast<int>(parts.dims.size());
    if (parts.dims.back() != dim + count - 1) {
      Shape order;
      for (int d : parts.dims) order.push_back(d);
      for (int d = 0; d < parts.view.dim(); ++d) {
        if (std::ranges::find(parts.dims, d) == parts.dims.end()) order.push_back(d);
      }
      together = permute(parts.view, order);
      dim = 0;
    }
    rows = as_one(op, parts.positions);
    source = count == 1 ? together : flatten(together, dim, dim + count - 1);
    for (int d = 0; d < together.dim(); ++d) {
      if (d == dim)
        for (int64_t size : rows.shape()) result.push_back(size);
      if (d < dim || d >= dim + count) result.push_back(together.size(d));
    }
  }

  /// Row-major positions in the indexed dimensions, none of them negative.
  Tensor as_one(std::string_view op, const Tensors& positions) const {
    Tensor joined;
    for (int i = 0; i < static_cast<int>(positions.size()); ++i) {
      const Tensor& index = positions[static_cast<size_t>(i)];
      const int64_t size = together.size(dim + i);
      ops::check_range(op, "index", index, size, {{"input", together}, {"index", index}}, -size);
      Tensor at = where(lt(index, 0), add(index, size), index);
      Shape joint;
      if (joined.defined() && !broadcast(joined.shape(), at.shape(), joint)) {
        fail(op, "the index tensors do not broadcast to one shape", {{"one", joined}, {"other", index}});
      }
      joined = joined.defined() ? add(mul(joined, size), at) : at;
    }
    return joined;
  }
};

/// x without leading dimensions of size 1 that a target of `dims` dimensions has no place for.
Tensor without_leading(Tensor x, int dims) {
  while (x.dim() > dims && x.size(0) == 1) x = x.squeeze(0);
  return x;
}

}  // namespace

TensorIndex::TensorIndex(const char* dots) : value(Ellipsis) {
  if (std::string_view(dots) != "...") fail("index", text('"', dots, "\" is no index"), {}, "\"...\" is one");
}

Indexed Tensor::index(const std::vector<TensorIndex>& indices) const {
  const Parts parts = apply("index", *this, indices);
  if (parts.positions.empty()) return Indexed(parts.view);
  const Rows rows("index", parts);
  const Tensor picked = rows.source.index_select(rows.dim, rows.rows.flatten());
  return Indexed(picked.reshape(rows.result), *this, indices);
}

Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate) {
  constexpr std::string_view op = "index_put_";
  if (!value.defined()) fail(op, "the value is undefined", {{"tensor", *this}});
  Parts parts = apply(op, *this, indices);
  if (parts.positions.empty()) {
    const Tensor fitted = without_leading(value, parts.view.dim());
    accumulate ? parts.view.add_(fitted) : parts.view.copy_(fitted);
    return *this;
  }
  Rows rows(op, parts);
  Shape joint;
  const Tensor fitted = without_leading(value, rows.result.dim());
  if (!broadcast(fitted.shape(), rows.result, joint) || joint != rows.result) {
    fail(op, text("the value does not broadcast to ", to_string(rows.result)),
         {{"tensor", *this}, {"value", value}});
  }
  Shape put = rows.source.shape();
  put[rows.dim] = rows.rows.numel();
  const Tensor positions = ops::along(rows.rows, rows.dim, put.dim()).expand(put);
  const Tensor from = fitted.to(dtype()).to(device()).expand(rows.result).reshape(put);
  const bool is_copy = rows.source.impl()->storage != impl_->storage;
  accumulate ? rows.source.scatter_add_(rows.dim, positions, from)
             : rows.source.scatter_(rows.dim, positions, from);
  if (is_copy) rows.together.copy_(rows.source.reshape(rows.together.shape()));
  return *this;
}

Indexed& Indexed::operator=(const Tensor& value) && {
  base_.defined() ? base_.index_put_(indices_, value) : index_put_({}, value);
  return *this;
}

Tensor nonzero(const Tensor& x) {
  const std::vector<bool> set = x.to_vector<bool>();
  const Tensor found = empty({std::ranges::count(set, true), x.dim()}, {.dtype = int64});
  auto* out = found.data<int64_t>();
  Shape at = Shape::filled(x.dim(), 0);
  for (const bool is_set : set) {
    if (is_set) out = std::ranges::copy(at, out).out;
    for (int d = x.dim() - 1; d >= 0 && ++at[d] == x.size(d); --d) at[d] = 0;
  }
  return found.to(x.device());
}

}  // namespace mezzo
