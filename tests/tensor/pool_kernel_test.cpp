// The pooling kernels of the CPU beside the naive ones: layouts, dtypes, geometries, numbers of threads.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/tensor/kernel_views.h"
#include "tests/values.h"

namespace mezzo {
namespace {

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_pool(kernels) : cpu::add_pool(kernels);
  return kernels;
}

/// Windows on each axis, of which the last may hang over the end.
Shape windows(const Shape& x, const PoolGeometry& g) {
  Shape shape = x;
  for (int d = 2; d < 4; ++d) {
    const auto axis = static_cast<size_t>(d - 2);
    shape[d] = (x[d] + 2 * g.padding[axis] - g.dilation[axis] * (g.kernel[axis] - 1) - 2 + g.stride[axis]) /
                   g.stride[axis] +
               1;
    if ((shape[d] - 1) * g.stride[axis] >= x[d] + g.padding[axis]) --shape[d];
  }
  return shape;
}

/// Both kernels on one input: the values, cells and gradients of the naive ones.
void check_kernels(const Shape& shape, const PoolGeometry& geometry, DType dtype, Layout from, Layout to,
                   std::mt19937& random) {
  CAPTURE(to_string(shape));
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  const Shape pooled = windows(shape, geometry);
  const DType cell = geometry.kernel[0] * geometry.kernel[1] > 256 ? int32 : uint8;
  Elements x(dtype, shape, from), y(dtype, pooled, to), cells(cell, pooled, to), expected(dtype, pooled, to),
      expected_cells(cell, pooled, to);
  std::uniform_int_distribution<int> few(-8, 8);  // equal ones are frequent
  x.fill([&](int64_t i) { return i % 31 == 7 ? std::nan("") : few(random); });
  table(false).max_pool2d(y.view(), cells.view(), x.view(), geometry);
  table(true).max_pool2d(expected.view(), expected_cells.view(), x.view(), geometry);
  bool agree = true;
  for (int64_t i = 0; i < y.numel(); ++i) agree &= near(y[i], expected[i], 0);
  CHECK(agree);
  CHECK(cells.same_bits(expected_cells));

  Elements g(dtype, pooled, from), dx(dtype, shape, to), expected_dx(dtype, shape, to);
  g.fill([&](int64_t) { return few(random); });  // sums of these are exact
  cells.set(0, 255);                             // no window has it
  table(false).max_pool2d_grad(dx.view(), g.view(), cells.view(), geometry);
  table(true).max_pool2d_grad(expected_dx.view(), g.view(), cells.view(), geometry);
  CHECK(dx.same_bits(expected_dx));
}

const PoolGeometry kPlain{.kernel = {2, 2}, .stride = {2, 2}};
const PoolGeometry kEverything{.kernel = {3, 4}, .stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}};
const PoolGeometry kOverlapping{.kernel = {3, 3}, .padding = {1, 1}};

}  // namespace

TEST_CASE("pooling kernels: every layout and dtype gives the naive kernel's values and cells") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Layout from : kLayouts) {
    for (const Layout to : kResultLayouts) {
      for (const PoolGeometry& geometry : {kPlain, kEverything, kOverlapping}) {
        for (const DType dtype : {float64, float32, float16, bfloat16})
          check_kernels({2, 5, 8, 11}, geometry, dtype, from, to, random);
      }
    }
  }
}

TEST_CASE("pooling kernels: more channels, or windows in a row or a plane, than a buffer holds") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  check_kernels({1, 600, 4, 5}, kPlain, float32, Layout::channels_last, Layout::channels_last, random);
  check_kernels({1, 1, 3, 1300}, kOverlapping, float32, Layout::row_major, Layout::row_major, random);
  check_kernels({1, 1, 3, 1300}, kPlain, bfloat16, Layout::row_major, Layout::row_major, random);
  // Several rows to a buffer, and several buffers to a plane.
  for (const Layout layout : {Layout::row_major, Layout::strided}) {
    for (const PoolGeometry& geometry : {kPlain, kEverything, kOverlapping})
      check_kernels({1, 2, 70, 46}, geometry, float32, layout, layout, random);
  }
}

TEST_CASE("pooling kernels: windows of more than 256 cells") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const PoolGeometry large{.kernel = {17, 16}, .padding = {3, 0}};
  for (const Layout layout : {Layout::row_major, Layout::channels_last})
    check_kernels({1, 3, 18, 20}, large, float32, layout, layout, random);
}

TEST_CASE("max_pool2d: the same bits for any number of threads") {
  const Tensor image = randn({6, 40, 30, 30}, {.device = test_device()});
  const int threads = num_threads();
  for (const MemoryFormat format : {contiguous_format, channels_last}) {
    const auto run = [&] {
      const Tensor x = image.clone().to(format).requires_grad_(), y = max_pool2d(x, 3, {.stride = 1});
      y.square().sum().backward();
      Values all = values(y);
      for (double gradient : values(x.grad())) all.push_back(gradient);
      return all;
    };
    set_num_threads(1);
    const Values one = run();
    set_num_threads(4);
    CHECK(run() == one);
  }
  set_num_threads(threads);
}

}  // namespace mezzo
