// The engine's conventions: what is added where, what is kept, what is freed, and what is refused.
#include "autograd/engine.h"

#include <cmath>

#include "autograd/call.h"
#include "autograd/ops.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("split: a piece that nobody uses has a gradient of 0") {
  const Tensor x = make({1, 2, 3, 4, 5}, {5}).requires_grad_();
  const auto pieces = split(x, {2, 1, 2});
  (pieces[0].sum() * 2 + (pieces[2] * pieces[2]).sum()).backward();
  CHECK(values(x.grad()) == Values{2, 2, 0, 8, 10});
}

TEST_CASE("backward: a tensor used along two paths gets the sum") {
  const Tensor a = leaf({2, 3}), b = a * a, c = b + a, d = b * c;  // d = a^4 + a^3
  d.sum().backward();
  CHECK(values(a.grad()) == Values{4 * 8 + 3 * 4, 4 * 27 + 3 * 9});
}

TEST_CASE("backward: both operands the same tensor") {
  const Tensor a = leaf({3});
  (a * a).sum().backward();
  (a + a).sum().backward();
  (a - a).sum().backward();
  CHECK(values(a.grad()) == Values{6 + 2 + 0});
}

TEST_CASE("backward: gradients of two leaves are never one memory") {
  const Tensor a = leaf({1}), b = leaf({1});
  ((a + b) + a * 3).sum().backward();
  CHECK(values(a.grad()) == Values{4});
  CHECK(values(b.grad()) == Values{1});
  Tensor of_a = a.grad();
  of_a.fill_(9);
  CHECK(values(b.grad()) == Values{1});
}

TEST_CASE("backward: the gradient that is passed in stays the caller's") {
  const Tensor a = leaf({1, 2}), given = make({5, 6});
  a.clone().backward(given);
  (a * 1).backward(given);
  a.view({2, 1}).backward(given.view({2, 1}));
  CHECK(values(a.grad()) == Values{15, 18});
  CHECK(values(given) == Values{5, 6});
  CHECK(given.version() == 0);
}

TEST_CASE("backward: graphs built anew add to the same gradient in place") {
  const Tensor a = leaf({1}), b = leaf({1});
  (a + b).sum().backward();
  const Tensor first = a.grad();
  (a + b).sum().backward();
  CHECK(values(a.grad()) == Values{2});
  CHECK(values(b.grad()) == Values{2});
  CHECK(values(first) == Values{2});  // the very tensor that was there
}

TEST_CASE("backward: with create_graph the sum is a new tensor") {
  Tensor a = leaf({2});
  a.square().sum().backward();
  const Tensor first = a.grad();
  a.square().sum().backward({}, false, true);
  CHECK(values(first) == Values{4});
  CHECK(values(a.grad()) == Values{8});
  CHECK(a.grad().requires_grad());
  a.set_grad({});  // the gradient's history leads to the leaf, which would hold itself
}

TEST_CASE("backward: a second time through one graph") {
  Tensor a = leaf({3});
  const Tensor y = a.exp().sum();
  y.backward();
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("exp a second time"), Error);
  const Tensor z = (a * a).sum();
  z.backward({}, true);
  z.backward();
  CHECK_THROWS_WITH_AS(z.backward(), doctest::Contains("mul a second time"), Error);
  const Tensor nothing_saved = (a + a).sum();
  a.set_grad({});
  nothing_saved.backward();
  nothing_saved.backward();
  CHECK(values(a.grad()) == Values{4});
}

TEST_CASE("backward: two losses on one trunk") {
  const Tensor a = leaf({2}), trunk = a * a;
  trunk.sum().backward({}, true);
  (trunk * 0.25).sum().backward();
  CHECK(values(a.grad()) == Values{5});
}

TEST_CASE("backward: the factor of a scaled loss counts") {
  const Tensor a = leaf({1, 2});
  (2 * mse_loss(a, make({0, 0}))).backward();
  CHECK(values(a.grad()) == Values{2, 4});
}

TEST_CASE("backward: what it cannot start from") {
  const Tensor a = leaf({1, 2});
  CHECK_THROWS_WITH_AS((a + a).backward(), doctest::Contains("one element"), Error);
  CHECK_THROWS_WITH_AS((a + a).backward(make({1, 2, 3})), doctest::Contains("[3] float64"), Error);
  CHECK_THROWS_WITH_AS((a + a).backward(make({1, 2}, float32)), doctest::Contains("dtype"), Error);
  CHECK_THROWS_WITH_AS(make({1}).backward(), doctest::Contains("does not require grad"), Error);
  CHECK_THROWS_WITH_AS(Tensor().backward(), doctest::Contains("does not require grad"), Error);
  CHECK_FALSE(a.grad().defined());
  (a + a).narrow(0, 0, 1).backward();  // one element, whatever its dimensions
  CHECK(values(a.grad()) == Values{2, 0});
}

TEST_CASE("backward: a leaf is its own graph") {
  const Tensor a = leaf({3});
  a.backward();
  a.sum().backward();
  CHECK(values(a.grad()) == Values{2});
}

TEST_CASE("grad has the leaf's layout, shape and dtype") {
  const Shape shape{2, 3, 2, 2};
  const Tensor images = make(Values(24, 1.0), shape).contiguous(channels_last).requires_grad_();
  (images * make(Values(24, 2.0), shape)).sum().backward();
  CHECK(images.grad().is_contiguous(channels_last));
  CHECK(images.grad().strides() == images.strides());

  const Tensor a = leaf({1, 2});
  a.sum().backward();  // the gradient is an expanded 1
  CHECK(a.grad().strides() == Shape{1});
  Tensor of_a = a.grad();
  of_a.add_(make({1, 2}));
  CHECK(values(a.grad()) == Values{2, 3});
}

TEST_CASE("an expanded leaf gets a gradient of its own for every element") {
  const Tensor a = make({1}).expand({3}).requires_grad_();
  for (int i = 0; i < 2; ++i) a.sum().backward();
  (a * make({1, 2, 3})).sum().backward();
  CHECK(values(a.grad()) == Values{3, 4, 5});
}

TEST_CASE("broadcasting is undone in the gradient") {
  const Tensor a = leaf({1, 2, 3}, {3, 1}), b = leaf({1, 2}), c = leaf({2}, Shape{});
  (a * b * c).sum().backward();
  CHECK(values(a.grad()) == Values{6, 6, 6});
  CHECK(a.grad().shape() == Shape{3, 1});
  CHECK(values(b.grad()) == Values{12, 12});
  CHECK(c.grad().shape() == Shape{});
  CHECK(c.grad().item<double>() == 18);
}

TEST_CASE("promotion is undone in the gradient") {
  const Tensor x = leaf({2}, bfloat16), y = leaf({3}, float32), n = make({5}, int64);
  const Tensor out = x * y * n;
  CHECK(out.dtype() == float32);
  out.sum().backward();
  CHECK(x.grad().dtype() == bfloat16);
  CHECK(values(x.grad()) == Values{15});
  CHECK(y.grad().dtype() == float32);
  CHECK(values(y.grad()) == Values{10});
}

TEST_CASE("casts, copies and permutations pass the gradient in their input's dtype") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3}, float32);
  const Tensor weights = make({1, 2, 3, 4, 5, 6}, {3, 2}, float16);
  (x.to(float16).clone().permute({1, 0}) * weights).sum().backward();
  CHECK(x.grad().dtype() == float32);
  CHECK(values(x.grad()) == Values{1, 3, 5, 2, 4, 6});
}

TEST_CASE("a product through a 16-bit cast has both derivatives") {
  const Tensor w = leaf({2}, float32), h = w.to(bfloat16);
  const Tensor first = grad(Tensors{(h * h * h).sum()}, Tensors{w}, {}, {.create_graph = true})[0];
  CHECK(first.dtype() == float32);
  CHECK(values(first) == Values{12});
  CHECK(values(grad(Tensors{first.sum()}, Tensors{w})[0]) == Values{12});
}

TEST_CASE("grad(): leaves, inner tensors, and no change of any grad") {
  const Tensor a = leaf({2}), b = leaf({5}), inner = a * a, out = inner * b;
  const Tensors grads = grad(Tensors{out}, Tensors{a, inner, b}, Tensors{make({1})}, {.retain_graph = true});
  CHECK(values(grads[0]) == Values{20});
  CHECK(values(grads[1]) == Values{5});
  CHECK(values(grads[2]) == Values{4});
  CHECK_FALSE(a.grad().defined());
  CHECK_FALSE(b.grad().defined());
  CHECK(values(grad(Tensors{out}, Tensors{out})[0]) == Values{1});
}

TEST_CASE("grad(): several outputs add up") {
  const Tensor a = leaf({3}), square = a * a;
  const Tensors grads = grad(Tensors{square, square * a}, Tensors{a}, Tensors{make({2}), {}});
  CHECK(values(grads[0]) == Values{2 * 6 + 27});
}

TEST_CASE("grad(): what it refuses") {
  const Tensor a = leaf({2}), unused = leaf({1}), constant = make({1});
  CHECK_THROWS_WITH_AS(grad(Tensors{a * a}, Tensors{a, unused}), doctest::Contains("input 1 was not used"),
                       Error);
  CHECK_FALSE(grad(Tensors{a * a}, Tensors{a, unused}, {}, {.allow_unused = true})[1].defined());
  CHECK_THROWS_WITH_AS(grad(Tensors{a * a}, Tensors{constant}),
                       doctest::Contains("input 0 does not require grad"), Error);
  CHECK_THROWS_AS(grad(Tensors{a * a}, Tensors{}), Error);
  CHECK_THROWS_AS(grad(Tensors{constant}, Tensors{a}), Error);
}

TEST_CASE("grad(): stops at what was asked for") {
  // Below `inner` the graph was freed, and nothing there runs.
  const Tensor a = leaf({2}), inner = a.exp();
  inner.sum().backward();
  CHECK(values(grad(Tensors{inner * 3}, Tensors{inner})[0]) == Values{3});
}

TEST_CASE("retain_grad keeps the gradient of an inner tensor") {
  const Tensor a = leaf({2});
  Tensor inner = a * 3, other = a * 2;
  inner.retain_grad();
  (inner * inner + other).sum().backward();
  CHECK(values(inner.grad()) == Values{12});
  CHECK_FALSE(other.grad().defined());
  CHECK_FALSE(inner.is_leaf());
  CHECK_THROWS_AS(make({1}).retain_grad(), Error);
}

TEST_CASE("detach: the same memory without history") {
  const Tensor a = leaf({2}), inner = a * a, cut = inner.detach();
  CHECK_FALSE(cut.requires_grad());
  CHECK(cut.is_leaf());
  CHECK(cut.view_of_memory().data == inner.view_of_memory().data);
  (cut * a).sum().backward();
  CHECK(values(a.grad()) == Values{4});
}

TEST_CASE("no_grad and enable_grad nest, and an exception restores the mode") {
  const Tensor a = leaf({2});
  CHECK(grad_enabled());
  {
    NoGradGuard outer;
    CHECK_FALSE((a * a).requires_grad());
    {
      EnableGradGuard inner;
      CHECK((a * a).requires_grad());
      NoGradGuard innermost;
      CHECK_FALSE(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
  try {
    NoGradGuard guard;
    a.view({7});
  } catch (const Error&) {
  }
  CHECK(grad_enabled());
  CHECK_THROWS_AS(a.exp().backward(make({1, 2, 3})), Error);
  CHECK_THROWS_AS(grad(Tensors{a * a}, Tensors{leaf({1})}, {}, {.create_graph = true}), Error);
  CHECK(grad_enabled());
}

TEST_CASE("backward runs under no_grad too") {
  const Tensor a = leaf({2}), y = (a * a).sum();
  NoGradGuard guard;
  y.backward();
  CHECK(values(a.grad()) == Values{4});
  CHECK_FALSE(a.grad().requires_grad());
}

TEST_CASE("requires_grad is for floating leaves") {
  for (DType dtype : {int64, int32, uint8, bool_}) {
    CAPTURE(name_of(dtype));
    Tensor x = make({1}, dtype);
    CHECK_THROWS_WITH_AS(x.requires_grad_(), doctest::Contains(std::string(name_of(dtype)).c_str()), Error);
    CHECK_FALSE(x.requires_grad());
  }
  CHECK_THROWS_AS(ones({2}, {.dtype = int64, .requires_grad = true}), Error);
  const Tensor a = leaf({1});
  Tensor inner = a * 2;
  CHECK_THROWS_WITH_AS(inner.requires_grad_(false), doctest::Contains("detach()"), Error);
  CHECK(make({1}).requires_grad_().requires_grad_(false).requires_grad() == false);
}

TEST_CASE("set_grad takes what fits the tensor") {
  Tensor a = leaf({1, 2}, float32);
  CHECK_THROWS_AS(a.set_grad(make({1, 2, 3}, float32)), Error);
  CHECK_THROWS_AS(a.set_grad(make({1, 2}, float64)), Error);
  CHECK_FALSE(a.grad().defined());
  a.set_grad(make({1, 2}, float32));
  a.set_grad({});
  CHECK_FALSE(a.grad().defined());
}

// PyTorch 2.15's answers. A scaler finds the overflow of a forward pass in its gradients: NaN must get there.
TEST_CASE("what is chosen by an op takes the gradient, and nothing else does, whatever arrives") {
  const auto gradient = [](auto&& f) {
    const Tensor x = leaf({-1, -1, 2, NAN, NAN, 0});
    f(x).backward(make({INFINITY, NAN, INFINITY, NAN, 1, 2}, x.dtype()));
    return x.grad();
  };
  const auto check = [](const Tensor& actual, const Values& expected) {
    CHECK(close(actual, make(expected, actual.dtype()), 0));  // NaN in the same places
  };
  check(gradient([](const Tensor& x) { return relu(x); }), {0, 0, INFINITY, NAN, 1, 0});
  check(gradient([](const Tensor& x) { return clamp(x, 0, 1); }), {0, 0, 0, 0, 0, 0});
  check(gradient([](const Tensor& x) { return maximum(x, 0); }), {0, 0, INFINITY, NAN, 1, 1});
  check(gradient([](const Tensor& x) { return minimum(x, 0); }), {INFINITY, NAN, 0, NAN, 1, 1});
  check(gradient([](const Tensor& x) { return where(gt(x, 0), x, 0); }), {0, 0, INFINITY, 0, 0, 0});
  check(gradient([](const Tensor& x) { return x.masked_fill(lt(x, 1), 0); }), {0, 0, INFINITY, NAN, 1, 0});
  check(gradient([](const Tensor& x) { return floor(x); }), {0, 0, 0, 0, 0, 0});
}

TEST_CASE("subgradients") {
  const auto slope_at = [](Tensor (*f)(const Tensor&), double at) {
    const Tensor x = leaf({at});
    f(x).sum().backward();
    return values(x.grad())[0];
  };
  CHECK(slope_at(&relu, 0) == 0);
  CHECK(slope_at(&abs, 0) == 0);
  CHECK(slope_at(&sqrt, 0) == INFINITY);
  CHECK(std::isnan(slope_at([](const Tensor& x) { return where(gt(x, 0), sqrt(x), 0.0); }, 0)));
  CHECK(slope_at([](const Tensor& x) { return maximum(x, 1.0); }, 1) == 0.5);
  CHECK(slope_at([](const Tensor& x) { return minimum(x, 1.0); }, 1) == 0.5);

  const Tensor tie = leaf({3, 1, 3});
  tie.amax().backward();
  CHECK(values(tie.grad()) == Values{0.5, 0, 0.5});
  const Tensor a = leaf({2});
  maximum(a, a).sum().backward();
  CHECK(values(a.grad()) == Values{1});  // half of it through each operand
}

TEST_CASE("a third derivative of a pointwise op is refused, by name") {
  const Tensor x = leaf({0.5});
  Tensor y = x.sin().sum();
  for (int order = 1; order <= 2; ++order)
    y = grad(Tensors{y}, Tensors{x}, {}, {.create_graph = true})[0].sum();
  CHECK(y.item<double>() == doctest::Approx(-std::sin(0.5)));
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("slope: its gradient cannot be differentiated again"),
                       Error);
}
