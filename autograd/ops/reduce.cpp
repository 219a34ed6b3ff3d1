// Reductions with a kernel each: sum, mean, amax, amin, any, all, argmax, argmin.
#include "autograd/ops/reduce.h"
#include "autograd/call.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

void check_dims(std::string_view op, const Tensor& x, const Dims& dims) {
  Shape seen = Shape::filled(Shape::max_dims, 0);
  for (int64_t dim : dims) {
    if (seen[wrap_dim(op, dim, x)]++) fail(op, text("dimension ", dim, " is named twice"), {{"input", x}});
  }
}

std::bitset<Shape::max_dims> reduced_dims(const Shape& shape, const Dims& dims) {
  std::bitset<Shape::max_dims> reduced;
  if (dims.empty()) reduced.set();
  for (int64_t dim : dims) {
    if (shape.dim() > 0) reduced[static_cast<size_t>(dim < 0 ? dim + shape.dim() : dim)] = true;
  }
  return reduced;
}

Shape reduced_shape(const Shape& shape, const Dims& dims, bool keepdim) {
  const auto reduced = reduced_dims(shape, dims);
  Shape result;
  for (int d = 0; d < shape.dim(); ++d) {
    if (!reduced[static_cast<size_t>(d)])
      result.push_back(shape[d]);
    else if (keepdim)
      result.push_back(1);
  }
  return result;
}

namespace {

/// The parts of a reduction that do not depend on which.
struct Reduce {
  Dims dims;
  bool keepdim;

  /// The kernel's output, without the dims that go.
  Tensor run(std::string_view op, const Tensor& x, Reduction reduction, DType dtype) const {
    check_dims(op, x, dims);
    const Tensor out = empty(kept(x.shape()), {.dtype = dtype, .device = x.device()});
    kernels(x.device()).reduce[static_cast<size_t>(reduction)](out.view_of_memory(), x.view_of_memory());
    return keepdim ? out : out.view(reduced_shape(x.shape(), dims, false));
  }
  /// Where the dims that go have size 1.
  Shape kept(const Shape& whole) const { return reduced_shape(whole, dims, true); }
};

/// amax and amin: the gradient goes to the elements that equal the result, in equal parts.
template <OpId row, Reduction reduction>
struct Extreme : Reduce {
  static constexpr OpId id = row;

  void check(Inputs in) const {
    check_dims(info(id).name, in[0], dims);
    if (in[0].numel() == 0 && kept(in[0].shape()).numel() != 0) {
      fail(info(id).name, "there is no largest or smallest of nothing", {{"input", in[0]}});
    }
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor out = run(info(id).name, in[0], reduction, in[0].dtype());
    save(in[0]);
    save(out);
    return out;
  }
  Tensors backward(Node& node, Inputs g) const {
    const Tensor x = node.saved(0);
    const Tensor is_result = eq(x, reshape(node.saved(1), kept(x.shape()))).to(g[0].dtype());
    const Tensor share = div(reshape(g[0], kept(x.shape())), is_result.sum(dims, true));
    return {mul(share, is_result)};
  }
};

template <OpId row, Reduction reduction>
struct Test : Reduce {
  static constexpr OpId id = row;
  Tensor forward(Inputs in, Saver&) const { return run(info(id).name, in[0], reduction, bool_); }
};

}  // namespace

struct Sum : Reduce {
  static constexpr OpId id = OpId::sum;
  std::optional<DType> dtype;

  Tensor forward(Inputs in, Saver&) const {
    const DType result = dtype.value_or(is_floating(in[0].dtype()) ? in[0].dtype() : int64);
    return run("sum", computed_as(in[0], result), Reduction::sum, result);
  }
  Tensors backward(Node& node, Inputs g) const {
    const Shape whole = node.input_info(0).shape;
    return {expand(reshape(g[0], kept(whole)), whole)};
  }
};

struct Mean : Sum {
  static constexpr OpId id = OpId::mean;

  void check(Inputs in) const {
    if (const DType result = dtype.value_or(in[0].dtype()); !is_floating(result)) {
      fail("mean", text("needs a floating dtype, not ", name_of(result)), {{"input", in[0]}},
           "convert with to(float32)");
    }
  }
  Tensor forward(Inputs in, Saver&) const {
    const DType result = dtype.value_or(in[0].dtype());
    return run("mean", computed_as(in[0], result), Reduction::mean, result);
  }
  Tensors backward(Node& node, Inputs g) const {
    const Shape whole = node.input_info(0).shape;
    // At least 1: of nothing there is no share, and none that is infinite.
    const double count =
        std::max(1.0, static_cast<double>(whole.numel()) / static_cast<double>(kept(whole).numel()));
    const Tensor share = div(g[0], count);
    return Sum::backward(node, {&share, 1});
  }
};

struct Amax : Extreme<OpId::amax, Reduction::amax> {};
struct Amin : Extreme<OpId::amin, Reduction::amin> {};
struct Any : Test<OpId::any, Reduction::any> {};
struct All : Test<OpId::all, Reduction::all> {};

/// argmax and argmin, along one dimension.
template <OpId row, Reduction reduction>
struct Position : Reduce {
  static constexpr OpId id = row;

  void check(Inputs in) const {
    const int d = wrap_dim(info(id).name, dims[0], in[0]);
    if (in[0].dim() > 0 && in[0].size(d) == 0) {
      fail(info(id).name, "there is no largest or smallest of nothing", {{"input", in[0]}});
    }
  }
  Tensor forward(Inputs in, Saver&) const { return run(info(id).name, in[0], reduction, int64); }
};

struct Argmax : Position<OpId::argmax, Reduction::argmax> {};
struct Argmin : Position<OpId::argmin, Reduction::argmin> {};

}  // namespace ops

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call(ops::Sum{{dims, keepdim}, dtype}, x);
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call(ops::Mean{{{dims, keepdim}, dtype}}, x);
}
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Amax{{{dims, keepdim}}}, x); }
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Amin{{{dims, keepdim}}}, x); }
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Any{{{dims, keepdim}}}, x); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::All{{{dims, keepdim}}}, x); }

namespace {

/// Along one dimension, or in all of x as a list.
template <class Op>
Tensor position(const Tensor& x, const Dims& dim, bool keepdim) {
  const std::string_view op = info(Op::id).name;
  if (dim.dim() > 1) fail(op, "goes along one dimension", {{"input", x}});
  if (!dim.empty()) return call(Op{{{dim, keepdim}}}, x);
  const Tensor found = call(Op{{{0, false}}}, x.flatten());
  return keepdim ? found.view(Shape::filled(x.dim(), 1)) : found;
}

ValuesAndIndices values_at(const Tensor& x, int dim, const Tensor& kept, bool keepdim) {
  const Tensor values = gather(x, dim, kept);
  return keepdim ? ValuesAndIndices{values, kept} : ValuesAndIndices{values.squeeze(dim), kept.squeeze(dim)};
}

}  // namespace

Tensor argmax(const Tensor& x, const Dims& dim, bool keepdim) {
  return position<ops::Argmax>(x, dim, keepdim);
}
Tensor argmin(const Tensor& x, const Dims& dim, bool keepdim) {
  return position<ops::Argmin>(x, dim, keepdim);
}
Tensor max(const Tensor& x) { return amax(x); }
Tensor min(const Tensor& x) { return amin(x); }
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim) {
  return values_at(x, dim, argmax(x, dim, true), keepdim);
}
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim) {
  return values_at(x, dim, argmin(x, dim, true), keepdim);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int lead = x.dim() - shape.dim();
  Dims dims;
  for (int d = 0; d < x.dim(); ++d) {
    if (d < lead || (shape[d - lead] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  }
  const Tensor summed = dims.empty() ? x : sum(x, dims, true);
  return reshape(summed, shape);
}

namespace {

std::vector<Sample> reduction_samples(auto f, bool of_nothing) {
  const auto over = [f](Dims dims, bool keepdim) {
    return [=](Inputs in) { return Tensors{f(in[0], dims, keepdim)}; };
  };
  std::vector<Sample> samples = {{"all", {uniform_sample({3, 4})}, over({}, false)},
                                 {"last", {uniform_sample({2, 3, 4})}, over(-1, false)},
                                 {"two, kept", {uniform_sample({2, 3, 4, 5})}, over({0, 2}, true)},
                                 {"all but channels", {uniform_sample({2, 3, 4, 5})}, over({0, 2, 3}, false)},
                                 {"0-d", {uniform_sample({})}, over({}, false)},
                                 {"empty kept", {uniform_sample({0, 3})}, over(1, false)}};
  if (of_nothing) samples.push_back({"empty", {uniform_sample({0, 3})}, over(0, false)});
  return samples;
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::sum>() {
  return reduction_samples(
      [](const Tensor& x, const Dims& dims, bool keepdim) { return sum(x, dims, keepdim); }, true);
}
template <>
std::vector<Sample> samples<OpId::mean>() {
  return reduction_samples(
      [](const Tensor& x, const Dims& dims, bool keepdim) { return mean(x, dims, keepdim); }, true);
}
template <>
std::vector<Sample> samples<OpId::amax>() {
  return reduction_samples(&amax, false);
}
template <>
std::vector<Sample> samples<OpId::amin>() {
  return reduction_samples(&amin, false);
}
template <>
std::vector<Sample> samples<OpId::any>() {
  return reduction_samples(&any, true);
}
template <>
std::vector<Sample> samples<OpId::all>() {
  return reduction_samples(&all, true);
}
namespace {

std::vector<Sample> position_samples(Tensor (*f)(const Tensor&, const Dims&, bool)) {
  const auto along = [f](Dims dim, bool keepdim) {
    return [=](Inputs in) { return Tensors{f(in[0], dim, keepdim)}; };
  };
  return {{"last", {uniform_sample({3, 4})}, along(-1, false)},
          {"channels", {uniform_sample({2, 3, 4, 5})}, along(1, true)},
          {"of all", {uniform_sample({3, 4})}, along({}, false)},
          {"0-d", {uniform_sample({})}, along(0, false)},
          {"empty", {uniform_sample({0, 3})}, along(1, false)}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::argmax>() {
  return position_samples(&argmax);
}
template <>
std::vector<Sample> samples<OpId::argmin>() {
  return position_samples(&argmin);
}

}  // namespace mezzo
