// Reductions that are plain ops under one name: prod, var, std, norm. 16-bit values in float32.
#include <limits>

#include "autograd/ops/check.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/reduce.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// base^exponent for base >= 0 and exponent > 0, with slope 0 at 0, where that of the power may be infinite.
Tensor power(const Tensor& base, double exponent) {
  const Tensor is_zero = eq(base, 0), safe = where(is_zero, 1, base);
  return where(is_zero, 0, exponent == 0.5 ? sqrt(safe) : pow(safe, exponent));
}

}  // namespace

/// Halves are multiplied until one is left: each product's gradient is the other factor, so zeros do no harm,
/// and every derivative exists.
struct Prod : Composed<Prod> {
  static constexpr OpId id = OpId::prod;
  Dims dims;
  bool keepdim;

  std::optional<DType> dtype;

  Prod(const Dims& dims, bool keepdim, std::optional<DType> dtype)
      : dims(dims), keepdim(keepdim), dtype(dtype) {}

  void check(Inputs in) const { check_dims("prod", in[0], dims); }
  Tensor compose(Inputs in) const {
    const Tensor& x = in[0];
    const DType result = dtype.value_or(is_floating(x.dtype()) ? x.dtype() : int64);
    const auto reduced = reduced_dims(x.shape(), dims);
    Shape kept_first;
    int64_t factors = 1, products = 1;
    for (const bool going : {false, true}) {
      for (int d = 0; d < x.dim(); ++d) {
        if (reduced[static_cast<size_t>(d)] != going) continue;
        kept_first.push_back(d);
        (going ? factors : products) *= x.size(d);
      }
    }
    Tensor rest = x.to(compute_type(result)).permute(kept_first).reshape({products, factors});
    if (factors == 0) rest = add(sum(rest, 1, true), 1);  // of nothing: 1, with a gradient
    for (int64_t n = rest.size(1); n > 1; n = rest.size(1)) {
      const Tensor product = mul(rest.slice(1, 0, n / 2), rest.slice(1, n / 2, n / 2 * 2));
      rest = n % 2 ? cat({product, rest.slice(1, n - 1)}, 1) : product;
    }
    return rest.reshape(reduced_shape(x.shape(), dims, keepdim)).to(result);
  }
};

namespace {

template <class Op>
struct Spread : Composed<Op> {
  Dims dims;
  int64_t correction;
  bool keepdim;

  Spread(const Dims& dims, int64_t correction, bool keepdim)
      : dims(dims), correction(correction), keepdim(keepdim) {}

  void check(Inputs in) const {
    check_dims(info(Op::id).name, in[0], dims);
    check_floating(info(Op::id).name, {{"input", in[0]}});
  }
  /// In the type that sums have. NaN where there are no more elements than `correction`.
  Tensor variance(const Tensor& input) const {
    const Tensor x = input.to(compute_type(input.dtype()));
    const Tensor total = sum(square(sub(x, mean(x, dims, true))), dims, keepdim);
    const double count =
        static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, total.numel()));
    return div(total, std::max(0.0, count - static_cast<double>(correction)));
  }
};

}  // namespace

struct Var : Spread<Var> {
  static constexpr OpId id = OpId::var;
  using Spread::Spread;
  Tensor compose(Inputs in) const { return variance(in[0]).to(in[0].dtype()); }
};

struct Std : Spread<Std> {
  static constexpr OpId id = OpId::std;
  using Spread::Spread;
  Tensor compose(Inputs in) const { return power(variance(in[0]), 0.5).to(in[0].dtype()); }
};

struct Norm : Composed<Norm> {
  static constexpr OpId id = OpId::norm;
  double p;
  Dims dims;
  bool keepdim;

  std::optional<DType> dtype;

  Norm(double p, const Dims& dims, bool keepdim, std::optional<DType> dtype)
      : p(p), dims(dims), keepdim(keepdim), dtype(dtype) {}

  void check(Inputs in) const {
    check_dims("norm", in[0], dims);
    check_floating("norm", {{"input", in[0]}});
  }
  Tensor compose(Inputs in) const {
    const DType result = dtype.value_or(in[0].dtype());
    return of(in[0].to(compute_type(result))).to(result);
  }
  Tensor of(const Tensor& x) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (p == 2) return power(sum(square(x), dims, keepdim), 0.5);
    const Tensor size = abs(x);
    if (p == infinity) return amax(size, dims, keepdim);
    if (p == -infinity) return amin(size, dims, keepdim);
    if (p == 0) return sum(where(eq(x, 0), 0, pow(size, 0)), dims, keepdim);
    if (p == 1) return sum(size, dims, keepdim);
    if (p < 0) return pow(sum(pow(size, p), dims, keepdim), 1 / p);
    return power(sum(power(size, p), dims, keepdim), 1 / p);
  }
};

}  // namespace ops

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call(ops::Prod(dims, keepdim, dtype), x);
}
Tensor var(const Tensor& x, const Dims& dims, int64_t correction, bool keepdim) {
  return call(ops::Var(dims, correction, keepdim), x);
}
Tensor std(const Tensor& x, const Dims& dims, int64_t correction, bool keepdim) {
  return call(ops::Std(dims, correction, keepdim), x);
}
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call(ops::Norm(p, dims, keepdim, dtype), x);
}

template <>
std::vector<Sample> samples<OpId::prod>() {
  const auto over = [](Dims dims, bool keepdim) {
    return [=](Inputs in) { return Tensors{prod(in[0], dims, keepdim)}; };
  };
  return {{"all", {uniform_sample({3, 3}, 0.5, 2)}, over({}, false)},
          {"last", {uniform_sample({2, 3, 5})}, over(-1, false)},
          {"all but channels, kept", {uniform_sample({2, 3, 2, 2})}, over({0, 2, 3}, true)},
          {"with zeros", {tensor({0, 2, 3, 0, 0, 4}, {2, 3}, {.dtype = float64})}, over(1, false)},
          {"0-d", {uniform_sample({})}, over({}, false)},
          {"of nothing", {uniform_sample({0, 3})}, over(0, false)}};
}

namespace {

std::vector<Sample> spread_samples(Tensor (*f)(const Tensor&, const Dims&, int64_t, bool)) {
  const auto over = [f](Dims dims, int64_t correction, bool keepdim) {
    return [=](Inputs in) { return Tensors{f(in[0], dims, correction, keepdim)}; };
  };
  return {{"all", {uniform_sample({3, 4})}, over({}, 1, false)},
          {"last, biased", {uniform_sample({2, 3, 4})}, over(-1, 0, false)},
          {"all but channels, kept", {uniform_sample({2, 3, 4, 5})}, over({0, 2, 3}, 1, true)},
          {"0-d", {uniform_sample({})}, over({}, 0, false)},
          {"empty", {uniform_sample({0, 3})}, over(1, 1, false)}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::var>() {
  return spread_samples(&var);
}
template <>
std::vector<Sample> samples<OpId::std>() {
  return spread_samples(&std);
}
template <>
std::vector<Sample> samples<OpId::norm>() {
  const auto of = [](double p, Dims dims = {}, bool keepdim = false) {
    return [=](Inputs in) { return Tensors{norm(in[0], p, dims, keepdim)}; };
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return {{"2, all", {uniform_sample({3, 4})}, of(2)},
          {"2, all but channels, kept", {uniform_sample({2, 3, 4, 5})}, of(2, {0, 2, 3}, true)},
          {"1, last", {uniform_sample({2, 3, 4})}, of(1, -1)},
          {"3", {uniform_sample({3, 4})}, of(3, 0)},
          {"-1", {uniform_sample({3, 4}, 0.5, 2)}, of(-1, 0)},
          {"infinite", {uniform_sample({3, 4})}, of(infinity, 1)},
          {"-infinite", {uniform_sample({3, 4})}, of(-infinity, 1)},
          {"0-d", {uniform_sample({})}, of(2)},
          {"empty", {uniform_sample({0, 3})}, of(2, 1)}};
}

}  // namespace mezzo
