// The functions of the pointwise rows, and slope, the op that their backward runs.
#include "autograd/ops/check.h"
#include "autograd/ops/pointwise_op.h"
#include "autograd/samples.h"
#include "tensor/backend.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

Device device_of(Inputs in) {
  const Tensor* found = nullptr;
  for (const Tensor& x : in) {
    if (!x.defined() || x.impl()->is_number) continue;
    if (!found || is_cpu_scalar(*found)) found = &x;
  }
  if (found) return found->device();
  return in.empty() || !in[0].defined() ? Device() : in[0].device();
}

namespace {

/// Shape that all defined operands broadcast to.
Shape joint_shape(std::string_view op, Inputs in) {
  Shape shape = in[0].shape();
  for (const Tensor& x : in.subspan(1)) {
    if (x.defined() && x.shape() != shape && !broadcast(Shape(shape), x.shape(), shape)) {
      fail(op, "shapes do not broadcast",
           {{"a", in[0]}, {"b", in[1]}, {"c", in.size() > 2 ? in[2] : Tensor()}},
           "sizes must be equal or 1, counted from the last dimension");
    }
  }
  return shape;
}

/// Strides of the first operand that has the result's shape and is dense, so that layouts pass through.
Shape strides_like(Inputs in, const Shape& shape) {
  for (const Tensor& x : in) {
    if (x.defined() && x.shape() == shape && is_dense(x.shape(), x.strides())) return x.strides();
  }
  return contiguous_strides(shape);
}

/// Shows in `view` x as kernels see it when expanded to `shape`: stride 0 along dimensions that are repeated.
void expand_into(View& view, const Tensor& x, const Shape& shape) {
  if (!x.defined()) return;
  const TensorImpl& impl = *x.impl();
  view.data = impl.data();
  view.dtype = impl.dtype;
  view.shape = shape;
  if (impl.shape == shape) {
    view.strides = impl.strides;
    return;
  }
  view.strides = Shape::filled(shape.dim(), 0);
  const int lead = shape.dim() - impl.shape.dim();
  for (int d = 0; d < impl.shape.dim(); ++d) {
    if (impl.shape[d] != 1) view.strides[lead + d] = impl.strides[d];
  }
}

}  // namespace

PointwisePlan plan_pointwise(std::string_view op, Inputs in, pointwise::Result result, bool first_selects) {
  for (const Tensor& x : in) {
    if (!x.defined()) fail(op, "an operand is undefined", {{"a", in[0]}, {"b", in.back()}});
  }
  const Shape shape = joint_shape(op, in);
  DType dtype = promote(in.subspan(first_selects ? 1 : 0));
  if (result == pointwise::Result::floating && !is_floating(dtype)) dtype = float32;
  const DType compute = compute_type(dtype);
  return {shape, result == pointwise::Result::boolean ? bool_ : dtype, compute, device_of(in)};
}

void refuse_bool(std::string_view op, Inputs in) {
  for (const Tensor& x : in) {
    if (x.dtype() == bool_) {
      fail(op, "is not defined for bool", {{"a", in[0]}, {"b", in.size() > 1 ? in[1] : Tensor()}},
           "use logical_xor or logical_not, or convert with to(dtype)");
    }
  }
}

void refuse_values(std::string_view op, pointwise::Refused refused, const Tensor& b) {
  const bool division = refused == pointwise::Refused::zero;
  const Tensor values = b.detach();
  if (b.numel() == 0 || is_capturing(b.device()) ||
      !any(division ? eq(values, 0) : lt(values, 0)).item<bool>())
    return;
  if (division) fail(op, "integer division by zero", {{"divisor", b}});
  fail(op, "an integer to a negative power", {{"exponent", b}}, "convert the base to a floating dtype");
}

void run_pointwise_into(const Tensor& out, DType compute, Inputs in, PointwiseKernel kernel) {
  constexpr size_t kMaxOperands = kMaxArity + 2;  // a curvature takes two gradients beside the operands
  std::array<View, kMaxOperands> views;
  const bool far = !in_host_memory(out.device());
  for (size_t k = 0; k < in.size(); ++k) {
    expand_into(views[k], in[k], out.shape());
    views[k].on_host = far && in[k].defined() && in_host_memory(in[k].device());
  }
  kernel(compute, out.view_of_memory(), std::span(views).first(in.size()));
}

Tensor run_pointwise(const PointwisePlan& plan, Inputs in, PointwiseKernel kernel) {
  const Tensor out = empty_strided(plan.shape, strides_like(in, plan.shape), plan.dtype, plan.device);
  run_pointwise_into(out, plan.compute, in, kernel);
  return out;
}

/// g * slope_i(x): the gradient of a pointwise op in operand i. Its own backward runs the op's curvatures,
/// which come from the slope's formula on Duals.
struct Slope {
  static constexpr OpId id = OpId::slope;
  static constexpr bool mixes_numbers = true;
  PointwiseId op;
  int i;

  /// The gradient's shape and dtype are those of the op's output; the result is brought to the operand's
  /// afterwards.
  static Tensor run(Inputs in, PointwiseKernel kernel) {
    const DType dtype = promote(in);
    return run_pointwise({joint_shape("slope", in), dtype, compute_type(dtype), device_of(in)}, in, kernel);
  }

  void check(Inputs in) const {
    if (op >= kPointwiseOps || i < 0 || i >= kMaxArity ||
        !kernels(device_of(in)).pointwise[op].slope[static_cast<size_t>(i)]) {
      fail("slope", text("pointwise op ", op, " has no slope in operand ", i));
    }
    if (!is_floating(promote(in))) fail("slope", "needs a floating dtype", {{"gradient", in[0]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    for (const Tensor& x : in) save(x);
    return run(in, kernels(device_of(in)).pointwise[op].slope[static_cast<size_t>(i)]);
  }

  Tensors backward(Node& node, Inputs h) const {
    Tensors x{h[0]}, grads(node.edges.size());
    for (size_t k = 0; k < node.saved_count(); ++k) x.push_back(node.saved(k));
    const PointwiseKernels& table = kernels(device_of(h)).pointwise[op];
    if (node.needs(0)) {
      Tensors without_g = x;
      without_g.erase(without_g.begin() + 1);
      grads[0] = run(without_g, table.slope[static_cast<size_t>(i)]);
    }
    for (size_t j = 1; j < grads.size(); ++j) {
      if (node.needs(j)) grads[j] = run(x, table.curvature[static_cast<size_t>(i)][j - 1]);
    }
    return grads;
  }
};

}  // namespace ops

Tensor slope(PointwiseId op, int i, const Tensor& g, Inputs x) {
  Tensors in{g};
  in.insert(in.end(), x.begin(), x.end());
  return call(ops::Slope{op, i}, in);
}

#define OP(name, Struct, order, what, parameters, ...) \
  __VA_OPT__(Tensor name parameters { return call(ops::Pointwise<pointwise::Struct>{}, __VA_ARGS__); })
#include "autograd/ops.def"
#undef OP

namespace {

/// A few samples of a pointwise op: plain, broadcast, 0-d, in the struct's own range.
template <class S>
std::vector<Sample> pointwise_samples(Tensor (*f)(Inputs)) {
  constexpr size_t n = S::arity;
  const auto draw = [](const Shape& shape) { return uniform_sample(shape, S::low, S::high); };
  std::vector<Sample> samples;
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 4, 5}, Shape{}, Shape{0, 3}}) {
    Tensors inputs;
    for (size_t k = 0; k < n; ++k) inputs.push_back(draw(shape));
    samples.push_back({text(to_string(shape)), inputs, [f](Inputs in) { return Tensors{f(in)}; }});
  }
  if constexpr (n > 1) {
    Tensors inputs{draw({2, 1, 4}), draw({3, 1})};
    if constexpr (n > 2) inputs.push_back(draw({}));
    samples.push_back({"broadcast", inputs, [f](Inputs in) { return Tensors{f(in)}; }});
  }
  for (Sample& sample : samples) {
    if (S::first_selects) sample.inputs[0] = gt(sample.inputs[0], 0);
  }
  return samples;
}

template <class S>
Tensor apply(Inputs in) {
  return call(ops::Pointwise<S>{}, in);
}

}  // namespace

#define OP(name, Struct, order, what, parameters, ...)                      \
  __VA_OPT__(template <> std::vector<Sample> samples<OpId::name>() {        \
    return pointwise_samples<pointwise::Struct>(&apply<pointwise::Struct>); \
  })
#include "autograd/ops.def"
#undef OP

template <>
std::vector<Sample> samples<OpId::slope>() {
  const auto run = [](Inputs in) {
    return Tensors{slope(pointwise::index<pointwise::Div>, 1, in[0], in.subspan(1))};
  };
  std::vector<Sample> all;
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 4, 5}, Shape{}, Shape{0, 3}}) {
    all.push_back({"div in b, " + to_string(shape),
                   {uniform_sample(shape), uniform_sample(shape, 1, 2), uniform_sample(shape, 1, 2)},
                   run});
  }
  return all;
}

}  // namespace mezzo
