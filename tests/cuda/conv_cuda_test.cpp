// CUDA's convolutions beside the reference ones, by cuDNN and by their definition.
#include "cuda/conv.h"
#include "tensor/error.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

/// How images lie in memory; the last begins off any alignment.
constexpr Layout kImages[] = {Layout::row_major, Layout::channels_last, Layout::expanded, Layout::spread,
                              Layout::shifted};

struct ConvArrays {
  Array input, weight, bias, grad_out, out, grad_input, grad_weight;

  ConvArrays(const ConvCase& c, DType dtype, Layout layout, Layout result, Layout weights)
      : input(array_of(dtype, c.input, layout)),
        weight(array_of(dtype, c.weight, weights)),
        bias(array_of(dtype, {c.weight[0]}, Layout::spread)),
        grad_out(array_of(dtype, c.out(), layout)),
        out(array_of(dtype, c.out(), result)),
        grad_input(array_of(dtype, c.input, result)),
        grad_weight(array_of(dtype, c.weight, weights)) {}

  void fill(unsigned seed) {
    Numbers numbers(seed);
    for (Array* array : {&input, &weight, &bias, &grad_out})
      array->fill([&](int64_t) { return numbers.real(-1, 1); });
  }
  /// The reference's results, on the host's side.
  void expect(const ConvGeometry& geometry, bool with_bias) const {
    const Kernels& table = reference_table();
    table.conv2d(out.host(), input.host(), weight.host(), with_bias ? bias.host() : View(), geometry);
    table.conv2d_input_grad(grad_input.host(), grad_out.host(), weight.host(), geometry);
    table.conv2d_weight_grad(grad_weight.host(), grad_out.host(), input.host(), geometry);
  }
  void check(double tolerance) const {
    CHECK(out.agrees(tolerance));
    CHECK(grad_input.agrees(tolerance));
    CHECK(grad_weight.agrees(tolerance));
  }
};

}  // namespace

TEST_CASE("conv2d on CUDA and its gradients: every dtype and layout") {
  unsigned seed = 0;
  for (const DType dtype : kFloating)
    for (const ConvCase& c : small_conv_cases())
      for (const Layout layout : kImages) {
        const Layout result = seed % 2 ? Layout::channels_last : kImages[seed / 2 % 2 * 3];
        const Layout weights = kImages[seed % 5 == 2 ? 0 : seed % 5];
        const bool with_bias = seed % 3 != 0;
        INFO(name_of(dtype), ", ", c.what, ", layouts ", int(layout), int(result), int(weights), ", bias ",
             with_bias);
        ConvArrays arrays(c, dtype, layout, result, weights);
        arrays.fill(seed++);
        const Kernels& table = device_table();
        const View bias = with_bias ? arrays.bias.to_device() : View();
        table.conv2d(arrays.out.to_device(), arrays.input.to_device(), arrays.weight.to_device(), bias,
                     c.geometry);
        table.conv2d_input_grad(arrays.grad_input.to_device(), arrays.grad_out.to_device(),
                                arrays.weight.to_device(), c.geometry);
        table.conv2d_weight_grad(arrays.grad_weight.to_device(), arrays.grad_out.to_device(),
                                 arrays.input.to_device(), c.geometry);
        arrays.expect(c.geometry, with_bias);
        arrays.check(4 * precision_of(dtype));
      }
}

TEST_CASE("conv2d on CUDA by its definition, for what cuDNN does not have") {
  unsigned seed = 0;
  for (const DType dtype : kFloating)
    for (const ConvCase& c : small_conv_cases()) {
      const Layout layout = kImages[seed % 5], result = kImages[seed % 2];
      const bool with_bias = seed % 3 != 0;
      INFO(name_of(dtype), ", ", c.what, ", layouts ", int(layout), int(result), ", bias ", with_bias);
      ConvArrays arrays(c, dtype, layout, result, result);
      arrays.fill(seed++);
      const View bias = with_bias ? arrays.bias.to_device() : View();
      conv_direct({ConvPass::forward, arrays.out.to_device(), arrays.input.to_device(),
                   arrays.weight.to_device(), bias, c.geometry});
      conv_direct({ConvPass::input_grad,
                   arrays.grad_out.to_device(),
                   arrays.grad_input.to_device(),
                   arrays.weight.to_device(),
                   {},
                   c.geometry});
      conv_direct({ConvPass::weight_grad,
                   arrays.grad_out.to_device(),
                   arrays.input.to_device(),
                   arrays.grad_weight.to_device(),
                   {},
                   c.geometry});
      arrays.expect(c.geometry, with_bias);
      arrays.check(4 * precision_of(dtype));
    }
}

TEST_CASE("conv2d on CUDA: empty operands") {
  const ConvCase cases[] = {{"no images", {0, 3, 5, 5}, {4, 3, 3, 3}, {}},
                            {"no channels out", {2, 3, 5, 5}, {0, 3, 3, 3}, {}},
                            {"no channels in", {2, 0, 5, 5}, {4, 0, 3, 3}, {}},
                            {"no rows but padding", {2, 3, 0, 5}, {4, 3, 1, 1}, {.padding = {1, 0}}}};
  for (const DType dtype : kFloating)
    for (const ConvCase& c : cases) {
      INFO(name_of(dtype), ", ", c.what);
      ConvArrays arrays(c, dtype, Layout::row_major, Layout::row_major, Layout::row_major);
      arrays.fill(1);
      const Kernels& table = device_table();
      table.conv2d(arrays.out.to_device(), arrays.input.to_device(), arrays.weight.to_device(),
                   arrays.bias.to_device(), c.geometry);
      table.conv2d_input_grad(arrays.grad_input.to_device(), arrays.grad_out.to_device(),
                              arrays.weight.to_device(), c.geometry);
      table.conv2d_weight_grad(arrays.grad_weight.to_device(), arrays.grad_out.to_device(),
                               arrays.input.to_device(), c.geometry);
      arrays.expect(c.geometry, true);
      arrays.check(0);
    }
}
