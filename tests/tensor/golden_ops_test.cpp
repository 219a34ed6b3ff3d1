// Pointwise ops, reductions, softmax and its kind, indexing, products, casts and type promotion against
// PyTorch's numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

using nlohmann::json;
using Reduce = std::function<Tensor(const Tensor&, const Dims&, bool)>;

const std::map<std::string, std::function<Tensor(const Tensor&)>> kUnary{
    {"neg", [](const Tensor& x) { return neg(x); }},
    {"abs", [](const Tensor& x) { return abs(x); }},
    {"square", [](const Tensor& x) { return square(x); }},
    {"exp", [](const Tensor& x) { return exp(x); }},
    {"log", [](const Tensor& x) { return log(x); }},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }},
    {"sin", [](const Tensor& x) { return sin(x); }},
    {"cos", [](const Tensor& x) { return cos(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"log_sigmoid", [](const Tensor& x) { return log_sigmoid(x); }},
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"softsign", [](const Tensor& x) { return softsign(x); }},
    {"logical_not", [](const Tensor& x) { return logical_not(x); }},
    {"sign", [](const Tensor& x) { return sign(x); }},
    {"floor", [](const Tensor& x) { return floor(x); }},
    {"ceil", [](const Tensor& x) { return ceil(x); }},
    {"round", [](const Tensor& x) { return round(x); }},
    {"trunc", [](const Tensor& x) { return trunc(x); }},
    {"expm1", [](const Tensor& x) { return expm1(x); }},
    {"log1p", [](const Tensor& x) { return log1p(x); }},
    {"log2", [](const Tensor& x) { return log2(x); }},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }},
    {"reciprocal", [](const Tensor& x) { return reciprocal(x); }},
    {"erf", [](const Tensor& x) { return erf(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"gelu_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
    {"silu", [](const Tensor& x) { return silu(x); }},
    {"softplus", [](const Tensor& x) { return softplus(x); }},
    {"isnan", [](const Tensor& x) { return isnan(x); }},
    {"isinf", [](const Tensor& x) { return isinf(x); }},
    {"isfinite", [](const Tensor& x) { return isfinite(x); }},
};

const std::map<std::string, std::function<Tensor(const Tensor&, const Tensor&)>> kBinary{
    {"add", [](const Tensor& a, const Tensor& b) { return add(a, b); }},
    {"sub", [](const Tensor& a, const Tensor& b) { return sub(a, b); }},
    {"mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }},
    {"div", [](const Tensor& a, const Tensor& b) { return div(a, b); }},
    {"fmod", [](const Tensor& a, const Tensor& b) { return fmod(a, b); }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
    {"minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); }},
    {"eq", [](const Tensor& a, const Tensor& b) { return eq(a, b); }},
    {"ne", [](const Tensor& a, const Tensor& b) { return ne(a, b); }},
    {"lt", [](const Tensor& a, const Tensor& b) { return lt(a, b); }},
    {"le", [](const Tensor& a, const Tensor& b) { return le(a, b); }},
    {"gt", [](const Tensor& a, const Tensor& b) { return gt(a, b); }},
    {"ge", [](const Tensor& a, const Tensor& b) { return ge(a, b); }},
    {"logical_and", [](const Tensor& a, const Tensor& b) { return logical_and(a, b); }},
    {"logical_or", [](const Tensor& a, const Tensor& b) { return logical_or(a, b); }},
    {"logical_xor", [](const Tensor& a, const Tensor& b) { return logical_xor(a, b); }},
    {"floor_divide", [](const Tensor& a, const Tensor& b) { return floor_divide(a, b); }},
    {"remainder", [](const Tensor& a, const Tensor& b) { return remainder(a, b); }},
    {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
};

const std::map<std::string, Reduce> kReduce{
    {"sum", [](const Tensor& x, const Dims& dims, bool keepdim) { return sum(x, dims, keepdim); }},
    {"mean", [](const Tensor& x, const Dims& dims, bool keepdim) { return mean(x, dims, keepdim); }},
    {"amax", [](const Tensor& x, const Dims& dims, bool keepdim) { return amax(x, dims, keepdim); }},
    {"amin", [](const Tensor& x, const Dims& dims, bool keepdim) { return amin(x, dims, keepdim); }},
    {"any", [](const Tensor& x, const Dims& dims, bool keepdim) { return any(x, dims, keepdim); }},
    {"all", [](const Tensor& x, const Dims& dims, bool keepdim) { return all(x, dims, keepdim); }},
    {"argmax", [](const Tensor& x, const Dims& dims, bool keepdim) { return argmax(x, dims, keepdim); }},
    {"argmin", [](const Tensor& x, const Dims& dims, bool keepdim) { return argmin(x, dims, keepdim); }},
    {"max", [](const Tensor& x, const Dims& dims,
               bool keepdim) { return max(x, static_cast<int>(dims[0]), keepdim).values; }},
    {"min", [](const Tensor& x, const Dims& dims,
               bool keepdim) { return min(x, static_cast<int>(dims[0]), keepdim).values; }},
    {"prod", [](const Tensor& x, const Dims& dims, bool keepdim) { return prod(x, dims, keepdim); }},
    {"softmax",
     [](const Tensor& x, const Dims& dims, bool) { return softmax(x, static_cast<int>(dims[0])); }},
    {"log_softmax",
     [](const Tensor& x, const Dims& dims, bool) { return log_softmax(x, static_cast<int>(dims[0])); }},
    {"logsumexp",
     [](const Tensor& x, const Dims& dims, bool keepdim) { return logsumexp(x, dims, keepdim); }},
};

/// Reductions with a parameter: var's correction, norm's p.
const std::map<std::string, std::function<Tensor(const Tensor&, double, const Dims&, bool)>> kStatistics{
    {"var", [](const Tensor& x, double correction, const Dims& dims,
               bool keepdim) { return var(x, dims, static_cast<int64_t>(correction), keepdim); }},
    {"std", [](const Tensor& x, double correction, const Dims& dims,
               bool keepdim) { return mezzo::std(x, dims, static_cast<int64_t>(correction), keepdim); }},
    {"norm",
     [](const Tensor& x, double p, const Dims& dims, bool keepdim) { return norm(x, p, dims, keepdim); }},
};

const Golden& golden() {
  static const Golden file("ops");
  return file;
}

/// Names of the stored cases of an op: "add.broadcast" for "add.broadcast.float32.out".
std::vector<std::string> cases(const std::string& op) {
  const std::string_view end = ".float64.out";
  std::vector<std::string> found;
  for (const std::string& key : golden().keys(op + ".")) {
    if (key.ends_with(end)) found.push_back(key.substr(0, key.size() - end.size()));
  }
  REQUIRE(!found.empty());
  return found;
}

void check_op(const std::string& op, const std::function<Tensor(const Tensors&)>& function) {
  for (const std::string& name : cases(op)) check_case(golden(), name, function);
}

Dims stored_dims(const std::string& name) {
  Dims dims;
  for (int64_t dim : golden().tensor(name + ".dims").to_vector<int64_t>()) dims.push_back(dim);
  return dims;
}

/// Compares each value of SPECIAL.op by itself: relative to the largest, the small ones would not count.
void check_special(const std::string& special, const std::string& op,
                   const std::function<Tensor(const Tensor&)>& function) {
  const Tensor in = golden().tensor(special + ".in").to(test_device()), out = function(in);
  const auto x = in.to_vector<double>(), actual = out.to_vector<double>();
  const auto expected = golden().tensor(special + "." + op).to_vector<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(op);
    CAPTURE(i);
    CAPTURE(x[i * x.size() / expected.size()]);
    if (std::isnan(expected[i])) {
      CHECK(std::isnan(actual[i]));
    } else if (std::isfinite(expected[i]) && expected[i] != 0) {
      const double flushed = std::numeric_limits<float>::min();  // a subnormal result may become zero
      CHECK(std::abs(actual[i] - expected[i]) <= 1e-5 * std::abs(expected[i]) + flushed);
    } else {
      CHECK(actual[i] == expected[i]);
      CHECK(std::signbit(actual[i]) == std::signbit(expected[i]));
    }
  }
}

/// An operand of the promotion table: class 1 has a dimension, 0 has none, -1 is a number.
Tensor operand(const std::string& dtype, int kind) {
  if (kind < 0) return dtype == "int64" ? Tensor(1) : Tensor(1.5);
  return ones(kind == 1 ? Shape{2} : Shape{}, {.dtype = parse_dtype(dtype), .device = test_device()});
}

/// The dtype of an op's result on ones of `dtype`; "error" if it refuses.
std::string result_dtype(const std::string& op, DType dtype) {
  const Tensor x = ones({2}, {.dtype = dtype, .device = test_device()});
  try {
    const Tensor result = kUnary.contains(op)        ? kUnary.at(op)(x)
                          : kBinary.contains(op)     ? kBinary.at(op)(x, x)
                          : kStatistics.contains(op) ? kStatistics.at(op)(x, op == "norm" ? 2 : 1, {}, false)
                                                     : kReduce.at(op)(x, {}, false);
    return std::string(name_of(result.dtype()));
  } catch (const Error&) {
    return "error";
  }
}

void check_result_dtype(const std::string& op, const std::string& dtype, const std::string& in_pytorch) {
  // On purpose not as in PyTorch: predicates are bool for uint8 too, a square has its operand's dtype, and
  // integers give float32 in every function of floating values.
  std::map<std::string, std::string> differ{
      {"any uint8", "bool"}, {"all uint8", "bool"}, {"square bool", "bool"}};
  for (const char* function : {"gelu ", "gelu_tanh ", "silu ", "softplus "}) {
    for (const char* other : {"int64", "int32", "uint8", "bool"}) differ[text(function, other)] = "float32";
  }
  for (const char* other : {"int64", "int32", "uint8"}) differ[text("log_sigmoid ", other)] = "float32";
  const auto exception = differ.find(op + " " + dtype);
  CAPTURE(op);
  CAPTURE(dtype);
  CHECK(result_dtype(op, parse_dtype(dtype)) == (exception == differ.end() ? in_pytorch : exception->second));
}

}  // namespace

TEST_CASE("golden: pointwise ops and their gradients") {
  for (const auto& [op, function] : kUnary) {
    check_op(op, [&f = function](const Tensors& x) { return f(x[0]); });
  }
  for (const auto& [op, function] : kBinary) {
    check_op(op, [&f = function](const Tensors& x) { return f(x[0], x[1]); });
  }
  check_op("where", [](const Tensors& x) { return where(x[0], x[1], x[2]); });
  check_op("lerp", [](const Tensors& x) { return lerp(x[0], x[1], x[2]); });
}

TEST_CASE("golden: numbers as exponents, bounds and fillings") {
  const auto number = [](const std::string& name) {
    return golden().has(name) ? Tensor(golden().tensor(name).item<double>()) : Tensor();
  };
  for (const std::string& name : cases("pow_number")) {
    check_case(golden(), name, [&](const Tensors& x) { return pow(x[0], number(name + ".exponent")); });
  }
  for (const std::string& name : cases("clamp")) {
    check_case(golden(), name,
               [&](const Tensors& x) { return clamp(x[0], number(name + ".low"), number(name + ".high")); });
  }
  check_op("clamp_tensors", [](const Tensors& x) { return clamp(x[0], x[1], x[2]); });
  for (const std::string& name : cases("masked_fill")) {
    check_case(golden(), name,
               [&](const Tensors& x) { return masked_fill(x[1], x[0], number(name + ".value")); });
  }
}

TEST_CASE("golden: unary ops at infinities, NaN, signed zeros, subnormal and huge values") {
  for (const auto& [op, function] : kUnary) check_special("special", op, function);
}

TEST_CASE("golden: reductions and their gradients") {
  for (const auto& [op, function] : kReduce) {
    for (const std::string& name : cases(op)) {
      const Dims dims = stored_dims(name);
      const bool keepdim = golden().tensor(name + ".keepdim").item<bool>();
      check_case(golden(), name,
                 [&f = function, &dims, keepdim](const Tensors& x) { return f(x[0], dims, keepdim); });
    }
  }
}

TEST_CASE("golden: variance, standard deviation, norms") {
  for (const auto& [op, function] : kStatistics) {
    for (const std::string& name : cases(op)) {
      const Dims dims = stored_dims(name);
      const bool keepdim = golden().tensor(name + ".keepdim").item<bool>();
      const auto parameter = golden().tensor(name + ".parameter").item<double>();
      check_case(golden(), name,
                 [&, &f = function](const Tensors& x) { return f(x[0], parameter, dims, keepdim); });
    }
  }
}

TEST_CASE("golden: softmax and its kind at infinities, NaN and huge values") {
  for (const std::string op : {"softmax", "log_softmax", "logsumexp"}) {
    check_special("special_softmax", op, [&](const Tensor& x) { return kReduce.at(op)(x, 1, false); });
  }
}

TEST_CASE("golden: gather, index_select, scatter, scatter_add and their gradients") {
  for (const std::string op : {"gather", "index_select", "scatter", "scatter_add"}) {
    for (const std::string& name : cases(op)) {
      const auto dim = golden().tensor(name + ".dim").item<int>();
      check_case(golden(), name, [&](const Tensors& x) {
        return op == "gather"         ? gather(x[0], dim, x[1])
               : op == "index_select" ? index_select(x[0], dim, x[1])
               : op == "scatter"      ? scatter(x[0], dim, x[1], x[2])
                                      : scatter_add(x[0], dim, x[1], x[2]);
      });
    }
  }
}

TEST_CASE("golden: products and their gradients") {
  check_op("matmul", [](const Tensors& x) { return matmul(x[0], x[1]); });
  for (const std::string& name : cases("addmm")) {
    const auto factors = golden().tensor(name + ".factors").to_vector<double>();
    check_case(golden(), name,
               [&](const Tensors& x) { return addmm(x[0], x[1], x[2], factors[0], factors[1]); });
  }
  check_op("linear", [](const Tensors& x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); });
}

TEST_CASE("golden: type promotion") {
  const json rows = json::parse(golden().metadata("promotion"));
  REQUIRE(rows.size() > 300);
  for (const json& row : rows) {
    CAPTURE(row);
    const Tensor sum = operand(row[0], row[1]) + operand(row[2], row[3]);
    CHECK(name_of(sum.dtype()) == row[4].get<std::string>());
  }
}

TEST_CASE("golden: dtype of each op's result") {
  const json table = json::parse(golden().metadata("results"));
  for (const auto& [op, row] : table.items()) {
    for (const auto& [dtype, expected] : row.items()) check_result_dtype(op, dtype, expected);
  }
}

TEST_CASE("golden: casts between all dtypes") {
  const Golden casts("casts");
  for (const std::string& key : casts.keys()) {
    if (!key.ends_with(".in")) continue;
    CAPTURE(key);
    const std::string pair = key.substr(0, key.size() - 3);
    const Tensor in = casts.tensor(key).to(test_device()), expected = casts.tensor(pair + ".out");
    CHECK(close(in.to(expected.dtype()), expected, 0));
  }
}
