// Pointwise ops where PyTorch's numbers say nothing: integers at their limits, refusals, values out of range.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/support.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor integers(int64_t a, int64_t b) {
  Tensor x = full({2}, a, {.dtype = int64, .device = test_device()});
  x[1].fill_(b);
  return x;
}

using Integers = std::vector<int64_t>;

}  // namespace

TEST_CASE("pointwise: integer division rounds down, and the smallest integer by -1 does not trap") {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  CHECK(floor_divide(integers(5, -5), 3).to_vector<int64_t>() == Integers{1, -2});
  CHECK(floor_divide(integers(5, -5), -3).to_vector<int64_t>() == Integers{-2, 1});
  CHECK(remainder(integers(5, -5), 3).to_vector<int64_t>() == Integers{2, 1});
  CHECK(remainder(integers(5, -5), -3).to_vector<int64_t>() == Integers{-1, -2});
  CHECK(fmod(integers(5, -5), 3).to_vector<int64_t>() == Integers{2, -2});
  CHECK(floor_divide(integers(lowest, 7), -1).to_vector<int64_t>() == Integers{lowest, -7});
  CHECK(remainder(integers(lowest, 7), -1).to_vector<int64_t>() == Integers{0, 0});
  CHECK(fmod(integers(lowest, 7), -1).to_vector<int64_t>() == Integers{0, 0});
  const int64_t large = std::numeric_limits<int64_t>::max();  // + large would overflow
  CHECK(remainder(integers(large - 1, 1 - large), large).to_vector<int64_t>() == Integers{large - 1, 1});
  CHECK(values(fmod(make({254, 255}, uint8), make({255, 255}, uint8))) == Values{254, 0});
  CHECK(values(remainder(make({254, 7}, uint8), make({255, 4}, uint8))) == Values{254, 3});
  CHECK(values(floor_divide(make({254, 9}, uint8), make({255, 4}, uint8))) == Values{0, 2});
}

TEST_CASE("pointwise: a division by the rounded quotient would be off by one") {
  const Tensor a = make({1}, float32), b = make({0.1}, float32);  // 1 / 0.1f is 9.9999998, 10 in float32
  CHECK(values(floor_divide(a, b)) == Values{9});
  CHECK(values(remainder(a, b))[0] == doctest::Approx(0.1).epsilon(1e-6));
  CHECK(std::signbit(values(remainder(make({-0.0}), 1))[0]));
  CHECK(std::signbit(values(floor_divide(make({-0.0}), 1))[0]));
}

TEST_CASE("pointwise: integer powers are exact and wrap; a negative one is refused") {
  CHECK(pow(integers(3, -3), 39).to_vector<int64_t>() == Integers{4052555153018976267, -4052555153018976267});
  CHECK(pow(integers(2, 0), 64).to_vector<int64_t>() == Integers{0, 0});
  CHECK(pow(integers(5, 0), 0).to_vector<int64_t>() == Integers{1, 1});
  CHECK(values(pow(make({3, 200}, uint8), make({7, 2}, uint8))) == Values{139, 64});
  CHECK(pow(2, integers(3, 10)).to_vector<int64_t>() == Integers{8, 1024});
  CHECK(values(pow(integers(2, 4), -1.0)) == Values{0.5, 0.25});
  const std::string refusal = error_text([] { pow(integers(2, 1), -1); });
  CHECK(refusal.starts_with("pow: an integer to a negative power; exponent [] int64"));
  CHECK(error_text([] { pow(2, integers(1, -1)); }).find("negative power") != std::string::npos);
  CHECK(error_text([] { floor_divide(integers(1, 2), integers(1, 0)); }).find("division by zero") !=
        std::string::npos);
  CHECK(error_text([] { remainder(integers(1, 2), 0); }).find("division by zero") != std::string::npos);
}

TEST_CASE("pointwise: second derivatives stay finite where an exponential does not") {
  const auto second = [](Tensor (*f)(const Tensor&), double at) {
    const Tensor x = leaf({at});
    const Tensor first = grad(Tensors{f(x).sum()}, Tensors{x}, {}, {.create_graph = true})[0];
    return values(grad(Tensors{first.sum()}, Tensors{x})[0])[0];
  };
  for (double at : {-1000.0, 1000.0}) {
    CAPTURE(at);
    CHECK(second(&silu, at) == 0);
    CHECK(second(&softplus, at) == 0);
    CHECK(second(&gelu, at) == 0);
  }
  CHECK(second([](const Tensor& x) { return pow(x, 2); }, -3) == 2);  // log(-3) has no part in it
}

TEST_CASE("exp: within two units of the last place of float32, over all that it has a result for") {
  const Tensor x = arange(-110, 95, 1.0 / 512, {.dtype = float32, .device = test_device()});
  const Values at = values(x), results = values(exp(x));
  const double largest = std::numeric_limits<float>::max(), normal = std::numeric_limits<float>::min();
  int64_t wrong = -1;
  for (size_t i = 0; i < at.size() && wrong < 0; ++i) {
    const double expected = std::exp(at[i]);
    // Some processors' libraries make 0 of what is below the normal numbers.
    const double allowed = expected < normal ? normal : 2 * std::numeric_limits<float>::epsilon() * expected;
    if (expected > largest ? results[i] != kInfinity : !(std::abs(results[i] - expected) <= allowed))
      wrong = static_cast<int64_t>(i);
  }
  CAPTURE(wrong < 0 ? 0 : at[static_cast<size_t>(wrong)]);
  CHECK(wrong == -1);
}

TEST_CASE("clamp: bounds that share an equal value share its gradient; a bound is needed") {
  const Tensor x = leaf({1}), low = leaf({1}), high = leaf({1});
  clamp(x, low, high).backward(make({1}));
  CHECK(values(x.grad())[0] + values(low.grad())[0] + values(high.grad())[0] == 1);
  CHECK(std::isnan(values(clamp(make({std::nan("")}), 0, 1))[0]));
  CHECK(values(clamp(make({-5, 5}, int64), 0.5, 2.5)) == Values{0.5, 2.5});
  // A bound beyond what integers hold bounds nothing, or leaves nothing.
  const Tensor bytes = make({0, 1, 7}, uint8);
  CHECK(values(clamp(bytes, -1, 1)) == Values{0, 1, 1});
  CHECK(values(clamp(make({1, 7}, int32), 0, int64_t{3000000000})) == Values{1, 7});
  const Tensor same = clamp(bytes, -3, {});
  CHECK(values(same) == Values{0, 1, 7});
  CHECK(values(same.clone().clamp_(-1, 5)) == Values{0, 1, 5});
  Tensor(same).fill_(3);
  CHECK(values(bytes) == Values{0, 1, 7});
  CHECK(error_text([&] {
          clamp(bytes, 0, -1);
        }).starts_with("clamp: the bound -1 is outside the range of uint8; "));
  CHECK(error_text([&] { clamp(x, {}); }) ==
        "clamp: needs a bound; x [1] float64 " + to_string(test_device()));
}

TEST_CASE("gelu: the approximation by its PyTorch name") {
  const Tensor x = make({-1, 0.5, 2});
  CHECK(values(gelu(x, "none")) == values(gelu(x)));
  CHECK(values(gelu(x, "tanh")) == values(gelu_tanh(x)));
  CHECK(
      error_text([&] { gelu(x, "sigmoid"); }).starts_with("gelu: approximate is \"sigmoid\"; x [3] float64"));
}

TEST_CASE("masked_fill: the value must have a place in the dtype") {
  const Tensor half = make({1, 2}, float16), mask = make({1, 0}, bool_), whole = make({1, 2}, uint8);
  CHECK(error_text([&] {
          half.masked_fill(mask, -1e9);
        }).starts_with("masked_fill: the value -1e+09 is outside the range of float16; x [2] float16"));
  CHECK(values(half.masked_fill(mask, -kInfinity)) == Values{-kInfinity, 2});
  CHECK(values(half.masked_fill(mask, 65504)) == Values{65504, 2});
  CHECK(half.masked_fill(mask, make({7}, float32)[0]).dtype() == float16);
  CHECK_THROWS_AS(half.masked_fill(mask, 65520), Error);
  CHECK_THROWS_AS(make({1, 2}, float32).masked_fill(mask, 1e39), Error);
  CHECK_THROWS_AS(make({1, 2}, bfloat16).masked_fill(mask, 3.4e38), Error);
  CHECK_THROWS_AS(whole.masked_fill(mask, 256), Error);
  CHECK_THROWS_AS(whole.masked_fill(mask, -1), Error);
  CHECK_THROWS_AS(make({1, 2}, int64).masked_fill(mask, 0x1p63), Error);
  CHECK_THROWS_AS(make({1, 2}, int64).masked_fill(mask, std::nan("")), Error);
  CHECK(values(whole.masked_fill(mask, 255)) == Values{255, 2});
  CHECK(values(mask.masked_fill(mask, 2)) == Values{1, 0});
}

TEST_CASE("masked_fill: a mask that is not bool, and a value with dimensions, are refused") {
  const Tensor x = make({1, 2}), mask = make({1, 0}, bool_);
  CHECK(error_text([&] {
          x.masked_fill(make({1, 0}, int64), 0);
        }).find("the mask is int64, not bool") != std::string::npos);
  CHECK(error_text([&] {
          x.masked_fill(mask, make({1, 2}));
        }).find("the value has dimensions") != std::string::npos);
  CHECK_THROWS_AS(x.masked_fill(Tensor(), 0), Error);
  CHECK_THROWS_AS(x.masked_fill(mask, Tensor()), Error);
  CHECK(values(make({5})[0].masked_fill(mask, 2)) == Values{2, 5});  // broadcasts, as in PyTorch
}

TEST_CASE("masked_fill: the gradient goes to what stays, and to a value that is a tensor") {
  const Tensor x = leaf({1, 2, 3}), value = leaf({4}), mask = make({1, 0, 1}, bool_);
  masked_fill(x, mask, value[0]).backward(make({1, 2, 4}));
  CHECK(values(x.grad()) == Values{0, 2, 0});
  CHECK(values(value.grad()) == Values{5});
}
