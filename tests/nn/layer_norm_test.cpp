// Rules of layer_norm and LayerNorm that PyTorch's recorded numbers do not cover.
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("layer_norm: what is refused") {
  const Tensor x = uniform({2, 3, 4});
  const auto refusal = [&](const Tensor& input, const Shape& normalized, const Tensor& weight = {},
                           const Tensor& bias = {}) {
    const std::string said = error_text([&] { layer_norm(input, normalized, weight, bias); });
    return said.substr(0, said.find(';'));
  };
  const std::string misfit = "layer_norm: the input's last dimensions are not the normalized_shape ";
  CHECK(refusal(x, {3}) == misfit + "[3]");
  CHECK(refusal(x, {4, 3}) == misfit + "[4, 3]");
  CHECK(refusal(x, {1, 2, 3, 4}) == misfit + "[1, 2, 3, 4]");
  CHECK(refusal(x, {}) == "layer_norm: normalized_shape needs at least 1 dimension");
  CHECK(refusal(x, {4}, uniform({3})) == "layer_norm: weight must have the normalized_shape [4]");
  CHECK(refusal(x, {3, 4}, {}, uniform({4})) == "layer_norm: bias must have the normalized_shape [3, 4]");
  CHECK(refusal(x, {4}, make({1, 1, 1, 1}, int64)) == "layer_norm: needs a floating dtype");
  CHECK(refusal(x.to(int64), {4}) == "layer_norm: needs a floating dtype");
  const Tensor mean = uniform({2, 3, 1});
  CHECK(error_text([&] {
          layer_norm_grad(x, x, {}, mean, uniform({2, 3}), {4});
        }).starts_with("layer_norm_grad: mean and rstd must have shape [2, 3, 1]; "));
  CHECK(error_text([&] {
          layer_norm_grad(mean, x, {}, mean, mean, {4});
        }).starts_with("layer_norm_grad: the gradient must be floating and have the input's shape; "));
}

TEST_CASE("layer_norm: parameters of another floating dtype compute in float32, and keep the input's dtype") {
  const Tensor row = make({1, 2, 3, 6}, {1, 4}), weight = make({1, 2, 1, 1}), bias = make({0, 0, 0, 1});
  const Tensor expected = layer_norm(row, {4}, weight, bias);
  for (const auto& [input, parameters] :
       {std::pair{bfloat16, float32}, {float32, bfloat16}, {float16, float32}}) {
    const Tensor x = row.to(input).requires_grad_(), w = weight.to(parameters).requires_grad_();
    const Tensor y = layer_norm(x, {4}, w, bias.to(parameters));
    CHECK(y.dtype() == input);
    CHECK(close(y.detach().to(float64), expected, input == float32 ? 1e-6 : 4e-3));
    y.sum().backward();
    CHECK(x.grad().dtype() == input);
    CHECK(w.grad().dtype() == parameters);
  }
}

TEST_CASE("layer_norm: a large mean does no harm") {
  const Tensor x = make({0, 1, 2, 3, 4, 5, 6, 7}, {1, 8}, float32);
  CHECK(close(layer_norm(x + 1048576, {8}), layer_norm(x, {8}), 1e-6));
}

TEST_CASE("LayerNorm: by PyTorch's names and print") {
  auto layer = on_device(nn::LayerNorm({3, 4}, {.eps = 0.25}));
  const Tensor x = uniform({2, 3, 4});
  CHECK(close(layer(x).detach(), layer_norm(x, {3, 4}, {}, {}, 0.25), 1e-6));
  const StateDict state = layer.state_dict();
  CHECK(state.size() == 2);
  CHECK(values(state.at("weight")) == Values(12, 1));
  CHECK(values(state.at("bias")) == Values(12, 0));
  CHECK(nn::LayerNorm(4, {.bias = false}).parameters().size() == 1);
  CHECK(nn::LayerNorm(4, {.elementwise_affine = false}).parameters().empty());
  // PyTorch 2.15's print.
  CHECK(nn::LayerNorm(5).to_string() == "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=True)");
  CHECK(nn::LayerNorm({2, 3}, {.eps = 1e-6, .elementwise_affine = false}).to_string() ==
        "LayerNorm((2, 3), eps=1e-06, elementwise_affine=False, bias=False)");
  CHECK(nn::LayerNorm(5, {.bias = false}).to_string() ==
        "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=False)");
  CHECK(error_text([] { nn::LayerNorm(Shape{}); }) ==
        "LayerNorm: normalized_shape needs at least 1 dimension");
  CHECK(error_text([] {
          nn::LayerNorm({2, 0});
        }) == "LayerNorm: normalized_shape has sizes of at least 1, not [2, 0]");
  CHECK(error_text([] { nn::LayerNorm(2, {.eps = -1}); }) == "LayerNorm: eps = -1 is negative");
}
