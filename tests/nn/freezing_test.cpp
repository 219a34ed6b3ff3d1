// Frozen layers: what they still do, and what nobody pays for.
#include "autograd/node.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tensor/random.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

/// A body to freeze and a head to train.
struct Net : nn::Module {
  nn::Sequential body =
      add("body", nn::Sequential(nn::Conv2d(2, 3, 3, {.padding = 1}), nn::BatchNorm2d(3), nn::ReLU()));
  nn::Conv2d head = add("head", nn::Conv2d(3, 1, 1));

  Net() { to(test_device()); }
  Tensor forward(const Tensor& x) override { return head(body(x)); }
};

Tensor input() { return rand({2, 2, 4, 3}, {.device = test_device()}); }

std::vector<Tensor> values_of(const nn::Module& module) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : module.parameters()) all.push_back(parameter.detach().clone());
  return all;
}

bool all_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!close(a[i], b[i], 0)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("freezing: a frozen body gets no gradients, records nothing and holds no memory") {
  manual_seed(1);
  Net net;
  net.body.requires_grad_(false);
  const Tensor x = input();
  const size_t before = memory_stats(test_device()).live;
  const Tensor features = net.body(x);
  CHECK_FALSE(features.requires_grad());
  const size_t one = memory_stats(test_device()).live - before;
  CHECK(one < 2 * static_cast<size_t>(features.numel()) * sizeof(float));  // the features and nothing else

  net(x).square().sum().backward();
  for (const Tensor& parameter : net.body.parameters()) CHECK_FALSE(parameter.grad().defined());
  for (const Tensor& parameter : net.head.parameters()) CHECK(parameter.grad().defined());

  Net same;
  same.load_state_dict(net.state_dict());
  same(x).square().sum().backward();
  CHECK(close(net.head.weight.grad(), same.head.weight.grad(), 0));
}

TEST_CASE("freezing: gradients pass through a frozen head, which saves nothing for its own") {
  manual_seed(2);
  Net net, same;
  same.load_state_dict(net.state_dict());
  net.head.requires_grad_(false);
  const Tensor x = input();
  const Tensor y = net(x);
  REQUIRE(y.grad_fn());
  CHECK_FALSE(y.grad_fn()->saved(0).defined());  // conv2d's input, which only the weight's gradient reads
  y.square().sum().backward();
  same(x).square().sum().backward();
  for (const Tensor& parameter : net.head.parameters()) CHECK_FALSE(parameter.grad().defined());
  const auto actual = net.body.parameters(), expected = same.body.parameters();
  for (size_t i = 0; i < actual.size(); ++i) CHECK(close(actual[i].grad(), expected[i].grad(), 0));

  const Tensor rows = rand({5, 2}, {.device = test_device(), .requires_grad = true});
  nn::Linear linear(2, 3);
  linear.to(test_device());
  linear.requires_grad_(false);
  CHECK_FALSE(linear(rows).grad_fn()->saved(0).defined());
}

TEST_CASE("freezing: one parameter of a layer") {
  nn::Linear linear(2, 3);
  linear.to(test_device());
  linear.weight.requires_grad_(false);
  const Tensor y = linear(rand({5, 2}, {.device = test_device()}));
  CHECK_FALSE(y.grad_fn()->saved(0).defined());
  y.sum().backward();
  CHECK_FALSE(linear.weight.grad().defined());
  CHECK(linear.bias.grad().to_vector<float>() == std::vector<float>{5, 5, 5});
}

namespace {

void check_leaves_frozen_alone(Net net, optim::Optimizer& optimizer) {
  const size_t before = optimizer.state_dict().size();
  net.body.requires_grad_(false);
  const auto body = values_of(net.body), head = values_of(net.head);
  const auto train = [&] {
    optimizer.zero_grad();
    net(input()).square().sum().backward();
    optimizer.step();
  };
  train();
  CHECK(all_close(values_of(net.body), body));
  CHECK_FALSE(all_close(values_of(net.head), head));
  const size_t with_head = optimizer.state_dict().size();
  CHECK(with_head > before);

  net.requires_grad_();
  train();
  CHECK_FALSE(all_close(values_of(net.body), body));
  CHECK(optimizer.state_dict().size() > with_head);
}

}  // namespace

TEST_CASE("freezing: optimizers leave frozen parameters and their state alone") {
  Net first, second;
  optim::SGD sgd(first.parameters(), {.lr = .1, .momentum = .9, .weight_decay = .1});
  check_leaves_frozen_alone(first, sgd);
  optim::Adam adam(second.parameters(), {.lr = .1, .weight_decay = .1});
  check_leaves_frozen_alone(second, adam);
}

TEST_CASE("freezing: a gradient that is there stays, and counts until it is forgotten") {
  Net net;
  net(input()).square().sum().backward();
  net.body.requires_grad_(false);
  const auto body = values_of(net.body);
  optim::SGD optimizer(net.parameters(), {.lr = .1});
  optimizer.step();
  CHECK_FALSE(all_close(values_of(net.body), body));
  const auto after = values_of(net.body);
  optimizer.zero_grad();
  net(input()).square().sum().backward();
  optimizer.step();
  CHECK(all_close(values_of(net.body), after));
}

TEST_CASE("freezing is not evaluation: a frozen BatchNorm goes on counting until eval()") {
  Net net;
  net.requires_grad_(false);
  const StateDict state = net.state_dict();
  const Tensor mean = state.at("body.1.running_mean"), before = mean.clone();
  net(input());
  CHECK_FALSE(close(mean, before, 0));
  CHECK(state.at("body.1.num_batches_tracked").item<int64_t>() == 1);
  const Tensor then = mean.clone();
  net.eval();
  net(input());
  CHECK(close(mean, then, 0));
  net.train();
  for (const Tensor& parameter : net.parameters()) CHECK_FALSE(parameter.requires_grad());
}
