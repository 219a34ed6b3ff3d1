// Hooks on modules. The numbers are those of PyTorch 2.15 for the same calls.
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// y = 2 a + 3 b for x = [a, b].
nn::Linear weighted_sum() {
  nn::Linear layer(2, 1, {.bias = false});
  layer.to(float64).to(test_device());
  const NoGradGuard guard;
  layer.weight.copy_(make({2, 3}, {1, 2}));
  return layer;
}

const Shape kRow{1, 2};

}  // namespace

TEST_CASE("module hooks: a pre-hook replaces the input, a forward hook the output") {
  nn::Linear layer = weighted_sum();
  Values seen_input, seen_output;
  layer.register_forward_pre_hook([](const Tensor&) { return Tensor(); });
  const HookHandle doubling = layer.register_forward_pre_hook([](const Tensor& x) { return x * 2; });
  layer.register_forward_hook([&](const Tensor& x, const Tensor& y) {
    seen_input = values(x);
    seen_output = values(y);
    return y + 100;
  });
  const HookHandle halving =
      layer.register_forward_hook([](const Tensor&, const Tensor& y) { return y / 2; });
  const Tensor x = leaf({1, 5}, kRow);
  const Tensor y = layer(x);
  CHECK(seen_input == Values{2, 10});
  CHECK(seen_output == Values{34});
  CHECK(values(y) == Values{67});
  y.sum().backward();
  CHECK(values(x.grad()) == Values{2, 3});
  CHECK(values(layer.weight.grad()) == Values{1, 5});
  doubling.remove();
  halving.remove();
  CHECK(values(layer(x)) == Values{117});
  CHECK(values(layer.forward(x)) == Values{17});
}

TEST_CASE("module hooks: a full backward hook sees both gradients and may replace the input's") {
  nn::Linear layer = weighted_sum();
  const Tensor x = leaf({1, 5}, kRow);
  Values seen;
  const auto watch = [&](const Tensor& grad_input, const Tensor& grad_output) {
    for (const Tensor& grad : {grad_input, grad_output}) {
      for (const double value : values(grad)) seen.push_back(value);
    }
  };
  layer.register_full_backward_hook([&](const Tensor& grad_input, const Tensor& grad_output) {
    watch(grad_input, grad_output);
    return grad_input * 10;
  });
  const HookHandle second = layer.register_full_backward_hook([&](const Tensor& grad_input, const Tensor& g) {
    watch(grad_input, g);
    return Tensor();
  });
  const Tensor y = layer(x);
  CHECK(values(y) == Values{17});
  const Tensor scaled = (y * 4).sum();
  scaled.backward({}, true);
  CHECK(seen == Values{8, 12, 4, 80, 120, 4});
  CHECK(values(x.grad()) == Values{80, 120});
  CHECK(values(layer.weight.grad()) == Values{4, 20});

  second.remove();
  seen.clear();
  scaled.backward();
  CHECK(seen == Values{8, 12, 4});
  const NoGradGuard guard;
  CHECK(values(layer(x)) == Values{17});
}

TEST_CASE("module hooks: an input without gradient has none to see and none to replace") {
  nn::Linear layer = weighted_sum();
  const Tensor x = make({1, 5}, kRow);
  int calls = 0;
  layer.register_full_backward_hook([&](const Tensor& grad_input, const Tensor& grad_output) {
    ++calls;
    CHECK_FALSE(grad_input.defined());
    CHECK(values(grad_output) == Values{4});
    return Tensor();
  });
  (layer(x) * 4).sum().backward();
  CHECK(calls == 1);
  CHECK(values(layer.weight.grad()) == Values{4, 20});

  const HookHandle wrong = layer.register_full_backward_hook([&](const Tensor&, const Tensor&) { return x; });
  const Tensor y = layer(x).sum() * 4;
  CHECK(error_text([&] { y.backward(); }) ==
        "register_full_backward_hook: a hook replaced the gradient of an input that requires none");
  wrong.remove();

  layer.requires_grad_(false);
  CHECK_FALSE(layer(x).requires_grad());
}

TEST_CASE("module hooks: nested modules, from outside in and back") {
  nn::Sequential net(nn::Linear(2, 2), nn::ReLU());
  net.to(test_device());
  std::string log;
  const auto watch = [&](nn::Module& module, const std::string& name) {
    const auto note = [&log, name](const std::string& what) {
      log += name + ' ' + what + ", ";
      return Tensor();
    };
    module.register_forward_pre_hook([=](const Tensor&) { return note("pre"); });
    module.register_forward_hook([=](const Tensor&, const Tensor&) { return note("forward"); });
    module.register_full_backward_hook([=](const Tensor&, const Tensor&) { return note("backward"); });
  };
  watch(net, "all");
  watch(*net.children()[0].second, "linear");
  watch(*net.children()[1].second, "relu");
  net(ones({1, 2}, {.device = test_device(), .requires_grad = true})).sum().backward();
  CHECK(log ==
        "all pre, linear pre, linear forward, relu pre, relu forward, all forward, "
        "relu backward, linear backward, all backward, ");
}

TEST_CASE("module hooks: a copy shares them, and one that is called twice runs them twice") {
  nn::Linear layer(2, 2);
  layer.to(test_device());
  int forward = 0;
  std::vector<Tensor> outputs, grads;
  nn::Linear copy = layer;
  copy.register_forward_hook([&](const Tensor&, const Tensor&) { return ++forward, Tensor(); });
  copy.register_full_backward_hook([&](const Tensor& grad_input, const Tensor& grad_output) {
    grads.push_back(grad_input);
    outputs.push_back(grad_output);
    return Tensor();
  });
  const Tensor x = ones({1, 2}, {.device = test_device(), .requires_grad = true});
  layer(layer(x)).sum().backward();
  CHECK(forward == 2);
  REQUIRE(grads.size() == 2);
  CHECK(close(outputs[0], ones({1, 2}, {.device = test_device()}), 0));
  CHECK(close(outputs[1], grads[0], 0));
  CHECK(close(x.grad(), grads[1], 0));
}

TEST_CASE("module hooks: a module that returns its input, and one that returns a parameter") {
  struct Pass : nn::Module {
    Tensor forward(const Tensor& x) override { return x; }
  } pass;
  pass.register_full_backward_hook([](const Tensor& grad_input, const Tensor& grad_output) {
    CHECK(values(grad_output) == Values{3, 3});
    return grad_input * 2;
  });
  const Tensor x = leaf({1, 5});
  (pass(x) * 3).sum().backward();
  CHECK(values(x.grad()) == Values{6, 6});

  struct Own : nn::Module {
    Tensor value = add_parameter("value", make({7}));
    Tensor forward(const Tensor&) override { return value; }
  } own;
  int calls = 0;
  own.register_full_backward_hook([&](const Tensor&, const Tensor&) { return ++calls, Tensor(); });
  for (int i = 1; i <= 2; ++i) {
    own(make({1})).sum().backward();
    CHECK(calls == i);  // nothing was left hanging on the parameter
  }
  own(x).sum().backward();  // x's gradient never comes
  CHECK(calls == 2);
}

TEST_CASE("module hooks: with a backward hook nothing is changed in place") {
  struct Doubling : nn::Module {
    Tensor forward(const Tensor& x) override { return Tensor(x).mul_(2); }
  } doubling;
  const Tensor x = leaf({1});
  const HookHandle hook =
      doubling.register_full_backward_hook([](const Tensor&, const Tensor&) { return Tensor(); });
  CHECK(error_text([&] { doubling(x * 1); }).starts_with("mul_: a view is changed in place"));
  hook.remove();
  CHECK(values(doubling(x * 1)) == Values{2});
}

TEST_CASE("module hooks: a backward hook leaves the layout alone and frees what it saw") {
  const size_t before = memory_stats(test_device()).live;
  {
    nn::Conv2d layer(1, 1, 1);
    layer.to(test_device());
    layer.register_full_backward_hook([](const Tensor&, const Tensor&) { return Tensor(); });
    const Tensor x = rand({2, 1, 3, 2}, {.device = test_device()}).to(channels_last).requires_grad_();
    const Tensor y = layer(x);
    CHECK(y.strides() == x.strides());
    y.sum().backward();
    CHECK(x.grad().strides() == x.strides());
  }
  CHECK(memory_stats(test_device()).live == before);
}
