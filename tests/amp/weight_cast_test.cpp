// The cast of a weight, kept with the weight.
#include "amp/weight_cast.h"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <thread>

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tensor/tensor_impl.h"
#include "tensor/weight_cast.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

Tensor ones_of(DType dtype, const Shape& shape = {2, 2}) {
  return ones(shape, {.dtype = dtype, .device = test_device()});
}
nn::Linear linear_of(int64_t in, int64_t out, bool bias = true) {
  nn::Linear layer(in, out, {.bias = bias});
  layer.to(test_device());
  return layer;
}

/// What is kept of the weight as it is, of either dtype; null if nothing is.
const TensorImpl* cast_of(const Tensor& weight) {
  for (const DType dtype : {float16, bfloat16})
    if (const Tensor cast = kept_cast(weight, dtype); cast.defined()) return cast.impl();
  return nullptr;
}

}  // namespace

TEST_CASE("weight casts: an evaluation under no_grad does not cost the weight its gradient") {
  nn::Linear layer = linear_of(2, 2);
  const Tensor x = ones_of(float32);
  const amp::Autocast autocast(test_device());
  {
    const NoGradGuard guard;
    layer(x);
  }
  layer(x).sum().backward();
  CHECK(layer.weight.grad().dtype() == float32);
  CHECK(values(layer.weight.grad()) == Values{2, 2, 2, 2});
  CHECK(layer.bias.grad().defined());
}

TEST_CASE("weight casts: a change of the weight is seen at once") {
  nn::Linear layer = linear_of(2, 2, false);
  const Tensor x = ones_of(float32);
  const amp::Autocast autocast(test_device(), bfloat16);
  const auto zeroed = [&] {
    const NoGradGuard guard;
    layer.weight.zero_();
  };
  CHECK(values(layer(x)) != Values{0, 0, 0, 0});
  zeroed();
  CHECK(values(layer(x)) == Values{0, 0, 0, 0});
  {
    const amp::Autocast inner(test_device());
    const NoGradGuard guard;
    layer.weight.fill_(1);
  }
  CHECK(values(layer(x)) == Values{2, 2, 2, 2});
  Tensor weight = layer.weight;
  weight.set_data(full({2, 2}, 3.0, {.device = test_device()}));  // other memory, of the same version perhaps
  CHECK(values(layer(x)) == Values{6, 6, 6, 6});
  {
    const amp::Autocast other(test_device(), float16);
    CHECK(layer(x).dtype() == float16);  // the dtype is part of what is kept
  }
  CHECK(layer(x).dtype() == bfloat16);
}

TEST_CASE("weight casts: one copy for a weight, made once, gone with it; none for what is no weight") {
  const Tensor x = ones_of(float32, {4, 64});
  const size_t before = memory_stats(test_device()).live;
  {
    nn::Linear layer = linear_of(64, 64, false);
    const Tensor frozen = ones_of(float32, {64, 64});
    const amp::Autocast autocast(test_device());
    const NoGradGuard guard;
    layer(x);
    const TensorImpl* first = cast_of(layer.weight);
    REQUIRE(first);
    for (int i = 0; i < 1000; ++i) matmul(x, layer.weight.t());  // a view is not kept
    CHECK(cast_of(layer.weight) == first);
    linear(x, frozen);
    CHECK_FALSE(cast_of(frozen));
    CHECK_FALSE(cast_of(x));
    CHECK(memory_stats(test_device()).live == before + 64 * 64 * (4 + 2 + 4));
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("weight casts: an optimizer writes the cast with the weight") {
  const Tensor x = ones_of(float32, {4, 64});
  const auto check_steps = [&](auto make_optimizer) {
    for (const DType dtype : {bfloat16, float16}) {
      nn::Linear layer = linear_of(64, 64), unused = linear_of(64, 64);
      auto optimizer = make_optimizer(std::vector<Tensor>{layer.weight, layer.bias, unused.weight});
      amp::GradScaler scaler(test_device(), {.init_scale = 8, .growth_interval = 1});
      const TensorImpl* first = nullptr;
      for (int step = 0; step < 3; ++step) {
        CAPTURE(step);
        {
          const amp::Autocast autocast(test_device(), dtype);
          scaler.scale(mse_loss(layer(x), x)).backward();
        }
        const Values before = values(layer.weight);
        scaler.step(*optimizer);
        scaler.update();
        REQUIRE(cast_of(layer.weight));
        if (step == 0) first = cast_of(layer.weight);
        CHECK(cast_of(layer.weight) == first);
        CHECK(values(layer.weight) != before);
        CHECK(values(kept_cast(layer.weight, dtype)) == values(layer.weight.detach().to(dtype)));
        CHECK_FALSE(cast_of(unused.weight));
        optimizer->zero_grad();
      }
    }
  };
  check_steps([](const std::vector<Tensor>& p) { return std::make_unique<optim::Adam>(p); });
  check_steps([](const std::vector<Tensor>& p) {
    return std::make_unique<optim::SGD>(p, optim::SgdOptions{.lr = 1, .momentum = .9});
  });
}

TEST_CASE("weight casts: a cast that something else holds is left alone, and made anew") {
  nn::Linear layer = linear_of(2, 2, false);
  const Tensor x = ones_of(float32);
  optim::SGD sgd({layer.weight}, {.lr = 1});
  const amp::Autocast autocast(test_device(), bfloat16);
  const Tensor loss = layer(x).sum();
  loss.backward({}, true);
  const Tensor held = kept_cast(layer.weight, bfloat16);
  const Values before = values(held);
  sgd.step();
  CHECK(values(held) == before);
  CHECK_FALSE(cast_of(layer.weight));
  layer(x);
  CHECK(values(kept_cast(layer.weight, bfloat16)) == values(layer.weight.detach().to(bfloat16)));
}

TEST_CASE("weight casts: a step that is skipped leaves cast and weight as they are") {
  nn::Linear layer = linear_of(2, 2, false);
  optim::Adam adam({layer.weight});
  amp::GradScaler scaler(test_device(), {.init_scale = 8});
  {
    const amp::Autocast autocast(test_device(), bfloat16);
    scaler.scale((layer(ones_of(float32)) * std::numeric_limits<float>::infinity()).sum()).backward();
  }
  const Values before = values(layer.weight);
  scaler.step(adam);
  scaler.update();
  CHECK(values(layer.weight) == before);
  REQUIRE(cast_of(layer.weight));
  CHECK(values(kept_cast(layer.weight, bfloat16)) == values(layer.weight.detach().to(bfloat16)));
}

TEST_CASE("weight casts: a weight used 600 times has 600 unit gradients, added in float32") {
  const Tensor weight = leaf({256}, {1, 1}, float32), one = ones_of(float32, {1, 1});
  Tensor total = zeros({1, 1}, {.device = test_device()});
  {
    const amp::Autocast autocast(test_device());
    for (int i = 0; i < 600; ++i) total = total + matmul(one, weight);
  }
  total.backward();
  CHECK(weight.grad().item<double>() == 600);
}

TEST_CASE("weight casts: several threads may ask at once") {
  nn::Linear layer = linear_of(16, 16);
  const Tensor x = ones_of(float32, {2, 16});
  const Values expected = [&] {
    const amp::Autocast autocast(test_device());
    return values(layer(x));
  }();
  {
    const NoGradGuard guard;
    layer.weight.add_(0);  // what was kept is of an older version
  }
  std::vector<Values> results(4);
  std::vector<std::thread> threads;
  for (Values& result : results) {
    threads.emplace_back([&] {
      const amp::Autocast autocast(test_device());
      result = values(layer(x));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Values& result : results) CHECK(result == expected);
}
