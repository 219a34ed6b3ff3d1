// Softmax and its kind: softmax, log_softmax, their gradient, logsumexp. 16-bit values in float32.
#include <limits>

#include "autograd/ops/check.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/reduce.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

template <OpId row, bool log>
struct SoftmaxLike {
  static constexpr OpId id = row;
  int dim;
  std::optional<DType> dtype;  ///< of the result

  void check(Inputs in) const {
    wrap_dim(info(id).name, dim, in[0]);
    if (const DType result = dtype.value_or(in[0].dtype()); !is_floating(result))
      fail(info(id).name, text("needs a floating dtype, not ", name_of(result)), {{"input", in[0]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    const DType result = dtype.value_or(in[0].dtype());
    const Tensor x = computed_as(in[0], result), out = empty_like(x, result);
    kernels(out.device())
        .softmax(out.view_of_memory(), x.view_of_memory(), wrap_dim(info(id).name, dim, x), log);
    save(out);
    return out;
  }
  Tensors backward(Node& node, Inputs g) const { return {softmax_grad(g[0], node.saved(0), dim, log)}; }
};

}  // namespace

struct Softmax : SoftmaxLike<OpId::softmax, false> {};
struct LogSoftmax : SoftmaxLike<OpId::log_softmax, true> {};

/// One kernel forward; its own backward goes through the plain ops that the kernel stands for.
struct SoftmaxGrad {
  static constexpr OpId id = OpId::softmax_grad;
  int dim;
  bool log;

  void check(Inputs in) const {
    wrap_dim("softmax_grad", dim, in[1]);
    check_floating("softmax_grad", {{"gradient", in[0]}, {"output", in[1]}});
    if (in[0].shape() != in[1].shape())
      fail("softmax_grad", "shapes must be equal", {{"gradient", in[0]}, {"output", in[1]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    for (const Tensor& x : in) save(x);
    const Tensor out = empty_like(in[1]);
    kernels(out.device())
        .softmax_grad(out.view_of_memory(), in[0].view_of_memory(), in[1].view_of_memory(),
                      wrap_dim("softmax_grad", dim, in[1]), log);
    return out;
  }
  Tensors backward(Node& node, Inputs u) const {
    const auto composition = [this](Inputs in) {
      const Tensor &g = in[0], &y = in[1];
      return Tensors{log ? sub(g, mul(exp(y), sum(g, dim, true)))
                         : mul(y, sub(g, sum(mul(g, y), dim, true)))};
    };
    return vector_jacobian(composition, {node.saved(0), node.saved(1)}, u);
  }
};

struct LogSumExp : Composed<LogSumExp> {
  static constexpr OpId id = OpId::logsumexp;
  Dims dims;
  bool keepdim;

  LogSumExp(const Dims& dims, bool keepdim) : dims(dims), keepdim(keepdim) {}

  void check(Inputs in) const {
    for (int64_t dim : dims) wrap_dim("logsumexp", dim, in[0]);
  }
  /// log(sum(exp(x - peak))) + peak for any constant peak: here the largest value, or 0 if that is infinite.
  Tensor compose(Inputs in) const {
    const DType dtype = is_floating(in[0].dtype()) ? in[0].dtype() : float32;
    const Tensor x = in[0].to(compute_type(dtype));
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (x.numel() == 0) return sub(sum(x, dims, keepdim), infinity).to(dtype);  // log(0), with a gradient
    const Tensor largest = amax(x.detach(), dims, true);
    const Tensor peak = where(lt(abs(largest), infinity), largest, 0);
    const Tensor total = sum(exp(sub(x, peak)), dims, keepdim);
    return add(log(total), reshape(peak, total.shape())).to(dtype);
  }
};

}  // namespace ops

Tensor softmax(const Tensor& x, int dim, std::optional<DType> dtype) {
  return call(ops::Softmax{{dim, dtype}}, x);
}
Tensor log_softmax(const Tensor& x, int dim, std::optional<DType> dtype) {
  return call(ops::LogSoftmax{{dim, dtype}}, x);
}
Tensor softmax_grad(const Tensor& g, const Tensor& y, int dim, bool log) {
  return call(ops::SoftmaxGrad{dim, log}, g, y);
}
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  return call(ops::LogSumExp(dims, keepdim), x);
}

namespace {

std::vector<Sample> softmax_samples(auto f) {
  const auto along = [f](int dim) { return [=](Inputs in) { return Tensors{f(in[0], dim)}; }; };
  return {{"last", {uniform_sample({3, 5}, -3, 3)}, along(-1)},
          {"many columns, few rows", {uniform_sample({20, 3}, -3, 3)}, along(1)},
          {"channels", {uniform_sample({2, 3, 4, 5}, -3, 3)}, along(1)},
          {"first", {uniform_sample({4, 2, 3}, -3, 3)}, along(0)},
          {"0-d", {uniform_sample({})}, along(0)},
          {"empty", {uniform_sample({0, 3})}, along(0)}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::softmax>() {
  return softmax_samples([](const Tensor& x, int dim) { return softmax(x, dim); });
}
template <>
std::vector<Sample> samples<OpId::log_softmax>() {
  return softmax_samples([](const Tensor& x, int dim) { return log_softmax(x, dim); });
}
template <>
std::vector<Sample> samples<OpId::softmax_grad>() {
  const auto along = [](int dim, bool log) {
    return [=](Inputs in) { return Tensors{softmax_grad(in[0], in[1], dim, log)}; };
  };
  return {
      {"last", {uniform_sample({3, 5}), uniform_sample({3, 5}, 0, 1)}, along(-1, false)},
      {"last, log", {uniform_sample({3, 5}), uniform_sample({3, 5}, -3, 0)}, along(-1, true)},
      {"channels", {uniform_sample({2, 3, 4, 5}), uniform_sample({2, 3, 4, 5}, 0, 1)}, along(1, false)},
      {"channels, log", {uniform_sample({2, 3, 4, 5}), uniform_sample({2, 3, 4, 5}, -3, 0)}, along(1, true)},
      {"0-d", {uniform_sample({}), uniform_sample({}, 0.7, 1)}, along(0, false)},
      {"empty", {uniform_sample({0, 3}), uniform_sample({0, 3})}, along(1, true)}};
}
template <>
std::vector<Sample> samples<OpId::logsumexp>() {
  const auto over = [](Dims dims, bool keepdim) {
    return [=](Inputs in) { return Tensors{logsumexp(in[0], dims, keepdim)}; };
  };
  return {{"last", {uniform_sample({3, 5}, -3, 3)}, over(-1, false)},
          {"all but channels, kept", {uniform_sample({2, 3, 4, 5}, -3, 3)}, over({0, 2, 3}, true)},
          {"0-d", {uniform_sample({})}, over({}, false)},
          {"empty", {uniform_sample({0, 3})}, over(1, false)},
          {"of nothing", {uniform_sample({0, 3})}, over(0, false)}};
}

}  // namespace mezzo
