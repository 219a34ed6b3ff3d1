// prod, var, std, norm, and positions of extremes: what golden numbers do not show.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("max and min: the first of equals, its position, and NaN before all") {
  const Tensor x = make({3, 1, 3, 2, 2, 5}, {2, 3});
  const auto [largest, where] = max(x, 1);
  CHECK(values(largest) == Values{3, 5});
  CHECK(values(where) == Values{0, 2});
  CHECK(where.dtype() == int64);
  const auto [smallest, at] = x.min(0, true);
  CHECK(smallest.shape() == Shape{1, 3});
  CHECK(values(smallest) == Values{2, 1, 3});
  CHECK(values(at) == Values{1, 0, 0});
  CHECK(x.max().item<double>() == 5);
  CHECK(min(x).item<double>() == 1);
  CHECK(max(scalar(4), 0).indices.item<int>() == 0);
  const double nan = std::nan("");
  const Tensor with_nan = make({1, nan, -1, nan}, {4});
  CHECK(with_nan.argmin(0).item<int>() == 1);
  CHECK(with_nan.argmax().item<int>() == 1);
  CHECK(std::isnan(with_nan.min(0).values.item<double>()));
  // The gradient goes to the one place; over all elements equals share it.
  Tensor tied = leaf({2, 2, 1});
  tied.max(0).values.backward();
  CHECK(values(tied.grad()) == Values{1, 0, 0});
  tied.set_grad({});
  tied.max().backward();
  CHECK(values(tied.grad()) == Values{0.5, 0.5, 0});
}

TEST_CASE("argmax and argmin of all elements count in row-major order, whatever the layout") {
  const Tensor x = make({1, 9, 2, 3, 4, -5}, {2, 3});
  CHECK(x.argmax().item<int>() == 1);
  CHECK(x.t().argmax().item<int>() == 2);
  CHECK(x.argmin({}, true).shape() == Shape{1, 1});
  CHECK(x.argmin().item<int>() == 5);
  CHECK(error_text([&] { x.argmax({0, 1}); }).starts_with("argmax: goes along one dimension; "));
  CHECK(error_text([&] {
          make({}, {0, 3}).argmin(0);
        }).starts_with("argmin: there is no largest or smallest"));
  CHECK(error_text([&] { make({}, {0, 3}).max(0); }).starts_with("argmax: there is no largest or smallest"));
}

TEST_CASE("prod: a zero leaves the others their gradient, at every order") {
  const Tensor x = leaf({2, 0, 3});
  const Tensor y = prod(x);
  const Tensors first = grad({y}, {x}, {}, {.create_graph = true});
  CHECK(values(first[0]) == Values{0, 6, 0});
  // d^2 / dx_0 dx_1 = x_2, d^2 / dx_1 dx_2 = x_0
  CHECK(values(grad({first[0].index({1})}, {x})[0]) == Values{3, 0, 2});
  CHECK(prod(make({}, {0, 2}), 0).shape() == Shape{2});
  CHECK(values(prod(make({}, {0, 2}), 0)) == Values{1, 1});
  CHECK(prod(make(Values(20, 2), float16)).item<double>() == std::numeric_limits<double>::infinity());
  CHECK(prod(make({300, 300, 0.5, 0.5}, float16)).item<double>() == 22496);  // not inf: float32 inside
  CHECK(error_text([&] { prod(x, {0, 0}); }).starts_with("prod: dimension 0 is named twice; "));
}

TEST_CASE("var and std: NaN without a degree of freedom, exact for a large mean, no integers") {
  CHECK(std::isnan(var(make({3})).item<double>()));
  CHECK(var(make({3}), {}, 0).item<double>() == 0);
  CHECK(std::isnan(var(make({})).item<double>()));
  CHECK(var(make({1e8 + 1, 1e8 + 2, 1e8 + 3})).item<double>() == 1);
  CHECK(mezzo::std(make({1, 2, 3, 4}, float16)).dtype() == float16);
  const Tensor same = leaf({2, 2, 2});
  same.std().backward();
  CHECK(values(same.grad()) == Values{0, 0, 0});
  CHECK(error_text([] { var(make({1, 2}, int64)); }).starts_with("var: needs a floating dtype; "));
  CHECK(error_text([] { make({1}).std(1); }).starts_with("std: dimension 1 is outside"));
}

TEST_CASE("norm: large float16 values, zeros, and what it refuses") {
  CHECK(norm(make({300, 400}, float16)).item<double>() == 500);  // 300^2 would be infinite in float16
  const Tensor zero = leaf({0, 0});
  zero.norm().backward();
  CHECK(values(zero.grad()) == Values{0, 0});
  CHECK(norm(make({}), 2).item<double>() == 0);
  CHECK(norm(make({-3, 4, 0}), 0).item<double>() == 2);
  CHECK(error_text([] { norm(make({1}, int32)); }).starts_with("norm: needs a floating dtype; "));
  CHECK(error_text([] {
          norm(make({}), std::numeric_limits<double>::infinity());
        }).starts_with("amax: there is no"));
}

TEST_CASE("addmm: factors, broadcasting, and what does not fit") {
  const Tensor a = make({1, 2, 3, 4}, {2, 2}), eye2 = eye(2, {.dtype = float64, .device = test_device()});
  CHECK(values(addmm(make({10, 20}), a, eye2)) == Values{11, 22, 13, 24});
  CHECK(values(scalar(1).addmm(a, eye2, 2, 10)) == Values{12, 22, 32, 42});
  CHECK(values(addmm(scalar(std::nan("")), a, eye2, 0)) == Values{1, 2, 3, 4});
  const Tensor unused = leaf({std::nan(""), 1});
  addmm(unused, a, eye2, 0).sum().backward();
  CHECK(values(unused.grad()) == Values{0, 0});
  const Tensor whole = make({1, 2, 3, 4}, {2, 2}, int64);
  CHECK(values(addmm(whole, whole, whole, 2, -1)) == Values{-5, -6, -9, -14});
  CHECK(
      error_text([&] { addmm(whole, whole, whole, 0.5); }).starts_with("addmm: integers need whole factors"));
  CHECK(error_text([&] { addmm(a, a, make({1, 2})); }).starts_with("addmm: a must be [M, K] and b [K, N]; "));
  CHECK(error_text([&] {
          addmm(make({1, 2, 3}), a, a);
        }).starts_with("addmm: c does not broadcast to [2, 2]; "));
}
