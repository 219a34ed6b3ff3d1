// Reductions: sum, mean, amax, amin, any, all, argmax.
#include "autograd/call.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// x's shape with size 1 along the dims that go (none given: all). Throws Error for a dim that is named
/// twice.
Shape kept_shape(std::string_view op, const Tensor& x, const Dims& dims) {
  if (dims.empty()) return Shape::filled(x.dim(), 1);
  Shape shape = x.shape(), seen = Shape::filled(Shape::max_dims, 0);
  for (int64_t dim : dims) {
    const int d = wrap_dim(op, dim, x);
    if (seen[d]++) fail(op, text("dimension ", dim, " is named twice"), {{"input", x}});
    if (x.dim() > 0) shape[d] = 1;
  }
  return shape;
}

/// The parts of a reduction that do not depend on which.
struct Reduce {
  Dims dims;
  bool keepdim;

  /// The kernel's output, without the dims that go.
  Tensor run(std::string_view op, const Tensor& x, Reduction reduction, DType dtype) const {
    const Shape kept = kept_shape(op, x, dims);
    const Tensor out = empty(kept, {.dtype = dtype, .device = x.device()});
    kernels(x.device()).reduce[static_cast<size_t>(reduction)](out.view_of_memory(), x.view_of_memory());
    return keepdim ? out : out.view(final_shape(x, kept));
  }
  Shape final_shape(const Tensor& x, const Shape& kept) const {
    Shape shape = kept;
    for (int d = x.dim() - 1; d >= 0; --d) {
      bool goes = dims.empty();
      for (int64_t dim : dims) goes |= (dim < 0 ? dim + x.dim() : dim) == d;
      if (goes) shape.erase(d);
    }
    return shape;
  }
  /// g, of the output's shape, with the dims that went back as size 1.
  Tensor with_kept_dims(std::string_view op, const Tensor& g, const Tensor& x) const {
    return reshape(g, kept_shape(op, x, dims));
  }
};

/// amax and amin: the gradient goes to the elements that equal the result, in equal parts.
template <OpId row, Reduction reduction>
struct Extreme : Reduce {
  static constexpr OpId id = row;

  void check(Inputs in) const {
    if (in[0].numel() == 0 && kept_shape(info(id).name, in[0], dims).numel() != 0) {
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
    const Tensor is_result = eq(x, with_kept_dims(info(id).name, node.saved(1), x)).to(g[0].dtype());
    const Tensor share = div(with_kept_dims(info(id).name, g[0], x), is_result.sum(dims, true));
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

  Tensor forward(Inputs in, Saver&) const {
    return run("sum", in[0], Reduction::sum, is_floating(in[0].dtype()) ? in[0].dtype() : int64);
  }
  Tensors backward(Node& node, Inputs g) const {
    const Shape whole = node.input_info(0).shape;
    return {expand(reshape(g[0], kept(whole)), whole)};
  }
  Shape kept(const Shape& whole) const {
    Shape shape = dims.empty() ? Shape::filled(whole.dim(), 1) : whole;
    for (int64_t dim : dims) {
      if (whole.dim() > 0) shape[static_cast<int>(dim < 0 ? dim + whole.dim() : dim)] = 1;
    }
    return shape;
  }
};

struct Mean : Sum {
  static constexpr OpId id = OpId::mean;

  void check(Inputs in) const {
    if (!is_floating(in[0].dtype())) {
      fail("mean", text("needs a floating dtype, not ", name_of(in[0].dtype())), {{"input", in[0]}},
           "convert with to(float32)");
    }
  }
  Tensor forward(Inputs in, Saver&) const { return run("mean", in[0], Reduction::mean, in[0].dtype()); }
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

struct Argmax : Reduce {
  static constexpr OpId id = OpId::argmax;

  void check(Inputs in) const {
    const int d = wrap_dim("argmax", dims[0], in[0]);
    if (in[0].dim() > 0 && in[0].size(d) == 0) {
      fail("argmax", "there is no largest of nothing", {{"input", in[0]}});
    }
  }
  Tensor forward(Inputs in, Saver&) const { return run("argmax", in[0], Reduction::argmax, int64); }
};

}  // namespace ops

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Sum{{dims, keepdim}}, x); }
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Mean{{{dims, keepdim}}}, x); }
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Amax{{{dims, keepdim}}}, x); }
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Amin{{{dims, keepdim}}}, x); }
Tensor any(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::Any{{{dims, keepdim}}}, x); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) { return call(ops::All{{{dims, keepdim}}}, x); }
Tensor argmax(const Tensor& x, int dim, bool keepdim) { return call(ops::Argmax{{dim, keepdim}}, x); }

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

std::vector<Sample> reduction_samples(Tensor (*f)(const Tensor&, const Dims&, bool), bool of_nothing) {
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
  return reduction_samples(&sum, true);
}
template <>
std::vector<Sample> samples<OpId::mean>() {
  return reduction_samples(&mean, true);
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
template <>
std::vector<Sample> samples<OpId::argmax>() {
  const auto along = [](int dim, bool keepdim) {
    return [=](Inputs in) { return Tensors{argmax(in[0], dim, keepdim)}; };
  };
  return {{"last", {uniform_sample({3, 4})}, along(-1, false)},
          {"channels", {uniform_sample({2, 3, 4, 5})}, along(1, true)},
          {"0-d", {uniform_sample({})}, along(0, false)},
          {"empty", {uniform_sample({0, 3})}, along(1, false)}};
}

}  // namespace mezzo
