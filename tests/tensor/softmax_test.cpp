// The softmax kernels of the CPU beside the naive ones: layouts, dtypes, long lines, numbers of threads; and
// what the ops refuse.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/error_text.h"
#include "tests/tensor/kernel_views.h"
#include "tests/values.h"

namespace mezzo {
namespace {

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_softmax(kernels) : cpu::add_softmax(kernels);
  return kernels;
}

/// Both kernels on one input, and their gradients, must agree with the naive ones.
void check_kernels(const Shape& shape, int dim, DType dtype, Layout from, Layout to, std::mt19937& random) {
  CAPTURE(to_string(shape));
  CAPTURE(dim);
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  Elements x(dtype, shape, from), g(dtype, shape, from);
  x.randomize(random, 3, 4);
  g.randomize(random);
  for (const bool log : {false, true}) {
    CAPTURE(log);
    Elements y(dtype, shape, to), dx(dtype, shape, to), expected(dtype, shape), expected_dx(dtype, shape);
    table(false).softmax(y.view(), x.view(), dim, log);
    table(true).softmax(expected.view(), x.view(), dim, log);
    table(false).softmax_grad(dx.view(), g.view(), y.view(), dim, log);
    table(true).softmax_grad(expected_dx.view(), g.view(), y.view(), dim, log);
    bool agree = true;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double allowed = 8 * epsilon(dtype);
      agree &= near(y[i], expected[i], allowed * ((log ? 1 : 1e-3) + std::abs(expected[i])));
      agree &= near(dx[i], expected_dx[i], allowed * (1 + std::abs(expected_dx[i])));
    }
    CHECK(agree);
  }
}

}  // namespace

TEST_CASE("softmax kernels: every layout and dtype gives the naive kernel's values") {
  std::mt19937 random(test_seed());
  for (const Layout from : kLayouts) {
    for (const Layout to : kResultLayouts) {
      for (const int dim : {0, 1, 3}) check_kernels({3, 20, 4, 18}, dim, float32, from, to, random);
    }
    for (const DType dtype : {float64, float16, bfloat16})
      check_kernels({2, 5, 3, 7}, 1, dtype, from, Layout::row_major, random);
  }
}

TEST_CASE("softmax kernels: lines longer than a block, and many short ones") {
  std::mt19937 random(test_seed());
  for (const Layout layout : {Layout::row_major, Layout::reversed}) {
    check_kernels({2, 40000}, 1, float32, layout, layout, random);
    check_kernels({1200, 10}, 1, float32, layout, layout, random);
  }
}

TEST_CASE("softmax: the same bits for any number of threads") {
  const Tensor x = rand({300, 700}, {.device = test_device()});
  const int threads = num_threads();
  set_num_threads(1);
  const Values one = values(softmax(x, 1)), log_one = values(log_softmax(x, 0));
  set_num_threads(4);
  CHECK(values(softmax(x, 1)) == one);
  CHECK(values(log_softmax(x, 0)) == log_one);
  set_num_threads(threads);
}

TEST_CASE("softmax: what is refused") {
  const Tensor x = make({1, 2}), whole = make({1, 2}, int64);
  CHECK(error_text([&] { softmax(x, 1); }).starts_with("softmax: "));
  CHECK(error_text([&] { log_softmax(x, -2); }).starts_with("log_softmax: "));
  CHECK(error_text([&] { logsumexp(x, 1); }).starts_with("logsumexp: "));
  CHECK(error_text([&] { softmax(whole, 0); }) ==
        text("softmax: needs a floating dtype, not int64; input ", describe(whole)));
  CHECK(error_text([&] {
          softmax_grad(x, make({1, 2, 3}), 0, false);
        }).starts_with("softmax_grad: shapes must be equal; "));
}

TEST_CASE("softmax: a mask of -infinity gives exact zeros") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {float32, float16}) {
    const Values y = values(softmax(make({0, -inf, 0, -inf}, dtype), 0));
    CHECK(y == Values{.5, 0, .5, 0});
  }
}

}  // namespace mezzo
