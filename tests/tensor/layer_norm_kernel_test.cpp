// The layer_norm kernels of the CPU beside the naive ones: layouts, dtypes, long rows, numbers of threads.
#include <doctest/doctest.h>

#include <algorithm>
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
  reference ? reference::add_layer_norm(kernels) : cpu::add_layer_norm(kernels);
  return kernels;
}

/// Within `epsilons` of the dtype, beside the largest entry.
bool agree(Elements& actual, Elements& expected, double epsilons) {
  double largest = 1;
  for (int64_t i = 0; i < expected.numel(); ++i) largest = std::max(largest, std::abs(expected[i]));
  bool all = true;
  for (int64_t i = 0; i < expected.numel(); ++i)
    all &= near(actual[i], expected[i], epsilons * epsilon(actual.dtype()) * largest);
  return all;
}

/// Rows of the shape's last dimension; `given`: weight and bias.
void check_kernels(const Shape& shape, DType dtype, DType parameter, Layout from, Layout to, bool given,
                   std::mt19937& random) {
  CAPTURE(to_string(shape));
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(parameter));
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  CAPTURE(given);
  Shape statistics = shape;
  statistics[shape.dim() - 1] = 1;
  const Shape row{shape[shape.dim() - 1]};
  Elements x(dtype, shape, from), g(dtype, shape, from), weight(parameter, row, from), bias(parameter, row);
  x.randomize(random, 3, 2);
  g.randomize(random);
  weight.randomize(random);
  bias.randomize(random);
  const View w = given ? weight.view() : View{}, b = given ? bias.view() : View{};
  Elements y(dtype, shape, to), expected(dtype, shape);
  Elements mean(compute_type(dtype), statistics, to), rstd(compute_type(dtype), statistics, to);
  Elements other_mean(compute_type(dtype), statistics), other_rstd(compute_type(dtype), statistics);
  table(false).layer_norm(y.view(), mean.view(), rstd.view(), x.view(), w, b, 1e-5);
  table(true).layer_norm(expected.view(), other_mean.view(), other_rstd.view(), x.view(), w, b, 1e-5);
  // Differences from a mean that is large beside the spread have lost digits.
  double lost = 1;
  for (int64_t i = 0; i < other_mean.numel(); ++i)
    lost = std::max(lost, std::abs(other_mean[i]) * other_rstd[i]);
  CHECK(agree(y, expected, 4 * lost));
  CHECK(agree(mean, other_mean, 4));
  CHECK(agree(rstd, other_rstd, 8 * lost));

  Elements dx(dtype, shape, to), dw(parameter, row, to), db(parameter, row), other_dx(dtype, shape),
      other_dw(parameter, row), other_db(parameter, row);
  table(false).layer_norm_grad(dx.view(), dw.view(), db.view(), g.view(), x.view(), mean.view(), rstd.view(),
                               w);
  table(true).layer_norm_grad(other_dx.view(), other_dw.view(), other_db.view(), g.view(), x.view(),
                              mean.view(), rstd.view(), w);
  CHECK(agree(dx, other_dx, 8 * lost));
  CHECK(agree(dw, other_dw, 8 * lost));
  CHECK(agree(db, other_db, 8));
}

}  // namespace

TEST_CASE("layer_norm kernels: every layout and dtype gives the naive kernel's values") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Layout from : kLayouts) {
    for (const Layout to : kResultLayouts) {
      for (const DType dtype : {float64, float32, float16, bfloat16}) {
        check_kernels({3, 4, 5, 19}, dtype, dtype, from, to, true, random);
        check_kernels({3, 4, 5, 19}, dtype, is_half(dtype) ? float32 : dtype, from, to, false, random);
      }
    }
  }
}

TEST_CASE("layer_norm kernels: rows longer than a buffer, many rows, and one") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const DType dtype : {float32, bfloat16}) {
    for (const Shape& shape : {Shape{5, 1300}, Shape{3000, 9}, Shape{1, 40000}, Shape{70, 3}})
      check_kernels(shape, dtype, float32, Layout::row_major, Layout::row_major, true, random);
  }
}

TEST_CASE("layer_norm: the same bits for any number of threads") {
  const Tensor rows = randn({3000, 70}, {.device = test_device()}),
               scale = randn({70}, {.device = test_device()});
  const int threads = num_threads();
  const auto run = [&] {
    const Tensor x = rows.clone().requires_grad_(), w = scale.clone().requires_grad_(),
                 y = layer_norm(x, {70}, w);
    y.square().sum().backward();
    return std::array{values(y), values(x.grad()), values(w.grad())};
  };
  set_num_threads(1);
  const auto one = run();
  set_num_threads(4);
  CHECK((run() == one));
  set_num_threads(threads);
}

}  // namespace mezzo
