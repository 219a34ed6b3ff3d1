// gather, index_select and scatter_add: what they refuse, repeated positions, 16-bit sums, kernels of the CPU
// beside the naive ones.
#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/error_text.h"
#include "tests/tensor/kernel_views.h"
#include "tests/values.h"

namespace mezzo {
namespace {

Tensor positions(const Values& at, const Shape& shape, DType dtype = int64) { return make(at, shape, dtype); }

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_indexing(kernels) : cpu::add_indexing(kernels);
  return kernels;
}

}  // namespace

TEST_CASE("indexing: a position out of range is refused, and nothing has changed") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}), high = positions({0, 3}, {1, 2}),
               low = positions({-1}, {1});
  CHECK(error_text([&] { gather(x, 1, high); }) ==
        text("gather: index 3 at [0, 1] is outside [0, 3); input ", describe(x), ", index ", describe(high)));
  CHECK(error_text([&] { index_select(x, 0, low); }) ==
        text("index_select: index -1 at [0] is outside [0, 2); input ", describe(x), ", index ",
             describe(low)));
  CHECK(error_text([&] {
          scatter_add(x, -1, high, make({1, 1}, {1, 2}));
        }).starts_with("scatter_add: index 3 at [0, 1] is outside [0, 3); "));
  CHECK(error_text([&] {
          index_select(make({}, {0, 2}), 0, positions({0}, {1}));
        }).starts_with("index_select: index 0 at [0] is outside [0, 0); "));
  CHECK(error_text([&] {
          gather(scalar(1), 0, positions({1}, {}));
        }).starts_with("gather: index 1 is outside [0, 1); "));
  CHECK(values(x) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("indexing: operands that do not fit are refused") {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(error_text([&] {
          gather(x, 1, positions({0, 0, 0}, {3, 1}));
        }).starts_with("gather: index must have the input's dimensions, none but 1 longer; "));
  CHECK(error_text([&] { gather(x, 1, positions({0}, {1})); }).starts_with("gather: index must have"));
  CHECK(error_text([&] { gather(x, 2, positions({0}, {1, 1})); }).starts_with("gather: "));
  CHECK(error_text([&] { gather(x, 1, x); }).starts_with("gather: index must have an integer dtype; "));
  CHECK(error_text([&] {
          index_select(x, 0, positions({0}, {1, 1}));
        }).starts_with("index_select: index must be a list; "));
  CHECK(error_text([&] {
          scatter_add(x, 0, positions({0}, {1, 1}), make({1, 2}, {1, 2}));
        }).starts_with("scatter_add: index and source must have one shape; "));
  CHECK(error_text([&] {
          scatter_add(x, 0, positions({0}, {1, 1}), make({1}, {1, 1}, float32));
        }).starts_with("scatter_add: source is float32 but input is float64; "));
}

TEST_CASE("indexing: gradients of repeated positions add up") {
  const Tensor x = leaf({1, 2, 3}), y = index_select(x, 0, positions({2, 0, 2, 2}, {4}, int32));
  CHECK(values(y) == Values{3, 1, 3, 3});
  y.backward(make({1, 10, 100, 1000}));
  CHECK(values(x.grad()) == Values{10, 0, 1101});
}

TEST_CASE("scatter_add: 16-bit values are added in float32, and the input stays") {
  const Tensor x = make({2048}, float16), one = make(Values(4096, 1), float16);
  CHECK(values(scatter_add(x, 0, positions(Values(4096, 0), {4096}), one)) == Values{6144});
  CHECK(values(x) == Values{2048});
}

TEST_CASE("indexing kernels: every layout gives the naive kernel's values") {
  std::mt19937 random(test_seed());
  for (const Layout layout : kLayouts) {
    CAPTURE(name_of(layout));
    for (const int dim : {0, 1, 3}) {
      CAPTURE(dim);
      const Shape shape{5, 6, 40, 7};
      Shape picked = shape;
      picked[dim] = 9;
      Elements in(float32, shape, layout), index(int64, picked, layout), source(bfloat16, picked, layout);
      in.randomize(random);
      source.fill([&](int64_t i) { return i % 8; });
      index.fill([&](int64_t i) { return i * 11 % 13 % shape[dim]; });
      for (const Layout to : kResultLayouts) {
        CAPTURE(name_of(to));
        Elements out(float32, picked, to), expected(float32, picked, to);
        table(false).gather(out.view(), in.view(), index.view(), dim);
        table(true).gather(expected.view(), in.view(), index.view(), dim);
        CHECK(out.same_bits(expected));
        Elements sums(float32, shape, to), expected_sums(float32, shape, to);
        table(false).scatter_add(sums.view(), index.view(), source.view(), dim);
        table(true).scatter_add(expected_sums.view(), index.view(), source.view(), dim);
        CHECK(sums.same_bits(expected_sums));
      }
    }
  }
}

TEST_CASE("scatter kernels: positions that are a list give the naive kernels' values") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int threads = num_threads();
  const Shape shapes[] = {{40, 1}, {40, 5}, {40, 300}, {9, 1100}, {3, 50, 20}, {2, 30, 17}};
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    for (int dim = 0; dim < shape.dim(); ++dim) {
      CAPTURE(dim);
      Shape picked = shape;
      picked[dim] = 31;
      Elements list(int64, {31});
      list.fill([&](int64_t) { return static_cast<int64_t>(random()) % shape[dim]; });
      View index = list.view();
      index.shape = picked;
      index.strides = Shape::filled(shape.dim(), 0);
      index.strides[dim] = 1;
      for (const DType dtype : {float32, bfloat16}) {
        for (const Layout from : kLayouts) {
          Elements source(dtype, picked, from);
          source.randomize(random);
          for (const Layout to : kResultLayouts) {
            CAPTURE(name_of(dtype));
            CAPTURE(name_of(from));
            CAPTURE(name_of(to));
            Elements expected(float32, shape, to), expected_last(dtype, shape, to);
            table(true).scatter_add(expected.view(), index, source.view(), dim);
            table(true).scatter(expected_last.view(), index, source.view(), dim);
            for (const int n : {1, 2}) {
              CAPTURE(n);
              set_num_threads(n);
              Elements sums(float32, shape, to), last(dtype, shape, to);
              table(false).scatter_add(sums.view(), index, source.view(), dim);
              table(false).scatter(last.view(), index, source.view(), dim);
              CHECK(sums.same_bits(expected));
              CHECK(last.same_bits(expected_last));
            }
          }
        }
      }
    }
  }
  set_num_threads(threads);
}

}  // namespace mezzo
