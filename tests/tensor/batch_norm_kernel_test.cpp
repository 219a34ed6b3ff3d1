// Batch normalisation's kernels: the CPU beside the naive loops, and both beside PyTorch's numbers.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/support.h"
#include "tests/tensor/kernel_views.h"

namespace mezzo {
namespace {

Kernels table(bool reference) {
  Kernels kernels;
  if (reference) {
    reference::add_batch_norm(kernels);
  } else {
    cpu::add_batch_norm(kernels);
    cpu::add_batch_norm_grad(kernels);
  }
  return kernels;
}

Elements channels(DType dtype, std::initializer_list<double> values) {
  Elements result(dtype, {static_cast<int64_t>(values.size())});
  result.fill(values);
  return result;
}

double largest_of(Elements& elements) {
  double largest = 0;
  for (int64_t i = 0; i < elements.numel(); ++i) largest = std::max(largest, std::abs(elements[i]));
  return largest;
}

/// Results that differ by no more than `error` relative to the largest number in `expected`, or to the
/// operands', near 1, or the terms', where these cancel.
void check_near(Elements& actual, Elements& expected, double error, double largest_term = 1) {
  const double largest = std::max(largest_term, largest_of(expected));
  for (int64_t i = 0; i < expected.numel(); ++i) {
    CAPTURE(i);
    REQUIRE(near(actual[i], expected[i], error * largest + epsilon(actual.dtype()) * std::abs(expected[i])));
  }
}

/// Everything that batch normalisation computes of one input.
struct Results {
  Elements mean, var, out, grad_input, eval_grad_input, grad_weight, grad_bias;
};

Results run(const Kernels& kernels, Elements& input, Elements& grad_out, Elements& invstd, Elements& weight,
            Elements& bias, Layout layout) {
  const DType dtype = input.dtype(), compute = compute_type(dtype);
  const Shape shape = input.view().shape, channel{shape[1]};
  Results r{{compute, channel, Layout::strided},
            {compute, channel},
            {dtype, shape, layout},
            {dtype, shape, layout},
            {dtype, shape, layout},
            {weight.dtype(), channel},
            {weight.dtype(), channel}};
  kernels.batch_norm_statistics(r.mean.view(), r.var.view(), input.view());
  kernels.batch_norm(r.out.view(), input.view(), r.mean.view(), invstd.view(), weight.view(), bias.view());
  kernels.batch_norm_grad(r.eval_grad_input.view(), r.grad_weight.view(), r.grad_bias.view(), grad_out.view(),
                          input.view(), r.mean.view(), invstd.view(), weight.view(), false);
  kernels.batch_norm_grad(r.grad_input.view(), r.grad_weight.view(), r.grad_bias.view(), grad_out.view(),
                          input.view(), r.mean.view(), invstd.view(), weight.view(), true);
  return r;
}

void compare(DType dtype, DType parameter, const Shape& shape, Layout layout, Layout other,
             std::mt19937& random) {
  CAPTURE(name_of(dtype));
  CAPTURE(to_string(shape));
  CAPTURE(name_of(layout));
  CAPTURE(name_of(other));
  const Shape channel{shape[1]};
  Elements input(dtype, shape, layout), grad_out(dtype, shape, other);
  Elements invstd(compute_type(dtype), channel), weight(parameter, channel), bias(parameter, channel);
  input.randomize(random, 3, 2);
  grad_out.randomize(random);
  invstd.randomize(random, 1, 0.1);
  weight.randomize(random, 1, 0.2);
  bias.randomize(random);
  const Layout out = other == Layout::expanded ? Layout::row_major : other;
  Results expected = run(table(true), input, grad_out, invstd, weight, bias, out);
  Results actual = run(table(false), input, grad_out, invstd, weight, bias, out);
  // The naive loops add up n numbers of size 10 at most in double: against float64 that is no better than the
  // kernel under test.
  const auto n = static_cast<double>(shape.numel() / shape[1]);
  const double error = (dtype == float64 ? 50 + 10 * n : 50) * epsilon(compute_type(dtype));
  check_near(actual.mean, expected.mean, error);
  check_near(actual.var, expected.var, error);
  check_near(actual.out, expected.out, error);
  check_near(actual.grad_input, expected.grad_input, error,
             std::max(1.0, largest_of(expected.eval_grad_input)));
  check_near(actual.eval_grad_input, expected.eval_grad_input, error);
  check_near(actual.grad_weight, expected.grad_weight, n * error);
  check_near(actual.grad_bias, expected.grad_bias, n * error);
}

}  // namespace

TEST_CASE("batch_norm on the CPU agrees with the naive loops") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Shape shapes[] = {{2, 3},          {70, 5},        {300, 17},    {3, 520},       {1, 1, 40},
                          {2, 1, 9},       {3, 4, 50},     {2, 3, 5, 7}, {2, 16, 9, 9},  {1, 3, 140, 130},
                          {2, 20, 17, 16}, {4, 130, 3, 2}, {1, 2, 1, 1}, {2, 3, 2, 3, 2}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {float32, float64, float16, bfloat16}) {
      const DType parameter = is_half(dtype) && random() % 2 ? float32 : dtype;
      for (Layout layout : kLayouts) {
        compare(dtype, parameter, shape, layout, layout, random);
        compare(dtype, parameter, shape, layout, kLayouts[random() % kLayouts.size()], random);
      }
    }
  }
}

TEST_CASE("batch_norm without weight, bias and gradient of the input") {
  for (bool reference : {false, true}) {
    CAPTURE(reference);
    const Kernels kernels = table(reference);
    Elements x(float32, {2, 2}), g(float32, {2, 2}), out(float32, {2, 2});
    x.fill({1, 2, 3, 6});
    g.fill({1, 0, 2, 1});
    Elements mean = channels(float32, {1, 2}), invstd = channels(float32, {2, 0.5});
    kernels.batch_norm(out.view(), x.view(), mean.view(), invstd.view(), {}, {});
    CHECK(out[0] == 0);
    CHECK(out[2] == 4);
    CHECK(out[3] == 2);
    Elements grad_weight = channels(float32, {0, 0}), grad_bias = channels(float32, {0, 0});
    kernels.batch_norm_grad({}, grad_weight.view(), grad_bias.view(), g.view(), x.view(), mean.view(),
                            invstd.view(), {}, true);
    CHECK(grad_bias[0] == 3);
    CHECK(grad_bias[1] == 1);
    CHECK(grad_weight[0] == 8);
    CHECK(grad_weight[1] == 2);
  }
}

TEST_CASE("batch_norm gives PyTorch's numbers") {
  for (bool reference : {false, true}) {
    CAPTURE(reference);
    const Kernels kernels = table(reference);
    Elements x(float32, {4, 1});
    x.fill({1, 2, 3, 6});
    Elements mean = channels(float32, {0}), var = channels(float32, {0}), out(float32, {4, 1});
    kernels.batch_norm_statistics(mean.view(), var.view(), x.view());
    CHECK(mean[0] == 3);
    CHECK(var[0] == 3.5);
    Elements invstd = channels(float32, {1 / std::sqrt(var[0] + 1e-5)});
    kernels.batch_norm(out.view(), x.view(), mean.view(), invstd.view(), {}, {});
    const double expected[] = {-1.0690434, -0.5345217, 0, 1.6035651};
    for (int64_t i = 0; i < 4; ++i) CHECK(out[i] == doctest::Approx(expected[i]).epsilon(1e-6));

    // x = 1, 2, 4 with dy = (1, 0, 0) in training; in evaluation the running statistics are 0 and 1.
    Elements x3(float32, {3, 1}), dy(float32, {3, 1}), dx(float32, {3, 1});
    x3.fill({1, 2, 4});
    dy.fill({1, 0, 0});
    kernels.batch_norm_statistics(mean.view(), var.view(), x3.view());
    invstd.set(0, 1 / std::sqrt(var[0] + 1e-5));
    Elements dw = channels(float32, {0}), db = channels(float32, {0});
    kernels.batch_norm_grad(dx.view(), dw.view(), db.view(), dy.view(), x3.view(), mean.view(), invstd.view(),
                            {}, true);
    const double grads[] = {.22908229, -.34362, .11453772};
    for (int64_t i = 0; i < 3; ++i) CHECK(dx[i] == doctest::Approx(grads[i]).epsilon(1e-5));
    CHECK(dw[0] == doctest::Approx(-1.0690415).epsilon(1e-6));
    CHECK(db[0] == 1);
    mean.set(0, 0);
    invstd.set(0, 1 / std::sqrt(1 + 1e-5));
    kernels.batch_norm_grad(dx.view(), dw.view(), db.view(), dy.view(), x3.view(), mean.view(), invstd.view(),
                            {}, false);
    CHECK(dx[0] == doctest::Approx(.99999499).epsilon(1e-6));
    CHECK(dx[1] == 0);
    CHECK(dw[0] == doctest::Approx(.99999499).epsilon(1e-6));
  }
}

TEST_CASE("statistics survive a large mean, outliers and variances that 16 bits cannot hold") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (Layout layout : {Layout::row_major, Layout::channels_last}) {
    CAPTURE(name_of(layout));
    Elements x(float32, {2, 3, 100, 90}, layout);
    x.randomize(random, 1e4, 1e-2);
    x.set(0, 1e4 + 50);  // the first element of a channel, and far from all others
    Elements mean(float32, {3}), var(float32, {3}), expected_mean(float32, {3}), expected_var(float32, {3});
    table(false).batch_norm_statistics(mean.view(), var.view(), x.view());
    table(true).batch_norm_statistics(expected_mean.view(), expected_var.view(), x.view());
    for (int64_t c = 0; c < 3; ++c) CHECK(var[c] == doctest::Approx(expected_var[c]).epsilon(1e-4));
    CHECK(var[1] == doctest::Approx(1e-4).epsilon(0.02));

    Elements halves(float16, {2, 1, 100}, layout);
    halves.fill([](int64_t i) { return i % 2 ? 300 : -300; });
    Elements m(float32, {1}), v(float32, {1});
    table(false).batch_norm_statistics(m.view(), v.view(), halves.view());
    CHECK(m[0] == 0);
    CHECK(v[0] == 90000);

    x.set(5, std::numeric_limits<double>::quiet_NaN());
    table(false).batch_norm_statistics(mean.view(), var.view(), x.view());
    CHECK(std::isnan(mean[0]));
    CHECK(std::isnan(var[0]));
    CHECK(var[1] > 0);
  }
}

TEST_CASE("batch_norm of nothing writes zeros for the sums") {
  for (bool reference : {false, true}) {
    const Kernels kernels = table(reference);
    Elements x(float32, {0, 2, 3}), mean = channels(float32, {0, 0}), invstd = channels(float32, {1, 1});
    Elements grad_weight = channels(float32, {5, 5}), grad_bias = channels(float32, {5, 5});
    kernels.batch_norm_grad(x.view(), grad_weight.view(), grad_bias.view(), x.view(), x.view(), mean.view(),
                            invstd.view(), {}, true);
    CHECK(grad_weight[1] == 0);
    CHECK(grad_bias[0] == 0);
  }
}

TEST_CASE("batch_norm has the same bits for any number of threads") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int threads = num_threads();
  for (Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Shape shape{4, 24, 40, 33};
    Elements x(float32, shape, layout), g(float32, shape, layout), invstd(float32, {24}),
        weight(float32, {24});
    x.randomize(random);
    g.randomize(random);
    invstd.randomize(random, 1, 0.1);
    weight.randomize(random);
    set_num_threads(1);
    const Results one = run(table(false), x, g, invstd, weight, weight, layout);
    set_num_threads(2);
    const Results two = run(table(false), x, g, invstd, weight, weight, layout);
    CHECK(one.mean.same_bits(two.mean));
    CHECK(one.var.same_bits(two.var));
    CHECK(one.grad_weight.same_bits(two.grad_weight));
    CHECK(one.grad_bias.same_bits(two.grad_bias));
    CHECK(one.grad_input.same_bits(two.grad_input));
  }
  set_num_threads(threads);
}

}  // namespace mezzo
