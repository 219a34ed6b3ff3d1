// A user's own op: a struct given to call().
#include "autograd/call.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// x^exponent, whose gradient is written in ops.
struct Power {
  static constexpr auto name = "power";
  double exponent;

  void check(Inputs in) const {
    if (!is_floating(in[0].dtype())) fail(name, "needs a floating dtype", {{"input", in[0]}});
  }
  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    return exp(mul(log(in[0]), exponent));
  }
  Tensors backward(Node& node, Inputs g) const {
    const Tensor x = node.saved(0);
    return {g[0] * exponent * power(x, exponent - 1)};
  }
  static Tensor power(const Tensor& x, double exponent) { return call(Power{exponent}, x); }
};

/// Sum and difference: two outputs, nothing saved.
struct SumAndDifference {
  static constexpr auto name = "sum_and_difference";
  std::array<Tensor, 2> forward(Inputs in, Saver&) const { return {in[0] + in[1], in[0] - in[1]}; }
  Tensors backward(Node&, Inputs g) const {
    const auto or_zero = [&](size_t i) {
      return g[i].defined() ? g[i] : zeros(g[1 - i].shape(), {.dtype = float64, .device = g[1 - i].device()});
    };
    return {or_zero(0) + or_zero(1), or_zero(0) - or_zero(1)};
  }
};

struct Same {
  static constexpr auto name = "same";
  Tensor forward(Inputs in, Saver&) const { return in[0]; }
  Tensors backward(Node&, Inputs g) const { return {g[0] * 2}; }
};

struct WrongShape {
  static constexpr auto name = "wrong_shape";
  Tensor forward(Inputs in, Saver&) const { return in[0].clone(); }
  Tensors backward(Node&, Inputs) const { return {make({1, 2, 3, 4, 5})}; }
};

}  // namespace

TEST_CASE("custom op: value, gradient and second gradient") {
  const Tensor x = leaf({1, 2, 3}), y = Power::power(x, 3);
  CHECK(y.grad_fn()->name() == "power");
  CHECK(values(y)[1] == doctest::Approx(8));
  const auto f = [](Inputs in) { return Tensors{Power::power(in[0], 3)}; };
  CHECK(gradcheck(f, Tensors{make({1, 2, 3})}) == "");
  CHECK(gradgradcheck(f, Tensors{make({1, 2, 3})}) == "");
}

TEST_CASE("custom op: records one node, and none under no_grad") {
  const Tensor x = leaf({2}), y = Power::power(x, 2);
  CHECK(y.grad_fn()->edges.size() == 1);
  CHECK(y.grad_fn()->edges[0].leaf.impl() == x.impl());
  NoGradGuard guard;
  CHECK_FALSE(Power::power(x, 2).grad_fn());
}

TEST_CASE("custom op: its errors carry its name") {
  CHECK_THROWS_WITH_AS(Power::power(make({1}, int64), 2),
                       doctest::Contains("power: needs a floating dtype; input [1] int64 "), Error);
  const Tensor x = leaf({2}), y = Power::power(x, 2);
  y.sum().backward();
  CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("power a second time"), Error);
  CHECK_THROWS_WITH_AS(call(WrongShape{}, leaf({1, 2})).sum().backward(),
                       doctest::Contains("wrong_shape: its backward returned a gradient of shape [5]"),
                       Error);
}

TEST_CASE("custom op: several outputs, of which one may go unused") {
  const Tensor a = leaf({5}), b = leaf({3});
  const auto [sum, difference] = call(SumAndDifference{}, a, b);
  (sum * difference).sum().backward();  // a^2 - b^2
  CHECK(values(a.grad()) == Values{10});
  CHECK(values(b.grad()) == Values{-6});
  const auto unused = call(SumAndDifference{}, a, b);
  unused[1].sum().backward();
  CHECK(values(a.grad()) == Values{11});
  CHECK(values(b.grad()) == Values{-7});
}

TEST_CASE("custom op: forward may return its input") {
  const Tensor x = leaf({3}), y = call(Same{}, x);
  CHECK(x.is_leaf());
  CHECK(values(y) == Values{3});
  y.sum().backward();
  CHECK(values(x.grad()) == Values{2});
}
