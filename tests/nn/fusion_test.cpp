// Fused layers beside the same layers one by one: results, gradients, statistics, errors, hooks.
#include "nn/fusion.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "amp/autocast.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/random.h"
#include "tensor/threads.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

struct Run {
  Tensors outputs;  ///< y, then the gradients of x and of the parameters, then the buffers
  std::string plan;
};

std::string plan_of(nn::Module& net) {
  std::ostringstream out;
  out << nn::fusion_plan(net);
  return out.str();
}

/// A network from the same seed each time, forward and backward with a gradient that is not constant.
Run run(const std::function<std::shared_ptr<nn::Module>()>& make_net, const Tensor& x, bool fused,
        DType dtype, bool training) {
  const Fusing fusing(fused);
  manual_seed(test_seed());
  const auto net = make_net();
  net->to(dtype).to(test_device());
  for (const auto& [name, buffer] : net->named_buffers()) {
    if (is_floating(buffer.dtype())) Tensor(buffer).copy_(rand(buffer.shape(), {.dtype = dtype}).add(0.5));
  }
  for (const auto& [name, parameter] : net->named_parameters()) {
    const NoGradGuard guard;
    if (parameter.dim() == 1) Tensor(parameter).copy_(rand(parameter.shape(), {.dtype = dtype}).add(0.5));
  }
  net->train(training);
  const Tensor input = x.detach().clone().requires_grad_();
  const Tensor y = (*net)(input);
  y.backward(cos(y.detach() * 3));
  Run result{{y.detach(), input.grad()}, plan_of(*net)};
  for (const Tensor& parameter : net->parameters()) result.outputs.push_back(parameter.grad());
  for (const auto& [name, buffer] : net->named_buffers()) result.outputs.push_back(buffer);
  return result;
}

template <class Net>
auto maker(Net (*make_net)()) {
  return [make_net] { return std::static_pointer_cast<nn::Module>(std::make_shared<Net>(make_net())); };
}

nn::Sequential chain() {
  return nn::Sequential(nn::Conv2d(3, 12, 1), nn::BatchNorm2d(12), nn::ReLU(), nn::Conv2d(12, 7, 1),
                        nn::BatchNorm2d(7), nn::ReLU(), nn::Conv2d(7, 2, 1));
}
nn::Sequential blocks() {
  return nn::Sequential(nn::Conv2d(3, 4, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(4), nn::ReLU(),
                        nn::Conv2d(4, 6, 3, {.stride = 2, .padding = 1}), nn::BatchNorm2d(6), nn::Tanh());
}
nn::Sequential perceptron() {
  return nn::Sequential(nn::Linear(5, 20), nn::ReLU(), nn::Linear(20, 9, {.bias = false}), nn::ReLU(),
                        nn::Linear(9, 3));
}
nn::Sequential gelus() {
  return nn::Sequential(nn::GELU(), nn::Linear(5, 20), nn::GELU("tanh"), nn::Linear(20, 9, {.bias = false}),
                        nn::GELU(), nn::Linear(9, 33), nn::ReLU());
}
nn::Residual residual() {
  nn::Sequential body, shortcut;
  body.push_back("conv1", nn::Conv2d(3, 5, 3, {.stride = 2, .padding = 1, .bias = false}));
  body.push_back("bn1", nn::BatchNorm2d(5));
  body.push_back("relu", nn::ReLU());
  body.push_back("conv2", nn::Conv2d(5, 5, 3, {.padding = 1, .bias = false}));
  body.push_back("bn2", nn::BatchNorm2d(5));
  shortcut.push_back(nn::Conv2d(3, 5, 1, {.stride = 2, .bias = false}));
  shortcut.push_back(nn::BatchNorm2d(5));
  return nn::Residual(body, shortcut, {.body = "", .shortcut = "short"});
}

void check_same(const Run& fused, const Run& plain, double tolerance) {
  REQUIRE(fused.outputs.size() == plain.outputs.size());
  double largest = 0;  // of all gradients: what is smaller is rounding of larger ones
  for (const Tensor& tensor : plain.outputs)
    largest = std::max(largest, tensor.to(float64).abs().max().item<double>());
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    CAPTURE(i);
    REQUIRE(fused.outputs[i].shape() == plain.outputs[i].shape());
    const Tensor difference = (fused.outputs[i].to(float64) - plain.outputs[i].to(float64)).abs();
    CHECK(difference.max().item<double>() <= tolerance * largest);
  }
}

void check_both(const std::function<std::shared_ptr<nn::Module>()>& make_net, const Shape& shape,
                std::string_view expected_plan, std::string_view expected_in_evaluation) {
  for (const bool training : {true, false}) {
    CAPTURE(training);
    for (const DType dtype : {float64, float32}) {
      CAPTURE(name_of(dtype));
      for (const MemoryFormat format : {MemoryFormat::contiguous, channels_last}) {
        manual_seed(test_seed());
        const Tensor x = rand(shape, {.dtype = dtype, .device = test_device()})
                             .contiguous(shape.dim() == 4 ? format : contiguous_format);
        const Run fused = run(make_net, x, true, dtype, training);
        CHECK(fused.plan == (training ? expected_plan : expected_in_evaluation));
        const Run plain = run(make_net, x, false, dtype, training);
        check_same(fused, plain, dtype == float64 ? 1e-12 : 2e-5);
        CHECK(fused.outputs[0].strides() == plain.outputs[0].strides());
      }
    }
  }
}

}  // namespace

TEST_CASE("fusion: chains of 1x1 convolutions give what the layers give one by one") {
  CAPTURE(test_seed());
  check_both(maker(chain), {2, 3, 5, 4}, "0 to 6: 3 conv1x1_stats\n", "0 to 6: 3 conv1x1_stats\n");
}

TEST_CASE("fusion: BatchNorm and ReLU after any convolution, and BatchNorm alone in evaluation") {
  CAPTURE(test_seed());
  check_both(
      maker(blocks), {2, 3, 6, 5}, "1 to 2: batch_norm_relu\n4: alone: no ReLU follows\n",
      "1 to 2: batch_norm_relu\n3 to 4: conv2d with the scaled weights of a BatchNorm in evaluation\n");
}

TEST_CASE("fusion: Residual, with PyTorch's names") {
  CAPTURE(test_seed());
  check_both(maker(residual), {2, 3, 6, 6},
             "bn1 to relu: batch_norm_relu\nbn2: batch_norm_relu with the residual\n"
             "short.1: alone: it is the last layer: no ReLU follows\n",
             "bn1 to relu: batch_norm_relu\nbn2: batch_norm_relu with the residual\n"
             "short.0 to 1: conv2d with the scaled weights of a BatchNorm in evaluation\n");
  std::vector<std::string> names;
  for (const auto& [name, value] : residual().named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight",
                                          "bn2.weight", "bn2.bias", "short.0.weight", "short.1.weight",
                                          "short.1.bias"});
}

TEST_CASE("fusion: Linear and ReLU") {
  CAPTURE(test_seed());
  check_both(maker(perceptron), {3, 11, 5}, "0 to 1: linear_relu\n2 to 3: linear_relu\n",
             "0 to 1: linear_relu\n2 to 3: linear_relu\n");
  const auto texts = [](bool fused, const Tensor& x) {
    const Fusing fusing(fused);
    auto net = on_device(perceptron());
    return error_text([&] { net(x); });
  };
  for (const Tensor& x : {uniform({2, 4}), uniform({2, 5}, float64), zeros({2, 5}, {.dtype = int64})}) {
    CHECK(texts(true, x) != "");
    CHECK(texts(true, x) == texts(false, x));
  }
}

TEST_CASE("fusion: GELU and Linear") {
  CAPTURE(test_seed());
  const std::string plan = "0 to 1: gelu_linear\n4 to 5: gelu_linear\n";
  check_both(maker(gelus), {3, 11, 5}, plan, plan);
  for (const double special :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    CAPTURE(special);
    const Tensor x = make({0.5, -1, special, 2, 0, 1, 1, -3, 0.25, 1}, {2, 5});
    const Run fused = run(maker(gelus), x, true, float64, true),
              plain = run(maker(gelus), x, false, float64, true);
    for (size_t i = 0; i < plain.outputs.size(); ++i) CHECK(close(fused.outputs[i], plain.outputs[i], 1e-12));
  }
  nn::Sequential net = on_device(gelus());
  for (const Tensor& x : {uniform({2, 4}), uniform({2, 5}, float64), Tensor()}) {
    const auto text_of = [&](bool on) {
      const Fusing fusing(on);
      return error_text([&] { net(x); });
    };
    CHECK(text_of(true) != "");
    CHECK(text_of(true) == text_of(false));
  }
}

TEST_CASE("fusion: a Residual without shortcut adds its input, and its body has a name") {
  auto block = on_device(nn::Residual(nn::Sequential(nn::Conv2d(2, 2, 1), nn::BatchNorm2d(2))));
  const Tensor x = uniform({2, 2, 3, 3});
  const StateDict state = snapshot(block);
  CHECK(state.contains("body.0.weight"));
  const Tensor fused = block(x);
  block.load_state_dict(state);
  const Tensor y = block.body(x);
  CHECK(close(fused, relu(y + x), 1e-6));
}

TEST_CASE("fusion: conv_bn_relu, with a residual and without") {
  auto conv = on_device(nn::Conv2d(2, 3, 3, {.padding = 1}));
  auto bn = on_device(nn::BatchNorm2d(3));
  const Tensor x = uniform({2, 2, 4, 4}), residual = uniform({2, 3, 4, 4}) - 0.5;
  const StateDict before = snapshot(bn);
  const Tensor y = nn::conv_bn_relu(x, conv, bn), z = nn::conv_bn_relu(x, conv, bn, residual);
  CHECK(bn.num_batches_tracked.item<int64_t>() == 2);
  bn.load_state_dict(before);
  CHECK(close(y, relu(bn(conv(x))), 1e-6));
  CHECK(close(z, relu(bn(conv(x)) + residual), 1e-6));
  // Broadcasting is the plain layers' matter.
  CHECK(close(nn::conv_bn_relu(x, conv, bn, residual.narrow(0, 0, 1)),
              relu(bn(conv(x)) + residual.narrow(0, 0, 1)), 1e-6));
}

TEST_CASE("fusion: errors are those of the layers, and change nothing") {
  const auto in_sequence = on_device(chain());
  const auto text_of = [&](const Tensor& x, bool fused) {
    const Fusing fusing(fused);
    nn::Sequential net = in_sequence;
    const StateDict before = snapshot(net);
    const std::string text = error_text([&] { net(x); });
    check_unchanged(net, before);
    return text;
  };
  for (const Tensor& x : {uniform({2, 4, 3, 3}), uniform({3, 3}), uniform({1, 3, 1, 1}),
                          uniform({2, 3, 2, 2}, float64), zeros({2, 3, 2, 2}, {.dtype = int64})}) {
    CHECK(text_of(x, true) != "");
    CHECK(text_of(x, true) == text_of(x, false));
  }
  auto narrow = on_device(nn::Sequential(nn::Conv2d(2, 3, 1), nn::BatchNorm2d(4), nn::ReLU()));
  CHECK(error_text([&] {
          narrow(uniform({1, 2, 2, 2}));
        }).starts_with("batch_norm: input has 3 channels but the layer expects 4"));
  auto block = on_device(nn::Residual(nn::Sequential(nn::Conv2d(2, 2, 1), nn::BatchNorm2d(2))));
  for (const bool fused : {true, false}) {
    const Fusing fusing(fused);
    CHECK(error_text([&] { block(uniform({1, 2, 1, 1})); }).find("in body.1;") != std::string::npos);
  }
}

TEST_CASE("fusion: a layer with a hook stays alone and its hook runs") {
  auto net = on_device(chain());
  nn::Module& middle = *net.children()[4].second;
  int calls = 0;
  const HookHandle handle = middle.register_forward_hook([&](const Tensor&, const Tensor& y) {
    ++calls;
    CHECK(y.size(1) == 7);
    return Tensor();
  });
  CHECK(plan_of(net) == "0 to 3: 2 conv1x1_stats\n4: alone: it has hooks\n");
  net(uniform({2, 3, 2, 2}));
  CHECK(calls == 1);
  handle.remove();
  CHECK(plan_of(net) == "0 to 6: 3 conv1x1_stats\n");
  const Fusing off(false);
  CHECK(plan_of(net) == "1: alone: fusing is off\n4: alone: fusing is off\n");
}

TEST_CASE("fusion: a derived layer is not taken for the one that it is derived from") {
  struct Doubling : nn::BatchNorm2d {
    using BatchNorm2d::BatchNorm2d;
    Tensor forward(const Tensor& x) override { return BatchNorm2d::forward(x) * 2; }
  };
  auto net = on_device(nn::Sequential(nn::Conv2d(2, 3, 1), Doubling(3), nn::ReLU(), nn::Conv2d(3, 1, 1)));
  CHECK(plan_of(net).starts_with("1: alone"));
}

TEST_CASE("fusion: NaN and infinity pass as through the layers one by one") {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (const double special : {nan, infinity, -infinity}) {
    CAPTURE(special);
    for (const bool training : {true, false}) {
      Values data(2 * 3 * 2 * 2, 0.5);
      for (size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<double>(i));
      data[5] = special;
      const Tensor x = make(data, {2, 3, 2, 2});
      for (const auto& net : {maker(chain), maker(blocks)}) {
        const Run fused = run(net, x, true, float64, training), plain = run(net, x, false, float64, training);
        // Without the buffers: the mean of a channel with infinity is infinity or, by merged parts, NaN.
        for (size_t i = 0; i < 2 + net()->parameters().size(); ++i) {
          CAPTURE(i);
          CHECK(close(fused.outputs[i], plain.outputs[i], 1e-10));  // NaN in the same places
        }
      }
    }
  }
}

TEST_CASE("fusion: second derivatives") {
  const auto penalty_gradients = [](bool fused, nn::Sequential (*make_net)()) {
    const Fusing fusing(fused);
    manual_seed(test_seed());
    nn::Sequential net = on_device(make_net(), float64);
    const Tensor x = rand({2, 3, 3, 4}, {.dtype = float64, .device = test_device()}).requires_grad_();
    const Tensor gradient = grad({net(x).square().sum()}, {x}, {}, {.create_graph = true})[0];
    gradient.square().sum().backward();
    Tensors all;
    for (const auto& [name, parameter] : net.named_parameters()) all.push_back(parameter.grad());
    return all;
  };
  for (const auto make_net : {chain, blocks}) {
    const Tensors fused = penalty_gradients(true, make_net), plain = penalty_gradients(false, make_net);
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      REQUIRE(fused[i].defined() == plain[i].defined());
      if (plain[i].defined()) CHECK((fused[i] - plain[i]).abs().max().item<double>() < 1e-9);
    }
  }
}

TEST_CASE("fusion: the same bits for any number of threads") {
  const int before = num_threads();
  manual_seed(test_seed());
  const Tensor x = randn({2, 3, 40, 40}, {.device = test_device()});
  const auto with_threads = [&](int threads) {
    set_num_threads(threads);
    return run(maker(chain), x, true, float32, true).outputs;
  };
  const Tensors one = with_threads(1), three = with_threads(3);
  set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) CHECK(close(one[i], three[i], 0));
}

TEST_CASE("fusion: under autocast, products in 16 bits and statistics in float32") {
  for (const DType low : {bfloat16, float16}) {
    CAPTURE(name_of(low));
    const auto gradients = [&](bool fused) {
      const Fusing fusing(fused);
      manual_seed(test_seed());
      nn::Sequential net = on_device(nn::Sequential(nn::Conv2d(3, 40, 1), nn::BatchNorm2d(40), nn::ReLU(),
                                                    nn::Conv2d(40, 48, 1), nn::BatchNorm2d(48), nn::ReLU(),
                                                    nn::Conv2d(48, 33, 1)));
      // Channels that pass a relu whole and channels that do not: an element that rounding takes over its
      // edge would change the gradients by all that it has.
      for (const auto& [name, parameter] : net.named_parameters()) {
        const NoGradGuard guard;
        if (name == "1.bias" || name == "4.bias")
          Tensor(parameter).copy_(arange(parameter.numel()).remainder(2) * 8 - 4);
      }
      const Tensor x = uniform({2, 3, 19, 17});
      Tensors all;
      {
        const amp::Autocast autocast(test_device(), low);
        all.push_back(net(x));
      }
      CHECK(all[0].dtype() == low);
      all[0].to(float32).square().mean().backward();
      for (const Tensor& parameter : net.parameters()) all.push_back(parameter.grad());
      return all;
    };
    const Tensors fused = gradients(true), plain = gradients(false);
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      if (i == 2 || i == 4 || i == 6) continue;  // a BatchNorm takes such biases back: rounding alone
      CHECK(fused[i].dtype() == plain[i].dtype());
      const double largest = plain[i].to(float32).abs().max().item<double>();
      const double difference = (fused[i].to(float32) - plain[i].to(float32)).abs().max().item<double>();
      CHECK(difference <= (low == bfloat16 ? 0.04 : 0.004) * largest);
    }
  }
}

TEST_CASE("fusion: autocast casts the product's operands, not the normalisation's") {
  const amp::Autocast autocast(test_device(), bfloat16);
  const Tensor x = uniform({1, 2, 3, 3}), weight = uniform({4, 2, 1, 1}), channel = uniform({2});
  const auto [y, mean, var] = conv1x1_stats(x, weight, {}, channel, channel + 1);
  CHECK(y.dtype() == bfloat16);
  CHECK(mean.dtype() == float32);
  CHECK(var.dtype() == float32);
  const amp::Autocast off(test_device(), bfloat16, false);
  const Tensor expected = conv1x1_stats(x.to(bfloat16), weight.to(bfloat16), {}, channel, channel + 1)[0];
  CHECK(close(y, expected, 0));  // with the statistics in float32
}

TEST_CASE("fusion: what is kept for backward is the convolutions' results") {
  const auto kept = [](bool fused) {
    const Fusing fusing(fused);
    manual_seed(test_seed());
    nn::Sequential net = on_device(nn::Sequential(nn::Conv2d(16, 16, 1), nn::BatchNorm2d(16), nn::ReLU(),
                                                  nn::Conv2d(16, 16, 1), nn::BatchNorm2d(16), nn::ReLU(),
                                                  nn::Conv2d(16, 16, 1)));
    const Tensor x = uniform({1, 16, 64, 64}).contiguous(channels_last);
    const size_t before = memory_stats(test_device()).live;
    const Tensor y = net(x);
    return static_cast<double>(memory_stats(test_device()).live - before);
  };
  const double activation = 16 * 64 * 64 * 4;
  CHECK(kept(true) < 3.1 * activation);   // three convolutions
  CHECK(kept(false) > 4.9 * activation);  // and two after ReLU
}
