// CUDA kernels beside the reference ones: elements by position, and max pooling.
#include <limits>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

// --- indexing

namespace {

/// Shape of the whole, of the index, and along which dimension.
struct Indexed {
  Shape whole, index;
  int dim;
};

/// Index layouts: one for each element, or a list along dim that serves all others.
void check_indexing(const Indexed& c, DType dtype, Layout layout, bool list, Numbers& numbers) {
  CAPTURE(to_string(c.whole));
  CAPTURE(to_string(c.index));
  CAPTURE(c.dim);
  CAPTURE(name_of(dtype));
  CAPTURE(static_cast<int>(layout));
  CAPTURE(list);
  Shape index_strides = strides_of(c.index, layout == Layout::expanded ? Layout::row_major : layout);
  if (list) {
    for (int d = 0; d < c.index.dim(); ++d) index_strides[d] = d == c.dim ? 1 : 0;
  }
  Array index(int64, c.index, index_strides);
  index.fill([&](int64_t) { return static_cast<double>(numbers.whole(0, c.whole[c.dim] - 1)); });
  Array whole = array_of(dtype, c.whole, layout), part = array_of(dtype, c.index, layout);
  whole.fill([&](int64_t) { return numbers.of(dtype); });
  part.fill([&](int64_t) { return numbers.of(dtype); });

  const Array gathered = array_of(dtype, c.index, layout == Layout::expanded ? Layout::row_major : layout);
  const View to = gathered.to_device();
  device_table().gather(to, whole.to_device(), index.to_device(), c.dim);
  reference_table().gather(gathered.host(), whole.host(), index.host(), c.dim);
  CHECK(gathered.agrees());

  if (layout == Layout::expanded) return;
  const View scattered = whole.to_device();
  device_table().scatter(scattered, index.to_device(), part.to_device(), c.dim);
  reference_table().scatter(whole.host(), index.host(), part.host(), c.dim);
  CHECK(whole.agrees());

  Array sums = array_of(compute_type(dtype), c.whole, layout);
  sums.fill([&](int64_t) { return numbers.of(dtype); });
  const View added = sums.to_device();
  device_table().scatter_add(added, index.to_device(), part.to_device(), c.dim);
  reference_table().scatter_add(sums.host(), index.host(), part.host(), c.dim);
  CHECK(sums.agrees());  // in the same order, so equal
}

}  // namespace

TEST_CASE("gather, scatter, scatter_add: dtypes, layouts, many lines and few") {
  Numbers numbers(6);
  const Indexed cases[] = {
      {{9}, {5}, 0},
      {{9}, {100}, 0},
      {{7, 16}, {50, 16}, 0},
      {{7, 16}, {50, 11}, 0},
      {{30, 9}, {30, 1}, 1},
      {{4, 40}, {4, 90}, 1},
      {{3, 9, 5}, {2, 70, 4}, 1},
      {{3, 9, 8}, {3, 8, 8}, 2},
      {{5, 5}, {0, 5}, 0},
      {{40, 3, 2}, {40, 3, 2}, 0},
  };
  for (const Indexed& c : cases) {
    for (const DType dtype : kAll) {
      for (const Layout layout : kLayouts) {
        for (const bool list : {false, true}) check_indexing(c, dtype, layout, list, numbers);
      }
    }
  }
}

TEST_CASE("scatter_add: more positions than are sorted at once, frequent ones and rare ones") {
  Numbers numbers(7);
  for (const DType dtype : {float32, bfloat16, int32}) {
    check_indexing({{3, 4}, {9'000, 4}, 0}, dtype, Layout::row_major, true, numbers);
    check_indexing({{5'000}, {20'000}, 0}, dtype, Layout::row_major, false, numbers);
  }
}

// --- pooling

namespace {

struct Pooled {
  Shape input;
  PoolGeometry geometry;
};

int64_t windows(const PoolGeometry& g, size_t axis, int64_t size) {
  return (size + 2 * g.padding[axis] - (g.kernel[axis] - 1) * g.dilation[axis] - 1) / g.stride[axis] + 1;
}

}  // namespace

TEST_CASE("max_pool2d and its gradient: geometries, dtypes, layouts, NaN") {
  Numbers numbers(8);
  const Pooled cases[] = {
      {{2, 3, 6, 7}, {.kernel = {2, 2}, .stride = {2, 2}}},
      {{2, 16, 9, 8}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {{1, 8, 7, 7}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}, .dilation = {2, 3}}},
      {{1, 1, 1, 5}, {.kernel = {1, 3}, .stride = {1, 1}, .padding = {0, 1}}},
      {{2, 2, 8, 8}, {.kernel = {2, 2}, .stride = {3, 3}}},
      {{0, 2, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}}},
  };
  for (const Pooled& c : cases) {
    const Shape& shape = c.input;
    const PoolGeometry& geometry = c.geometry;
    const Shape windowed{shape[0], shape[1], windows(geometry, 0, shape[2]), windows(geometry, 1, shape[3])};
    for (const DType dtype : kFloating) {
      for (const Layout layout : {Layout::row_major, Layout::channels_last, Layout::spread}) {
        for (const DType cell_type : {uint8, int32, int64}) {
          CAPTURE(to_string(shape));
          CAPTURE(name_of(dtype));
          CAPTURE(static_cast<int>(layout));
          CAPTURE(name_of(cell_type));
          Array input = array_of(dtype, shape, layout);
          // Few values, so that there are equals.
          input.fill(
              [&](int64_t i) { return i % 37 == 5 ? inf - inf : static_cast<double>(numbers.whole(-3, 3)); });
          const Array out = array_of(dtype, windowed, layout), cells = array_of(cell_type, windowed, layout);
          const View to = out.to_device(), cells_to = cells.to_device();
          device_table().max_pool2d(to, cells_to, input.to_device(), geometry);
          reference_table().max_pool2d(out.host(), cells.host(), input.host(), geometry);
          CHECK(out.agrees());
          CHECK(cells.agrees());
          const View alone = out.to_device();
          device_table().max_pool2d(alone, {}, input.to_device(), geometry);
          CHECK(out.agrees());

          Array g = array_of(dtype, windowed, layout);
          g.fill([&](int64_t) { return numbers.of(dtype); });
          const Array grad = array_of(dtype, shape, layout);
          const View grad_to = grad.to_device();
          device_table().max_pool2d_grad(grad_to, g.to_device(), cells.to_device(), geometry);
          reference_table().max_pool2d_grad(grad.host(), g.host(), cells.host(), geometry);
          CHECK(grad.agrees(4 * precision_of(dtype)));
        }
      }
    }
  }
  // Cells that no window has, and cells outside the input, count for nothing.
  const PoolGeometry geometry{.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}};
  Array cells(int32, {1, 1, 3, 3}), g(float32, {1, 1, 3, 3});
  cells.fill([](int64_t i) { return i - 2; });
  g.fill([](int64_t i) { return 1 << i; });
  const Array grad(float32, {1, 1, 4, 4});
  const View to = grad.to_device();
  device_table().max_pool2d_grad(to, g.to_device(), cells.to_device(), geometry);
  reference_table().max_pool2d_grad(grad.host(), g.host(), cells.host(), geometry);
  CHECK(grad.agrees());
}
