// Hooks on tensors. The numbers are PyTorch's rules by hand: f(g) = 10 g multiplies what lies below by 10.
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

TensorHook times(double factor) {
  return [factor](const Tensor& g) { return g * factor; };
}

/// Keeps what it saw and changes nothing.
TensorHook watch(Values& seen) {
  return [&seen](const Tensor& g) {
    for (const double value : values(g)) seen.push_back(value);
    return Tensor();
  };
}

}  // namespace

TEST_CASE("register_hook: on an inner tensor the replaced gradient goes on, and is the one that is kept") {
  const Tensor a = leaf({2});
  Tensor b = a * a;
  Values seen;
  b.register_hook(watch(seen));
  b.register_hook(times(10));
  b.retain_grad();
  b.register_hook(times(10));
  (b.sum() + b.sum()).backward();
  CHECK(seen == Values{2});  // once, and all of it
  CHECK(values(b.grad()) == Values{200});
  CHECK(values(a.grad()) == Values{800});
}

TEST_CASE("register_hook: a leaf's hooks see the whole gradient of each backward, once") {
  Tensor a = leaf({2});
  Values seen;
  a.register_hook(watch(seen));
  a.register_hook(times(3));
  for (int i = 1; i <= 2; ++i) {
    (a * a + a * 5).sum().backward();
    CHECK(seen == Values(static_cast<size_t>(i), 9));
    CHECK(values(a.grad()) == Values{27.0 * i});
  }
  a.set_grad({});
  a.backward();
  CHECK(values(a.grad()) == Values{3});
}

TEST_CASE("register_hook: after forward, and a leaf beside it that has none") {
  const Tensor a = leaf({2}), b = leaf({7});
  const Tensor y = (a * b).sum();
  Tensor(a).register_hook(times(10));
  y.backward();
  CHECK(values(a.grad()) == Values{70});
  CHECK(values(b.grad()) == Values{2});
}

TEST_CASE("register_hook: what a hook keeps or returns is not added to later") {
  Tensor a = leaf({2});
  Tensor kept;
  const Tensor constant = make({4});
  const HookHandle keeping = a.register_hook([&](const Tensor& g) { return kept = g; });
  (a * 3).sum().backward();
  keeping.remove();
  a.register_hook([&](const Tensor&) { return constant; });
  (a * 3).sum().backward();
  (a * 3).sum().backward();
  CHECK(values(a.grad()) == Values{11});
  CHECK(values(kept) == Values{3});
  CHECK(values(constant) == Values{4});
}

TEST_CASE(
    "register_hook: grad() gives what the hooks made, and runs none of a leaf that it was not asked for") {
  Tensor a = leaf({2}), other = leaf({3});
  Values seen, of_other;
  a.register_hook(watch(seen));
  a.register_hook(times(3));
  other.register_hook(watch(of_other));
  const Tensors twice = grad(Tensors{(a * a + a * 5 + other).sum()}, Tensors{a, a});
  CHECK(values(twice[0]) == Values{27});
  CHECK(values(twice[1]) == Values{27});
  CHECK(seen == Values{9});
  CHECK(of_other.empty());
  CHECK_FALSE(a.grad().defined());

  Tensor b = a * a;
  b.register_hook(times(7));
  const Tensors both = grad(Tensors{(b * 2).sum()}, Tensors{a, b});
  CHECK(values(both[0]) == Values{2 * 7 * 4 * 3});
  CHECK(values(both[1]) == Values{14});
}

TEST_CASE("register_hook: with create_graph a hook is recorded, and runs in the next backward too") {
  const Tensor a = leaf({2});
  Tensor b = a * a;
  const HookHandle handle = b.register_hook([&b](const Tensor& g) { return g * b; });
  const Tensor g = grad(Tensors{(b * b).sum()}, Tensors{a}, {}, {.create_graph = true})[0];
  CHECK(values(g) == Values{128});
  CHECK(values(grad(Tensors{g.sum()}, Tensors{a}, {}, {.retain_graph = true})[0]) ==
        Values{1088});  // PyTorch 2.15
  handle.remove();
  CHECK(values(grad(Tensors{g.sum()}, Tensors{a})[0]) == Values{20 * 16});  // g = 2 b b 2 a = 4 a^5
}

TEST_CASE("register_hook: recording is off in a hook unless the backward is recorded") {
  bool recording = true;
  const Tensor a = leaf({2});
  Tensor b = a * 2;
  b.register_hook([&](const Tensor&) {
    recording = (a * a).requires_grad();
    return Tensor();
  });
  b.sum().backward({}, true);
  CHECK_FALSE(recording);
  grad(Tensors{b.sum()}, Tensors{a}, {}, {.create_graph = true});
  CHECK(recording);
}

TEST_CASE("register_hook: remove, also twice, from within a hook, and when the tensor is gone") {
  const Tensor a = leaf({2});
  HookHandle orphan;
  HookHandle().remove();
  {
    Tensor b = a * 2;
    const HookHandle doubling = b.register_hook(times(2)), copy = doubling;
    copy.remove();
    doubling.remove();
    HookHandle once;
    once = b.register_hook([&once](const Tensor& g) {
      once.remove();
      return g * 5;
    });
    b.register_hook(times(3));
    b.sum().backward({}, true);
    CHECK(values(a.grad()) == Values{2 * 5 * 3});
    b.sum().backward();
    CHECK(values(a.grad()) == Values{2 * 5 * 3 + 2 * 3});
    orphan = b.register_hook(times(2));
  }
  orphan.remove();
}

TEST_CASE("register_hook: hooks stay with the value that they were hung on when that is changed in place") {
  const Tensor a = leaf({2});
  Values before, after;
  Tensor b = a * 2;
  b.register_hook(watch(before));
  b.retain_grad();
  b.mul_(5);
  b.register_hook(watch(after));
  (b * 3).sum().backward();
  CHECK(before == Values{15});
  CHECK(after == Values{3});
  CHECK(values(b.grad()) == Values{3});
  CHECK(values(a.grad()) == Values{30});
}

TEST_CASE("register_hook: hooks outlive the handle that they were hung on") {
  const Tensor a = leaf({2});
  Tensor c;
  {
    Tensor b = a * 2;
    b.register_hook(times(100));
    c = b * 1;
  }
  c.sum().backward();
  CHECK(values(a.grad()) == Values{200});
}

TEST_CASE("register_hook: a tensor that took no part has no gradient to show") {
  const Tensor a = leaf({1, 2});
  Values seen;
  Tensor unused = a * 2;
  unused.register_hook(watch(seen));
  Tensor frozen = leaf({3});
  frozen.register_hook(watch(seen));
  frozen.requires_grad_(false);
  (a * frozen).sum().backward();
  CHECK(seen.empty());
  CHECK_FALSE(frozen.grad().defined());
  frozen.requires_grad_();
  (a * frozen).sum().backward();
  CHECK(seen == Values{3});
}

TEST_CASE("register_hook: what does not fit is refused") {
  CHECK(error_text([] {
          make({1}).register_hook(times(2));
        }).starts_with("register_hook: the tensor does not require grad; tensor [1] float64"));
  const std::vector<std::pair<TensorHook, std::string>> wrong = {
      {[](const Tensor& g) { return g.unsqueeze(0); }, "[1,2] float64"},
      {[](const Tensor& g) { return g.to(float32); }, "[2] float32"}};
  for (const auto& [hook, returned] : wrong) {
    const Tensor a = leaf({1, 2});
    Tensor b = a * 2;
    b.register_hook(hook);
    const std::string text = error_text([&] { b.sum().backward(); });
    CHECK(text.starts_with("register_hook: a hook on what mul made returned another shape, dtype or device"));
    CHECK(text.find("returned " + returned) != std::string::npos);
    CHECK_FALSE(a.grad().defined());
    const Tensor c = leaf({1, 2});
    Tensor(c).register_hook(hook);
    CHECK(error_text([&] { (c * 2).sum().backward(); }).find("a hook on a leaf returned another shape") !=
          std::string::npos);
    CHECK_FALSE(c.grad().defined());
  }
  const Device other = test_device() == Device("cpu") ? "reference" : "cpu";
  Tensor d = leaf({1});
  d.register_hook([&](const Tensor& g) { return g.to(other); });
  CHECK_FALSE(error_text([&] { d.sum().backward(); }).empty());
}
