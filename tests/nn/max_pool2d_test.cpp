// Rules of max_pool2d and MaxPool2d that PyTorch's recorded numbers do not cover.
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("max_pool2d: padding never wins, and channels stay apart") {
  const Tensor x = make({-1, -2, -3, -4, -50, -60, -70, -80}, {1, 2, 2, 2}, float32);
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    const Tensor y = max_pool2d(x.to(format), 2, {.padding = 1});
    CHECK(values(y) == Values{-1, -2, -3, -4, -50, -60, -70, -80});
    CHECK(y.is_contiguous(format));
  }
}

TEST_CASE("max_pool2d: the first of equals gets the gradient") {
  const Tensor x = leaf({1, 1, 1, 1, 0, 2, 2, 0}, {1, 2, 2, 2});
  max_pool2d(x, 2).backward(make({5, 7}, {1, 2, 1, 1}));
  CHECK(values(x.grad()) == Values{5, 0, 0, 0, 0, 7, 0, 0});
}

TEST_CASE("max_pool2d: 16-bit gradients of overlapping windows are added in float32") {
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    const Tensor x = make({0, 9, 0}, {1, 1, 1, 3}, float16).to(format).requires_grad_();
    const Tensor y = max_pool2d(x, {1, 3}, {.stride = 1, .padding = {0, 1}});
    y.backward(make({2048, 1, 1}, {1, 1, 1, 3}, float16));
    CHECK(values(x.grad()) == Values{0, 2050, 0});  // 2048 if each sum were rounded
  }
}

TEST_CASE("max_pool2d: what is kept for backward is a byte a window") {
  const Tensor x = uniform({2, 4, 64, 64}).requires_grad_();
  const size_t before = memory_stats(test_device()).live;
  const Tensor y = max_pool2d(x, 2);
  CHECK(memory_stats(test_device()).live - before <=
        static_cast<size_t>(y.numel()) * (sizeof(float) + 1) + 1024);  // sizes are rounded up
}

TEST_CASE("max_pool2d: what is refused") {
  const Tensor x = uniform({1, 2, 6, 5});
  const auto refusal = [&](const Tensor& input, Size2 kernel, const MaxPool2dOptions& options = {}) {
    const std::string said = error_text([&] { max_pool2d(input, kernel, options); });
    const std::string operands = text("; input ", describe(input));
    CHECK(said.ends_with(operands));
    return said.substr(0, said.find(';'));
  };
  const std::string sizes = "max_pool2d: kernel, stride and dilation must be at least 1, padding at least 0";
  CHECK(refusal(x, 0) == sizes);
  CHECK(refusal(x, 2, {.stride = 0}) == sizes);
  CHECK(refusal(x, 2, {.dilation = {1, 0}}) == sizes);
  CHECK(refusal(x, 2, {.padding = -1}) == sizes);
  CHECK(refusal(x, {2, 3}, {.padding = {1, 2}}) ==
        "max_pool2d: padding 2 is more than half of the kernel's 3");
  CHECK(refusal(x, {1, 6}) == "max_pool2d: the kernel spans 6 but the padded input 5");
  CHECK(refusal(x, 3, {.padding = 1, .dilation = 4}) ==
        "max_pool2d: the kernel spans 9 but the padded input 8");
  CHECK(refusal(x[0], 2) == "max_pool2d: input must be [N, C, H, W] but has 3 dimensions");
  CHECK(refusal(x.to(int64), 2) == "max_pool2d: needs a floating dtype");
  CHECK(refusal(x.narrow(1, 0, 0), 2) == "max_pool2d: input has no channels");
  // Cells at rows -1 and 2 of two rows.
  CHECK(refusal(x.narrow(2, 0, 2), {2, 1}, {.stride = 1, .padding = {1, 0}, .dilation = {3, 1}}) ==
        "max_pool2d: window 0 has no element of the input, as its cells are 3 apart");
  CHECK(max_pool2d(x.narrow(0, 0, 0), 2).shape() == Shape{0, 2, 3, 2});
}

TEST_CASE(
    "max_pool2d_grad: operands that do not fit are refused, cells that no window has count for nothing") {
  const PoolGeometry plain{.kernel = {2, 2}, .stride = {2, 2}};
  const Tensor g = make({1, 2}, {1, 1, 1, 2}), cells = make({3, 200}, {1, 1, 1, 2}, uint8);
  CHECK(values(max_pool2d_grad(g, cells, {1, 1, 2, 4}, plain)) == Values{0, 0, 0, 0, 0, 1, 0, 0});
  CHECK(error_text([&] {
          max_pool2d_grad(g, cells, {1, 2, 2, 4}, plain);
        })
            .starts_with("max_pool2d_grad: gradient and cells must have the shape of an output for input [1, "
                         "2, 2, 4]; "));
  CHECK(error_text([&] {
          max_pool2d_grad(g, cells.to(float32), {1, 1, 2, 4}, plain);
        }).starts_with("max_pool2d_grad: cells must have an integer dtype; "));
  CHECK(error_text([&] {
          max_pool2d_grad(g, cells, {1, 1, 2, 4}, {.stride = {0, 1}});
        }).starts_with("max_pool2d_grad: kernel, stride and dilation must be at least 1"));
}

TEST_CASE("MaxPool2d: is its function, and prints as PyTorch prints") {
  const Tensor x = uniform({2, 3, 9, 8});
  CHECK(values(nn::MaxPool2d(2)(x)) == values(max_pool2d(x, 2)));
  nn::MaxPool2d layer({2, 3}, {.stride = 1, .padding = 1, .dilation = 2, .ceil_mode = true});
  CHECK(layer(x).shape() == Shape{2, 3, 9, 6});
  CHECK(layer.parameters().empty());
  // PyTorch 2.15's print.
  CHECK(nn::MaxPool2d(2).to_string() ==
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  CHECK(layer.to_string() ==
        "MaxPool2d(kernel_size=(2, 3), stride=1, padding=1, dilation=2, ceil_mode=True)");
  CHECK(nn::MaxPool2d({2, 3}).to_string() ==
        "MaxPool2d(kernel_size=(2, 3), stride=(2, 3), padding=0, dilation=1, ceil_mode=False)");
  CHECK(nn::MaxPool2d(3, {.stride = Size2(1, 2)}).to_string() ==
        "MaxPool2d(kernel_size=3, stride=(1, 2), padding=0, dilation=1, ceil_mode=False)");
}
