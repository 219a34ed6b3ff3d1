// Rules of embedding and Embedding that PyTorch's recorded numbers do not cover.
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("embedding: an id out of range is refused, with its place") {
  const Tensor weight = make({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor high = make({0, 2, 1, 3, 7, 0}, {2, 3}, int64), low = make({0, -1}, int32);
  CHECK(error_text([&] { embedding(weight, high); }) ==
        text("embedding: id 3 at [1, 0] is outside [0, 3); weight ", describe(weight), ", ids ",
             describe(high)));
  CHECK(
      error_text([&] { embedding(weight, low); }).starts_with("embedding: id -1 at [1] is outside [0, 3); "));
  CHECK(error_text([&] {
          embedding(weight, scalar(3, int64));
        }).starts_with("embedding: id 3 is outside [0, 3); "));
  CHECK(error_text([&] {
          embedding(weight.narrow(0, 0, 0), make({0}, int64));
        }).starts_with("embedding: id 0 at [0] is outside [0, 0); "));
}

TEST_CASE("embedding: operands that do not fit are refused") {
  const Tensor weight = make({1, 2, 3, 4, 5, 6}, {3, 2}), ids = make({0, 1}, int64);
  CHECK(error_text([&] { embedding(weight[0], ids); }).starts_with("embedding: weight must be [V, D]; "));
  CHECK(error_text([&] {
          embedding(weight, make({0, 1}));
        }).starts_with("embedding: ids must have an integer dtype; "));
  CHECK(error_text([&] {
          embedding(weight, ids, 3);
        }).starts_with("embedding: padding_idx 3 is outside [-3, 3); "));
  CHECK(error_text([&] {
          embedding(weight, ids, -4);
        }).starts_with("embedding: padding_idx -4 is outside [-3, 3); "));
}

TEST_CASE("embedding: gradients of an id that occurs often are added in float32, padding's are none") {
  Tensor weight = make({1, 2}, {2, 1}, float16).requires_grad_();
  const Tensor ids = make(Values(4096, 1), int64);
  embedding(weight, ids).sum().backward();
  CHECK(values(weight.grad()) == Values{0, 4096});  // 2048 if each sum were rounded
  weight.set_grad({});
  embedding(weight, make({0, 1, 1}, int64), 1).sum().backward();
  CHECK(values(weight.grad()) == Values{1, 0});
}

TEST_CASE("Embedding: looks up its rows, by PyTorch's names and print") {
  auto layer = on_device(nn::Embedding(5, 3));
  CHECK(layer.state_dict().size() == 1);
  CHECK(layer.weight.shape() == Shape{5, 3});
  const Tensor y = layer(make({4, 0, 4, 2}, {2, 2}, int64));
  CHECK(y.shape() == Shape{2, 2, 3});
  CHECK(values(y.select(0, 0).select(0, 0)) == values(layer.state_dict().at("weight").select(0, 4)));
  // PyTorch 2.15's print.
  CHECK(layer.to_string() == "Embedding(5, 3)");
  CHECK(nn::Embedding(3, 4, {.padding_idx = -1}).to_string() == "Embedding(3, 4, padding_idx=2)");
  CHECK(error_text([] { nn::Embedding(0, 4); }) ==
        "Embedding: needs at least 1 row of 1 element, not 0 of 4");
  CHECK(error_text([] { nn::Embedding(3, 4, {.padding_idx = 3}); }) ==
        "Embedding: padding_idx 3 is outside [-3, 3)");
}

TEST_CASE("Embedding: starts normal, but for a row of zeros that padding keeps") {
  manual_seed(test_seed());
  auto layer = nn::Embedding(400, 50, {.padding_idx = -2});
  CHECK(values(layer.weight.select(0, 398)) == Values(50, 0));
  const Tensor rest = layer.weight.detach().narrow(0, 0, 398);  // 19,900 numbers
  CHECK(std::abs(rest.mean().item<double>()) < 0.03);           // 4 standard errors
  CHECK(std::abs(rest.var().item<double>() - 1) < 0.04);
  layer(tensor({398, 3}, {.dtype = int64})).sum().backward();
  CHECK(layer.weight.grad().select(0, 398).abs().sum().item<double>() == 0);
  CHECK(layer.weight.grad().sum().item<double>() == 50);
}
