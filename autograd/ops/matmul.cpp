// Matrix products: matmul, addmm, linear. B: batch dimensions, M x K times K x N.
#include <cmath>

#include "autograd/ops/check.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/pointwise_op.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// Rows of x: everything but the last dimension merged.
Tensor rows(const Tensor& x) {
  if (x.dim() == 2) return x;
  Shape leading = x.shape();
  leading.erase(leading.dim() - 1);
  return reshape(x, {leading.numel(), x.size(-1)});
}

/// x's batch dimensions expanded to those of `batch`.
View batched(const Tensor& x, const Shape& batch) {
  if (batch.empty()) return x.view_of_memory();
  Shape shape = batch;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return expand(x, shape).view_of_memory();
}

}  // namespace

namespace ops {

struct MatMul {
  static constexpr OpId id = OpId::matmul;

  /// Vectors as matrices: a as one row, b as one column.
  static Tensor matrix_a(const Tensor& a) { return a.dim() == 1 ? a.unsqueeze(0) : a; }
  static Tensor matrix_b(const Tensor& b) { return b.dim() == 1 ? b.unsqueeze(1) : b; }
  static Shape batch_of(const Tensor& x) {
    Shape batch = x.shape();
    for (int i = 0; i < 2 && batch.dim() > 0; ++i) batch.erase(batch.dim() - 1);
    return batch;
  }

  void check(Inputs in) const {
    const Tensor &a = in[0], &b = in[1];
    if (a.dim() == 0 || b.dim() == 0)
      fail("matmul", "0-d tensors have no matrix product", {{"a", a}, {"b", b}}, "use mul");
    check_same_dtype("matmul", {{"a", a}, {"b", b}});
    refuse_bool("matmul", in);
    const int64_t inner = b.size(b.dim() == 1 ? 0 : -2);
    if (a.size(-1) != inner) {
      fail("matmul", text("a's rows have ", a.size(-1), " elements but b's columns have ", inner),
           {{"a", a}, {"b", b}});
    }
    Shape batch;
    if (!broadcast(batch_of(a), batch_of(b), batch))
      fail("matmul", "batch dimensions do not broadcast", {{"a", a}, {"b", b}});
  }

  Tensor forward(Inputs in, Saver& save) const {
    const Tensor a = matrix_a(in[0]), b = matrix_b(in[1]);
    Shape shape;
    broadcast(batch_of(a), batch_of(b), shape);
    const Shape batch = shape;
    shape.push_back(a.size(-2));
    shape.push_back(b.size(-1));
    const Tensor out = empty(shape, {.dtype = a.dtype(), .device = a.device()});
    if (b.dim() == 2 && a.dim() > 2) {  // one tall product instead of a batch of small ones
      const Tensor a_rows = rows(a);
      kernels(a.device()).matmul(rows(out).view_of_memory(), a_rows.view_of_memory(), b.view_of_memory(), {});
    } else {
      kernels(a.device()).matmul(out.view_of_memory(), batched(a, batch), batched(b, batch), {});
    }
    save(save.needs(1) ? in[0] : Tensor());
    save(save.needs(0) ? in[1] : Tensor());
    if (in[0].dim() == 1) shape.erase(shape.dim() - 2);
    if (in[1].dim() == 1) shape.erase(shape.dim() - 1);
    return shape == out.shape() ? out : out.view(shape);
  }

  /// c = a b: da = dc b^T, db = a^T dc. Sums over broadcast batches are the engine's.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor a = node.saved(0), b = node.saved(1);
    const bool a_is_vector = (node.needs(0) ? node.input_info(0).shape : a.shape()).dim() == 1;
    const bool b_is_vector = (node.needs(1) ? node.input_info(1).shape : b.shape()).dim() == 1;
    Tensor dc = g[0];
    if (b_is_vector) dc = dc.unsqueeze(-1);
    if (a_is_vector) dc = dc.unsqueeze(-2);
    Tensors grads(2);
    if (node.needs(0)) {
      grads[0] = matmul(dc, matrix_b(b).transpose(-2, -1));
      if (a_is_vector) grads[0] = grads[0].squeeze(-2);
    }
    if (node.needs(1)) {
      const Tensor left = matrix_a(a);
      const bool tall = left.dim() > 2 && (b_is_vector || node.input_info(1).shape.dim() == 2);
      grads[1] = tall ? matmul(rows(left).t(), rows(dc)) : matmul(left.transpose(-2, -1), dc);
      if (b_is_vector) grads[1] = grads[1].squeeze(-1);
    }
    return grads;
  }
};

struct AddMM : Composed<AddMM> {
  static constexpr OpId id = OpId::addmm;
  double beta, alpha;

  AddMM(double beta, double alpha) : beta(beta), alpha(alpha) {}

  void check(Inputs in) const {
    const Tensor &c = in[0], &a = in[1], &b = in[2];
    check_same_dtype("addmm", {{"c", c}, {"a", a}, {"b", b}});
    if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0)) {
      fail("addmm", "a must be [M, K] and b [K, N]", {{"a", a}, {"b", b}});
    }
    const Shape product{a.size(0), b.size(1)};
    Shape joint;
    if (!broadcast(c.shape(), product, joint) || joint != product)
      fail("addmm", text("c does not broadcast to ", to_string(product)), {{"c", c}, {"a", a}, {"b", b}});
    if (!is_floating(a.dtype()) && (std::floor(alpha) != alpha || std::floor(beta) != beta))
      fail("addmm", text("integers need whole factors, not ", beta, " and ", alpha), {{"a", a}});
  }
  /// c takes no part if beta is 0, not even a NaN of it, but has a gradient of 0, as in PyTorch.
  Tensor compose(Inputs in) const {
    const Tensor &c = in[0], product = scaled(matmul(in[1], in[2]), alpha);
    if (beta != 0) return add(product, scaled(c, beta));
    return c.requires_grad() ? add(product, masked_fill(c, ones_like(c).to(bool_), 0)) : product;
  }
  static Tensor scaled(const Tensor& x, double factor) {
    if (factor == 1) return x;
    return is_floating(x.dtype()) ? mul(x, factor) : mul(x, static_cast<int64_t>(factor));
  }
};

/// y = f(x) Wᵀ + b, with gelu for f or nothing, and after it a relu or not.
template <OpId row, LinearWith with>
struct LinearMap {
  static constexpr OpId id = row;
  static constexpr bool relu = with == LinearWith::relu_after, gelu = with == LinearWith::gelu_before;

  void check(Inputs in) const {
    constexpr std::string_view name = info(row).name;
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    check_same_dtype(name, {{"input", x}, {"weight", weight}, {"bias", bias}});
    refuse_bool(name, in.first(2));
    if (with != LinearWith::nothing && !is_floating(x.dtype()))
      fail(name, "needs a floating dtype", {{"input", x}});
    if (weight.dim() != 2) fail(name, "weight must be [out, in]", {{"input", x}, {"weight", weight}});
    if (x.dim() == 0 || x.size(-1) != weight.size(1)) {
      fail(name,
           text("input has ", x.dim() ? x.size(-1) : 0, " features but weight expects ", weight.size(1)),
           {{"input", x}, {"weight", weight}});
    }
    if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
      fail(name, text("bias must have ", weight.size(0), " elements"), {{"weight", weight}, {"bias", bias}});
    }
  }

  Tensor forward(Inputs in, Saver& save) const {
    const Tensor &x = in[0], &weight = in[1], &bias = in[2];
    Shape shape = x.shape();
    shape[shape.dim() - 1] = weight.size(0);
    const Tensor out = empty(shape, {.dtype = x.dtype(), .device = x.device()});
    const Tensor x_rows = rows(x);
    kernels(x.device())
        .linear(rows(out).view_of_memory(), x_rows.view_of_memory(), weight.view_of_memory(),
                view_or_none(bias), with);
    save(save.needs(1) || (gelu && save.needs(0)) ? x : Tensor());
    save(weight);
    save(relu ? out : Tensor());
    return out;
  }

  /// For the gradient g of the sum: dx = g W f'(x), dW = gᵀ f(x), db = sum of g's rows.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor x = node.saved(0), weight = node.saved(1), out = node.saved(2);
    Tensors grads(3);
    if (grad_enabled()) {
      const Tensor passed = relu ? where(gt(out, 0), g[0], 0) : g[0];
      if (node.needs(0)) grads[0] = mezzo::matmul(passed, weight);
      if (gelu && node.needs(0)) grads[0] = slope(pointwise::index<pointwise::Gelu>, 0, grads[0], Tensors{x});
      if (node.needs(1)) grads[1] = mezzo::matmul(rows(passed).t(), rows(gelu ? mezzo::gelu(x) : x));
      if (node.needs(2)) grads[2] = sum(rows(passed), 0);
      return grads;
    }
    // Kept until the kernel is done: where strides ask for it, rows() copies.
    const auto rows_or_none = [](const Tensor& tensor) { return tensor.defined() ? rows(tensor) : tensor; };
    const Tensor g_rows = rows(g[0]), x_rows = rows_or_none(x), out_rows = rows_or_none(out);
    const TensorOptions like{.dtype = g_rows.dtype(), .device = g_rows.device()};
    if (node.needs(0)) grads[0] = empty(node.input_info(0).shape, like);
    if (node.needs(1)) grads[1] = empty(weight.shape(), like);
    if (node.needs(2)) grads[2] = empty({weight.size(0)}, like);
    kernels(g_rows.device())
        .linear_grad({view_or_none(rows_or_none(grads[0])), view_or_none(grads[1]), view_or_none(grads[2])},
                     g_rows.view_of_memory(), view_or_none(out_rows), view_or_none(x_rows),
                     weight.view_of_memory(), with);
    return grads;
  }
};
struct Linear : LinearMap<OpId::linear, LinearWith::nothing> {};
struct LinearRelu : LinearMap<OpId::linear_relu, LinearWith::relu_after> {};
struct GeluLinear : LinearMap<OpId::gelu_linear, LinearWith::gelu_before> {};

}  // namespace ops

Tensor matmul(const Tensor& a, const Tensor& b) { return call(ops::MatMul{}, a, b); }
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, double beta, double alpha) {
  return call(ops::AddMM(beta, alpha), c, a, b);
}
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return call(ops::Linear{}, x, weight, bias);
}
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return call(ops::LinearRelu{}, x, weight, bias);
}
Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return call(ops::GeluLinear{}, x, weight, bias);
}

template <>
std::vector<Sample> samples<OpId::matmul>() {
  const auto run = [](Inputs in) { return Tensors{matmul(in[0], in[1])}; };
  return {{"matrices", {uniform_sample({3, 4}), uniform_sample({4, 5})}, run},
          {"batch times matrix", {uniform_sample({2, 3, 4}), uniform_sample({4, 5})}, run},
          {"4-d times 3-d", {uniform_sample({2, 3, 2, 4}), uniform_sample({3, 4, 2})}, run},
          {"batches broadcast", {uniform_sample({2, 1, 3, 4}), uniform_sample({3, 4, 2})}, run},
          {"vectors", {uniform_sample({4}), uniform_sample({4})}, run},
          {"matrix times vector", {uniform_sample({2, 3, 4}), uniform_sample({4})}, run},
          {"vector times batch", {uniform_sample({3}), uniform_sample({2, 3, 4})}, run},
          {"nothing inside", {uniform_sample({2, 0}), uniform_sample({0, 3})}, run},
          {"no rows", {uniform_sample({0, 3}), uniform_sample({3, 2})}, run}};
}

template <>
std::vector<Sample> samples<OpId::addmm>() {
  const auto with = [](double beta, double alpha) {
    return [=](Inputs in) { return Tensors{addmm(in[0], in[1], in[2], beta, alpha)}; };
  };
  return {
      {"matrix", {uniform_sample({3, 5}), uniform_sample({3, 4}), uniform_sample({4, 5})}, with(1, 1)},
      {"row, factors", {uniform_sample({5}), uniform_sample({3, 4}), uniform_sample({4, 5})}, with(-3, 2)},
      {"0-d", {uniform_sample({}), uniform_sample({3, 4}), uniform_sample({4, 5})}, with(1, 1)},
      {"nothing inside",
       {uniform_sample({2, 3}), uniform_sample({2, 0}), uniform_sample({0, 3})},
       with(1, 1)},
      {"no rows", {uniform_sample({2}), uniform_sample({0, 3}), uniform_sample({3, 2})}, with(1, 1)}};
}

template <>
std::vector<Sample> samples<OpId::linear>() {
  const auto run = [](Inputs in) { return Tensors{linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor())}; };
  return {{"rows", {uniform_sample({3, 4}), uniform_sample({5, 4}), uniform_sample({5})}, run},
          {"batch, no bias", {uniform_sample({2, 3, 4}), uniform_sample({5, 4})}, run},
          {"4-d", {uniform_sample({2, 3, 2, 4}), uniform_sample({2, 4}), uniform_sample({2})}, run},
          {"one vector", {uniform_sample({4}), uniform_sample({2, 4}), uniform_sample({2})}, run},
          {"no rows", {uniform_sample({0, 4}), uniform_sample({2, 4}), uniform_sample({2})}, run}};
}

namespace {

std::vector<Sample> fused_samples(Tensor (*op)(const Tensor&, const Tensor&, const Tensor&)) {
  const auto run = [op](Inputs in) { return Tensors{op(in[0], in[1], in.size() > 2 ? in[2] : Tensor())}; };
  return {{"rows", {uniform_sample({3, 4}), uniform_sample({5, 4}), uniform_sample({5})}, run},
          {"many rows, no bias", {uniform_sample({2, 19, 4}), uniform_sample({3, 4})}, run},
          {"4-d", {uniform_sample({2, 3, 2, 4}), uniform_sample({2, 4}), uniform_sample({2})}, run},
          {"no rows", {uniform_sample({0, 4}), uniform_sample({2, 4}), uniform_sample({2})}, run}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::linear_relu>() {
  return fused_samples(linear_relu);
}
template <>
std::vector<Sample> samples<OpId::gelu_linear>() {
  return fused_samples(gelu_linear);
}

}  // namespace mezzo
