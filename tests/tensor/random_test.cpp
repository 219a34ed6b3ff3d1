// Philox beside its published answers, and what the kernels make of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tensor/cpu/kernel_families.h"
#include "tensor/random_values.h"
#include "tensor/threads.h"
#include "tests/tensor/kernel_views.h"

namespace mezzo {
namespace {

Kernels table() {
  Kernels kernels;
  cpu::add_random(kernels);
  return kernels;
}

double mean_of(Elements& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += x[i];
  return sum / static_cast<double>(x.numel());
}

/// Mean of (x - mean)^power.
double moment_of(Elements& x, double mean, int power) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += std::pow(x[i] - mean, power);
  return sum / static_cast<double>(x.numel());
}

constexpr DType kFloating[] = {float64, float32, float16, bfloat16};

}  // namespace

TEST_CASE("philox gives the published answers") {
  // Random123's kat_vectors, philox4x32-10; those whose counter has its upper two words at 0 are ours.
  static_assert(philox(0, 0) == std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("a generator moves on, goes back, and is shared by its copies") {
  Generator generator(7);
  const PhiloxState first = generator.take(10), second = generator.take(1);
  CHECK(first.seed == 7);
  CHECK(first.offset == 0);
  CHECK(second.offset >= 5);  // ten elements of float64 are five blocks
  CHECK(generator.offset() > second.offset);
  Generator copy = generator;
  copy.set_offset(first.offset);
  CHECK(generator.take(10).offset == 0);
  copy.manual_seed(8);
  CHECK(generator.seed() == 8);
  CHECK(generator.offset() == 0);
  CHECK(generator.take(0).offset == generator.offset());

  manual_seed(3);
  CHECK(default_generator().seed() == 3);
  CHECK(default_generator().take(4).offset == 0);
}

TEST_CASE("the CPU's numbers are the values of the elements, in row-major order, in any layout") {
  const PhiloxState state{.seed = 0x123456789abcdefull, .offset = (1ull << 32) - 2};
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{513}, Shape{3, 5, 7, 6}, Shape{3, 9001}}) {
    for (DType dtype : kFloating) {
      for (Layout layout : kResultLayouts) {
        CAPTURE(to_string(shape));
        CAPTURE(name_of(dtype));
        CAPTURE(name_of(layout));
        Elements x(dtype, shape, layout), expected(dtype, shape, layout);
        table().uniform(x.view(), state, -1.5, 2);
        expected.fill([&](int64_t i) { return uniform_value(state, dtype, i, -1.5, 2); });
        CHECK(x.same_bits(expected));
        table().normal(x.view(), state, 0.5, 3);
        expected.fill([&](int64_t i) { return normal_value(state, dtype, i, 0.5, 3); });
        CHECK(x.same_bits(expected));
      }
    }
  }
}

TEST_CASE("elements take the words of their block") {
  const PhiloxState state{.seed = 5, .offset = 9};
  for (int64_t i = 0; i < 12; ++i) {
    const auto n = static_cast<size_t>(i);
    const auto words = philox(5, 9 + n / 4), pairs = philox(5, 9 + n / 2);
    CHECK(uniform_value(state, float32, i, 0, 1) == (words[n % 4] >> 8) * 0x1p-24);
    const uint64_t pair = uint64_t{pairs[n % 2 * 2 + 1]} << 32 | pairs[n % 2 * 2];
    CHECK(uniform_value(state, float64, i, 0, 1) == static_cast<double>(pair >> 11) * 0x1p-53);
  }
}

TEST_CASE("uniform numbers stay below the upper bound and reach the lower, also when rounded") {
  for (DType dtype : kFloating) {
    const struct { double low, high; } ranges[] = {{0, 1}, {-1, 0}, {0.1, 0.3}, {100, 101}, {-1e-7, 1e-7}};
    for (const auto& range : ranges) {
      const double low = range.low, high = range.high;
      CAPTURE(name_of(dtype));
      CAPTURE(low);
      Elements x(dtype, {20000});
      table().uniform(x.view(), {.seed = 1, .offset = 0}, low, high);
      double least = high, most = low;
      for (int64_t i = 0; i < x.numel(); ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
      CHECK(least >= low);
      CHECK(most < high);
      const double spacing = std::max(epsilon(dtype) * std::max(std::abs(low), std::abs(high)), 0x1p-24);
      const double slack = (high - low) / 100 + spacing;
      CHECK(least <= low + slack);
      CHECK(most >= high - slack);
    }
    Elements same(dtype, {3});
    table().uniform(same.view(), {}, 0.5, 0.5);
    CHECK(same[2] == 0.5);
  }
}

TEST_CASE("samples have the moments of their distributions") {
  constexpr int64_t kSamples = 200000;
  const double n = static_cast<double>(kSamples),
               sigmas = 5;  // the seed is fixed: this passes or it does not
  for (DType dtype : kFloating) {
    CAPTURE(name_of(dtype));
    const double rounding = epsilon(dtype) / 2;
    Elements x(dtype, {kSamples});
    table().normal(x.view(), {.seed = 11, .offset = 0}, 0, 1);
    const double mean = mean_of(x);
    CHECK(std::abs(mean) < sigmas / std::sqrt(n));
    CHECK(std::abs(moment_of(x, 0, 2) - 1) < sigmas * std::sqrt(2 / n) + rounding);
    CHECK(std::abs(moment_of(x, 0, 3)) < sigmas * std::sqrt(15 / n) + rounding);
    CHECK(std::abs(moment_of(x, 0, 4) - 3) < sigmas * std::sqrt(96 / n) + 8 * rounding);
    // Pairs come from one radius: their product must have mean 0 all the same.
    double products = 0;
    for (int64_t i = 0; i < kSamples; i += 2) products += x[i] * x[i + 1];
    CHECK(std::abs(products / (n / 2)) < sigmas / std::sqrt(n / 2));

    table().uniform(x.view(), {.seed = 12, .offset = 0}, 0, 1);
    CHECK(std::abs(mean_of(x) - 0.5) < sigmas * std::sqrt(1 / (12 * n)) + rounding);
    CHECK(std::abs(moment_of(x, 0.5, 2) - 1.0 / 12) < sigmas * std::sqrt(1 / (180 * n)) + rounding);

    table().normal(x.view(), {.seed = 13, .offset = 0}, 10, 0.25);
    CHECK(std::abs(mean_of(x) - 10) < sigmas * 0.25 / std::sqrt(n) + 10 * rounding);
  }
}

TEST_CASE("draws that follow each other do not repeat") {
  Generator generator(1);
  std::multiset<double> seen;
  for (int draw = 0; draw < 20; ++draw) {
    Elements x(float64, {33});
    table().uniform(x.view(), generator.take(33), 0, 1);
    for (int64_t i = 0; i < 33; ++i) seen.insert(x[i]);
  }
  CHECK(std::set<double>(seen.begin(), seen.end()).size() == seen.size());
}

TEST_CASE("random numbers are the same for any number of threads") {
  const int threads = num_threads();
  Elements one(float32, {100003}), two(float32, {100003});
  set_num_threads(1);
  table().normal(one.view(), {.seed = 2, .offset = 0}, 0, 1);
  set_num_threads(2);
  table().normal(two.view(), {.seed = 2, .offset = 0}, 0, 1);
  CHECK(one.same_bits(two));
  set_num_threads(threads);
}

}  // namespace mezzo
