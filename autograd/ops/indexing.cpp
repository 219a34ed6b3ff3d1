// Elements at the positions that an integer tensor says: gather, scatter, scatter_add, index_select.
#include "autograd/call.h"
#include "autograd/ops/along.h"
#include "autograd/ops/check.h"
#include "autograd/ops/inplace.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// Throws Error unless index holds integers, all of them positions along dimension d of x.
void check_positions(std::string_view op, const Tensor& x, int d, const Tensor& index) {
  if (!is_integral(index.dtype()))
    fail(op, "index must have an integer dtype", {{"input", x}, {"index", index}});
  const int64_t size = x.dim() ? x.size(d) : 1;
  check_range(op, "index", index, size, {{"input", x}, {"index", index}});
}

/// The same, where index has x's dimensions and is not longer than x in any but dimension d.
void check_beside(std::string_view op, const Tensor& x, int dim, const Tensor& index) {
  const int d = wrap_dim(op, dim, x);
  bool fits = index.dim() == x.dim();
  for (int i = 0; fits && i < x.dim(); ++i) fits = i == d || index.size(i) <= x.size(i);
  if (!fits) {
    fail(op, text("index must have the input's dimensions, none but ", d, " longer"),
         {{"input", x}, {"index", index}});
  }
  check_positions(op, x, d, index);
}

/// `shape` with another size along dimension d.
Shape with_size(Shape shape, int d, int64_t size) {
  if (shape.dim() > 0) shape[d] = size;
  return shape;
}

/// A list of positions along dimension d as an index for each element of `shape`, without a copy.
Tensor beside(const Tensor& positions, const Shape& shape, int d) {
  return expand(along(positions, d, shape.dim()), shape);
}

/// One element where a dimension is, so that kernels need not know 0-d tensors.
Tensor at_least_1d(const Tensor& x) { return x.dim() ? x : x.unsqueeze(0); }

Tensor run_gather(const Tensor& x, int d, const Tensor& index) {
  const Tensor out = empty(index.shape(), {.dtype = x.dtype(), .device = x.device(), .format = format_of(x)});
  kernels(x.device())
      .gather(at_least_1d(out).view_of_memory(), at_least_1d(x).view_of_memory(),
              at_least_1d(index.to(int64)).view_of_memory(), d);
  return out;
}

void check_scatter(std::string_view op, Inputs in, int dim) {
  check_same_dtype(op, {{"input", in[0]}, {"source", in[2]}});
  if (in[1].shape() != in[2].shape())
    fail(op, "index and source must have one shape", {{"index", in[1]}, {"source", in[2]}});
  check_beside(op, in[0], dim, in[1]);
}

/// Runs the kernel of scatter or scatter_add on `out`.
void run_scatter(void (*kernel)(const View&, const View&, const View&, int), const Tensor& out, int dim,
                 const Tensor& index, const Tensor& source) {
  kernel(at_least_1d(out).view_of_memory(), at_least_1d(index.to(int64)).view_of_memory(),
         at_least_1d(source).view_of_memory(), wrap_dim("scatter_add", dim, out));
}

/// zeros of `shape` with g added at index: a single fill, as the zeros are one element repeated.
Tensor scattered(const Tensor& g, const Shape& shape, int dim, const Tensor& index) {
  const Tensor zero = zeros({}, {.dtype = g.dtype(), .device = g.device()});
  return scatter_add(zero.expand(shape), dim, index, g);
}

}  // namespace

struct Gather {
  static constexpr OpId id = OpId::gather;
  int dim;

  void check(Inputs in) const { check_beside("gather", in[0], dim, in[1]); }
  Tensor forward(Inputs in, Saver& save) const {
    save(in[1]);
    return run_gather(in[0], wrap_dim("gather", dim, in[0]), in[1]);
  }
  Tensors backward(Node& node, Inputs g) const {
    return {scattered(g[0], node.input_info(0).shape, dim, node.saved(0)), {}};
  }
};

struct IndexSelect {
  static constexpr OpId id = OpId::index_select;
  int dim;

  void check(Inputs in) const {
    const int d = wrap_dim("index_select", dim, in[0]);
    if (in[1].dim() > 1) fail("index_select", "index must be a list", {{"input", in[0]}, {"index", in[1]}});
    check_positions("index_select", in[0], d, in[1]);
  }
  Tensor forward(Inputs in, Saver& save) const {
    save(in[1]);
    const int d = wrap_dim("index_select", dim, in[0]);
    return run_gather(in[0], d, beside(in[1], with_size(in[0].shape(), d, in[1].numel()), d));
  }
  Tensors backward(Node& node, Inputs g) const {
    const int d = wrap_dim("index_select", dim, g[0]);
    return {scattered(g[0], node.input_info(0).shape, d, beside(node.saved(0), g[0].shape(), d)), {}};
  }
};

struct ScatterAdd {
  static constexpr OpId id = OpId::scatter_add;
  int dim;

  void check(Inputs in) const { check_scatter("scatter_add", in, dim); }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor &x = in[0], &source = in[2];
    save(in[1]);
    const DType dtype = compute_type(x.dtype());
    const Tensor sums = dtype == x.dtype() ? x.clone() : x.to(dtype);
    run_scatter(kernels(x.device()).scatter_add, sums, dim, in[1], source);
    return sums.to(x.dtype());
  }
  Tensors backward(Node& node, Inputs g) const {
    return {g[0], {}, node.needs(2) ? gather(g[0], dim, node.saved(0)) : Tensor()};
  }
};

struct Scatter {
  static constexpr OpId id = OpId::scatter;
  int dim;

  void check(Inputs in) const { check_scatter("scatter", in, dim); }
  Tensor forward(Inputs in, Saver& save) const {
    save(in[1]);
    const Tensor out = in[0].clone();
    run_scatter(kernels(out.device()).scatter, out, dim, in[1], in[2]);
    return out;
  }
  /// As in PyTorch, right where no place was written twice: all that were written there get the gradient.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor index = node.saved(0);
    const Tensor zero = zeros({}, {.dtype = g[0].dtype(), .device = g[0].device()});
    return {node.needs(0) ? scatter(g[0], dim, index, zero.expand(index.shape())) : Tensor(),
            {},
            node.needs(2) ? gather(g[0], dim, index) : Tensor()};
  }
};

}  // namespace ops

Tensor gather(const Tensor& x, int dim, const Tensor& index) { return call(ops::Gather{dim}, x, index); }
Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  return call(ops::IndexSelect{dim}, x, index);
}
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return call(ops::Scatter{dim}, x, index, source);
}
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  return call(ops::ScatterAdd{dim}, x, index, source);
}

Tensor& Tensor::scatter_(int dim, const Tensor& index, const Tensor& source) {
  const std::array<Tensor, 3> in{*this, index, source};
  if (wants_record(in)) return copy_(scatter(dim, index, source));
  ops::check_writable("scatter_", *this, false);
  check_inputs("scatter_", in);
  ops::check_scatter("scatter_", in, dim);
  ops::run_scatter(kernels(device()).scatter, *this, dim, ops::apart_from(*this, index),
                   ops::apart_from(*this, source));
  bump_version();
  return *this;
}

Tensor& Tensor::scatter_add_(int dim, const Tensor& index, const Tensor& source) {
  return copy_(scatter_add(dim, index, source));
}

namespace {

/// Positions from 0 to 5, each several times if there are more than six.
Tensor position_sample(const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i * 5 % 7 % 6));
  return tensor(values, shape, {.dtype = int64});
}

/// The one position of a 0-d tensor.
Tensor origin(const Tensor& like) { return zeros({}, {.dtype = int64, .device = like.device()}); }

}  // namespace

template <>
std::vector<Sample> samples<OpId::gather>() {
  const auto along = [](int dim) { return [=](Inputs in) { return Tensors{gather(in[0], dim, in[1])}; }; };
  return {{"last", {uniform_sample({3, 6}), position_sample({3, 8})}, along(-1)},
          {"channels", {uniform_sample({2, 6, 4, 5}), position_sample({2, 3, 2, 5})}, along(1)},
          {"first, fewer columns", {uniform_sample({6, 3}), position_sample({7, 2})}, along(0)},
          {"0-d", {uniform_sample({})}, [](Inputs in) { return Tensors{gather(in[0], 0, origin(in[0]))}; }},
          {"nothing", {uniform_sample({6, 3}), position_sample({0, 3})}, along(0)}};
}

template <>
std::vector<Sample> samples<OpId::index_select>() {
  const auto along = [](int dim) {
    return [=](Inputs in) { return Tensors{index_select(in[0], dim, in[1])}; };
  };
  return {{"rows", {uniform_sample({6, 3}), position_sample({8})}, along(0)},
          {"channels", {uniform_sample({2, 6, 4, 5}), position_sample({3})}, along(1)},
          {"last", {uniform_sample({2, 3, 6}), position_sample({4})}, along(-1)},
          {"0-d index", {uniform_sample({6, 3}), position_sample({})}, along(0)},
          {"nothing", {uniform_sample({6, 3}), position_sample({0})}, along(0)}};
}

template <>
std::vector<Sample> samples<OpId::scatter>() {
  // Each place once, so that a difference in a source is seen.
  const auto along = [](int dim) {
    return [=](Inputs in) { return Tensors{scatter(in[0], dim, in[1], in[2])}; };
  };
  const auto distinct = [](const Shape& shape) {
    return tensor({4, 0, 5, 1}, {4}, {.dtype = int64}).reshape(shape);
  };
  return {{"last", {uniform_sample({3, 6}), distinct({1, 4}), uniform_sample({1, 4})}, along(-1)},
          {"channels",
           {uniform_sample({2, 6, 4, 5}), distinct({1, 4, 1, 1}), uniform_sample({1, 4, 1, 1})},
           along(1)},
          {"0-d",
           {uniform_sample({}), uniform_sample({})},
           [](Inputs in) { return Tensors{scatter(in[0], 0, origin(in[0]), in[1])}; }},
          {"nothing", {uniform_sample({6, 3}), position_sample({0, 3}), uniform_sample({0, 3})}, along(0)}};
}

template <>
std::vector<Sample> samples<OpId::scatter_add>() {
  const auto along = [](int dim) {
    return [=](Inputs in) { return Tensors{scatter_add(in[0], dim, in[1], in[2])}; };
  };
  return {{"last", {uniform_sample({3, 6}), position_sample({3, 8}), uniform_sample({3, 8})}, along(-1)},
          {"channels",
           {uniform_sample({2, 6, 4, 5}), position_sample({2, 3, 2, 5}), uniform_sample({2, 3, 2, 5})},
           along(1)},
          {"first, fewer columns",
           {uniform_sample({6, 3}), position_sample({7, 2}), uniform_sample({7, 2})},
           along(0)},
          {"0-d",
           {uniform_sample({}), uniform_sample({})},
           [](Inputs in) { return Tensors{scatter_add(in[0], 0, origin(in[0]), in[1])}; }},
          {"nothing", {uniform_sample({6, 3}), position_sample({0, 3}), uniform_sample({0, 3})}, along(0)}};
}

}  // namespace mezzo
