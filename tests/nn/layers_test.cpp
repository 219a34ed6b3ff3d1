// Rules of layers that PyTorch's recorded numbers do not cover: bad input, layouts, shapes. BatchNorm has a
// file of its own.
#include "tests/nn/layers.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("Conv2d: input that does not fit is refused, and nothing has changed") {
  auto layer = on_device(nn::Conv2d(4, 2, 3, {.groups = 2}));
  const StateDict before = snapshot(layer);
  const auto refusal = [&](const Tensor& x) {
    const std::string said = error_text([&] { layer(x); });
    const std::string operands =
        text("; input ", describe(x), ", weight ", describe(layer.weight), ", bias ", describe(layer.bias));
    CHECK(said.find(operands) != std::string::npos);
    return said.substr(0, said.find(';'));
  };
  CHECK(refusal(uniform({1, 6, 5, 5})) == "conv2d: input has 6 channels but weight expects 4");
  CHECK(refusal(uniform({1, 5, 5, 5})) == "conv2d: groups = 2 does not divide 5 input and 2 output channels");
  CHECK(refusal(uniform({1, 4, 2, 5})) == "conv2d: the kernel spans 3 but the padded input 2");
  CHECK(refusal(uniform({4, 5, 5})) == "conv2d: input must be [N, C, H, W] but has 3 dimensions");
  CHECK(refusal(uniform({1, 4, 5, 5}, float64)) == "conv2d: weight is float32 but input is float64");
  CHECK(refusal(uniform({1, 4, 5, 5}, float16)) == "conv2d: weight is float32 but input is float16");
  check_unchanged(layer, before);

  auto dilated = on_device(nn::Conv2d(1, 1, 3, {.padding = 1, .dilation = 4}));
  CHECK(error_text([&] {
          dilated(uniform({1, 1, 6, 7}));
        }).starts_with("conv2d: the kernel spans 9 but the padded input 8; "));
  CHECK(dilated(uniform({1, 1, 7, 7})).shape() == Shape{1, 1, 1, 1});
}

TEST_CASE("Conv2d: padding as a word") {
  const Tensor x = uniform({1, 1, 4, 3});
  CHECK(on_device(nn::Conv2d(1, 1, {4, 3}, {.padding = "same", .dilation = 2}))(x).shape() == x.shape());
  CHECK(on_device(nn::Conv2d(1, 1, {4, 3}, {.padding = "valid"}))(x).shape() == Shape{1, 1, 1, 1});
  // PyTorch 2.15's print and its rules.
  CHECK(nn::Conv2d(1, 1, 3, {.padding = "same"}).to_string() ==
        "Conv2d(1, 1, kernel_size=(3, 3), stride=(1, 1), padding=same)");
  CHECK(nn::Conv2d(1, 1, {4, 3}, {.padding = std::string("valid"), .dilation = 2}).to_string() ==
        "Conv2d(1, 1, kernel_size=(4, 3), stride=(1, 1), padding=valid, dilation=(2, 2))");
  CHECK(error_text([] { nn::Conv2d(1, 1, 3, {.padding = "full"}); }) ==
        "Conv2d: padding \"full\" is neither \"same\" nor \"valid\"");
  CHECK(error_text([] { nn::Conv2d(1, 1, 3, {.padding = ""}); }).starts_with("Conv2d: padding \"\" is"));
  CHECK(error_text([] {
          nn::Conv2d(1, 1, 3, {.stride = {1, 2}, .padding = "same"});
        }) == "Conv2d: padding \"same\" needs a stride of 1");
  CHECK(nn::Conv2d(1, 1, 3, {.stride = 2, .padding = "valid"}).weight.dim() == 4);
}

TEST_CASE("Conv2d: constructor arguments") {
  CHECK(error_text([] { nn::Conv2d(4, 6, 3, {.groups = 3}); }) ==
        "Conv2d: groups = 3 does not divide 4 input and 6 output channels");
  CHECK(error_text([] { nn::Conv2d(4, 6, 3, {.groups = 0}); }).starts_with("Conv2d: groups = 0"));
  CHECK(error_text([] { nn::Conv2d(0, 6, 3); }) == "Conv2d: needs at least 1 channel, not 0 in and 6 out");
  const std::string sizes = "Conv2d: kernel size, stride and dilation must be at least 1, padding at least 0";
  CHECK(error_text([] { nn::Conv2d(1, 1, 0); }) == sizes);
  CHECK(error_text([] { nn::Conv2d(1, 1, 1, {.stride = {1, 0}}); }) == sizes);
  CHECK(error_text([] { nn::Conv2d(1, 1, 1, {.padding = -1}); }) == sizes);
  CHECK(error_text([] { nn::Conv2d(1, 1, 1, {.dilation = {0, 1}}); }) == sizes);
}

TEST_CASE("conv2d: an identity of 1x1 returns its input, in both layouts") {
  const Tensor weight = make({1, 0, 0, 1}, {2, 2, 1, 1}, float32);
  const Tensor x = make({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2}, float32);
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    const Tensor y = conv2d(x.to(format), weight.to(format));
    CHECK(y.to_vector<double>() == Values{1, 2, 3, 4, 5, 6, 7, 8});
  }
}

TEST_CASE("layers: channels-last in, channels-last out, in both directions") {
  nn::Sequential net(nn::Conv2d(2, 4, 3, {.stride = 2, .padding = 1}), nn::BatchNorm2d(4), nn::ReLU(),
                     nn::Conv2d(4, 3, 1));
  net.to(test_device());
  const Tensor x = uniform({2, 2, 7, 6});
  Tensor expected, expected_grad;
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    net.to(format);
    net.zero_grad();
    const Tensor in = x.clone().to(format).requires_grad_();
    Tensor y = in;
    for (const auto& child : net.children()) {
      CAPTURE(child.first);
      y = (*child.second)(y);
      CHECK(y.is_contiguous(format));
    }
    y.square().sum().backward();
    CHECK(in.grad().is_contiguous(format));
    if (!expected.defined()) {
      expected = y.detach();
      expected_grad = in.grad();
    }
    CHECK(close(y.detach(), expected, 1e-5));
    CHECK(close(in.grad(), expected_grad, 1e-5));
  }
}

TEST_CASE("Linear: its gradients beside a residual branch, by differences") {
  const Tensor h = leaf({.5, -1, 2, .25}, {2, 2}), w = leaf({1, -2, 3, .5}, {2, 2}), b = leaf({.1, .2});
  const auto f = [](Inputs in) { return Tensors{in[0] + linear(in[0], in[1], in[2])}; };
  CHECK(gradcheck(f, std::array{h, w, b}) == "");
  CHECK(gradgradcheck(f, std::array{h, w, b}) == "");
}

TEST_CASE("Linear: rows of any number of dimensions") {
  auto layer = on_device(nn::Linear(3, 2), float64);
  layer.load_state_dict([&] {
    StateDict state;
    state.insert("weight", make({1, 2, 3, 4, 5, 6}, {2, 3}));
    state.insert("bias", make({10, 20}));
    return state;
  }());
  CHECK(values(layer(make({1, 0, -1}))) == Values{8, 18});
  const Tensor x = leaf({1, 0, -1, 0, 1, 0}, {2, 1, 3});
  const Tensor y = layer(x);
  CHECK(y.shape() == Shape{2, 1, 2});
  CHECK(values(y) == Values{8, 18, 12, 25});
  y.backward(make({1, 0, 0, 2}, {2, 1, 2}));
  CHECK(values(x.grad()) == Values{1, 2, 3, 8, 10, 12});
  CHECK(values(layer.weight.grad()) == Values{1, 0, -1, 0, 2, 0});
  CHECK(values(layer.bias.grad()) == Values{1, 2});

  CHECK(nn::Linear(3, 2, {.bias = false}).parameters().size() == 1);
  CHECK(error_text([&] { layer(make({1, 2})); }).starts_with("linear: "));
  CHECK_FALSE(error_text([&] { layer(uniform({2, 3})); }).empty());
  CHECK(error_text([] { nn::Linear(0, 2); }) == "Linear: needs at least 1 feature, not 0 in and 2 out");
}

TEST_CASE("MSELoss: reductions, broadcasting, 16-bit values") {
  const Tensor a = ones({3, 1}, {.device = test_device()}), b = zeros({3}, {.device = test_device()});
  CHECK(nn::MSELoss()(a, b).item<float>() == 1);  // over nine pairs
  CHECK(nn::MSELoss(LossReduction::sum)(a, b).item<float>() == 9);
  CHECK(nn::MSELoss(LossReduction::none)(a, b).shape() == Shape{3, 3});
  CHECK(error_text([&] {
          nn::MSELoss()(a, uniform({2, 2}));
        }).starts_with("mse_loss: input and target do not broadcast; input "));
  CHECK(std::isnan(nn::MSELoss()(uniform({0}), uniform({0})).item<float>()));

  // One difference of 400 has a square beyond float16, but the mean over 8 fits, and so does its gradient.
  const Tensor x = make({400, 0, 0, 0, 0, 0, 0, 0}, float16).requires_grad_();
  const Tensor loss = nn::MSELoss()(x, zeros({8}, {.dtype = float16, .device = test_device()}));
  CHECK(loss.dtype() == float16);
  CHECK(loss.item<float>() == 20000);
  loss.backward();
  CHECK(values(x.grad())[0] == 100);
}

TEST_CASE("activations: each module is its function") {
  const Tensor x = make({-2, -0.5, 0, 0.5, 25});
  CHECK(values(nn::ReLU()(x)) == values(relu(x)));
  CHECK(values(nn::Sigmoid()(x)) == values(sigmoid(x)));
  CHECK(values(nn::Tanh()(x)) == values(tanh(x)));
  CHECK(values(nn::GELU()(x)) == values(gelu(x)));
  CHECK(values(nn::GELU("tanh")(x)) == values(gelu_tanh(x)));
  CHECK(values(nn::SiLU()(x)) == values(silu(x)));
  CHECK(values(nn::Softplus()(x)) == values(softplus(x)));
  CHECK(nn::GELU("tanh").extra() == "approximate='tanh'");
  CHECK_THROWS_AS(nn::GELU("sigmoid")(x), Error);
}

TEST_CASE("Conv2d: weight gradients of strided 1x1 convolutions do not depend on what memory held before") {
  for (const int64_t in : {1, 3, 5}) {
    for (const int64_t out : {1, 3, 12}) {
      CAPTURE(in);
      CAPTURE(out);
      const auto gradient = [&, weight = uniform({out, in, 1, 1}), x = uniform({2, in, 6, 6})](DType dtype) {
        const Tensor w = weight.to(dtype).detach().requires_grad_();
        const Tensor y = conv2d(x.to(dtype), w, {}, {.stride = {2, 2}});
        const Tensor slope = cos(y.detach());
        // What the kernel works in is memory that held these.
        for (int64_t n = 64; n < 65536; n *= 2) full({n}, 1000, {.device = test_device()});
        y.backward(slope);
        return w.grad();
      };
      CHECK(close(gradient(float32).to(float64), gradient(float64), 1e-5));
    }
  }
}
