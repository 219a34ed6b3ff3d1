// The reductions of the CPU beside the naive ones, and both beside what they are defined as.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/support.h"
#include "tests/tensor/kernel_views.h"

namespace mezzo {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kAllDTypes[] = {float64, float32, float16, bfloat16, int64, int32, uint8, bool_};

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_reduce(kernels) : cpu::add_reduce(kernels);
  return kernels;
}

DType result_dtype(Reduction reduction, DType in) {
  switch (reduction) {
    case Reduction::sum:
      return is_floating(in) ? in : int64;
    case Reduction::mean:
      return is_floating(in) ? in : float32;
    case Reduction::any:
    case Reduction::all:
      return bool_;
    case Reduction::argmax:
    case Reduction::argmin:
      return int64;
    default:
      return in;
  }
}

/// The result of one reduction over the dimensions in `dims`, a set of bits.
Elements reduce(const Kernels& kernels, Reduction reduction, Elements& in, unsigned dims,
                Layout layout = Layout::row_major) {
  Shape shape = in.view().shape;
  for (int d = 0; d < shape.dim(); ++d) {
    if (dims >> d & 1) shape[d] = 1;
  }
  Elements out(result_dtype(reduction, in.dtype()), shape, layout);
  kernels.reduce[static_cast<size_t>(reduction)](out.view(), in.view());
  return out;
}

/// What the results of a reduction may differ by, beside their own rounding: float sums have the error of a
/// few hundred additions, relative to the sum of magnitudes.
bool is_position(Reduction reduction) {
  return reduction == Reduction::argmax || reduction == Reduction::argmin;
}

double tolerance(Reduction reduction, Elements& in, Elements& out) {
  if (reduction != Reduction::sum && reduction != Reduction::mean) return 0;
  double largest = 0;
  for (int64_t i = 0; i < in.numel(); ++i) largest = std::max(largest, std::abs(in[i]));
  const double count =
      static_cast<double>(in.numel()) / static_cast<double>(std::max<int64_t>(1, out.numel()));
  return largest * epsilon(compute_type(in.dtype())) * (reduction == Reduction::sum ? count : 1);
}

void compare(Reduction reduction, DType dtype, const Shape& shape, Layout layout, unsigned dims,
             std::mt19937& random) {
  CAPTURE(static_cast<int>(reduction));
  CAPTURE(name_of(dtype));
  CAPTURE(to_string(shape));
  CAPTURE(name_of(layout));
  CAPTURE(dims);
  Elements in(dtype, shape, layout);
  // Few distinct values, so that extremes have ties; mostly zeros for any, mostly not for all.
  const int64_t range = dtype == uint8 || dtype == bool_ ? 0 : 20;
  std::uniform_int_distribution<int64_t> values(-range, 20);
  const bool sparse = random() % 2;
  in.fill([&](int64_t) {
    const auto value = static_cast<double>(values(random));
    if (reduction == Reduction::any && sparse) return value == 7 ? 1.0 : 0.0;
    if (reduction == Reduction::all && sparse) return value == 7 ? 0.0 : 1.0;
    return is_floating(dtype) ? value / 8 : value;
  });
  Elements expected = reduce(table(true), reduction, in, dims);
  Elements actual =
      reduce(table(false), reduction, in, dims, kResultLayouts[random() % kResultLayouts.size()]);
  const double error = tolerance(reduction, in, expected);
  for (int64_t i = 0; i < expected.numel(); ++i) {
    CAPTURE(i);
    REQUIRE(near(actual[i], expected[i], error + std::abs(expected[i]) * epsilon(expected.dtype())));
  }
}

}  // namespace

TEST_CASE("reductions on the CPU agree with the naive ones") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Shape shapes[] = {{},      {1},       {0},          {7},           {129},          {2, 3},    {40, 3},
                          {3, 40}, {2, 0, 3}, {3, 5, 4, 6}, {2, 17, 3, 9}, {1, 130, 2, 2}, {5, 1, 33}};
  for (int r = 0; r < kReductions; ++r) {
    const auto reduction = static_cast<Reduction>(r);
    for (DType dtype : kAllDTypes) {
      for (const Shape& shape : shapes) {
        const bool refuses_nothing =
            reduction == Reduction::amax || reduction == Reduction::amin || is_position(reduction);
        if (refuses_nothing && shape.numel() == 0) continue;
        for (Layout layout : kLayouts) {
          const unsigned sets = 1u << shape.dim();
          for (unsigned dims = 0; dims < sets; ++dims) {
            if (is_position(reduction) && std::popcount(dims) != 1) continue;
            compare(reduction, dtype, shape, layout, dims, random);
          }
        }
      }
    }
  }
}

TEST_CASE("reductions agree at the edges of blocks and strips") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const struct {
    Shape shape;
    unsigned dims;
  } cases[] = {{{16383}, 1},      {{16385}, 1},          {{3, 32769}, 2},   {{257, 3}, 1},
               {{5500, 3}, 1},    {{511, 511}, 1},       {{300, 513}, 1},   {{300, 1025}, 2},
               {{2, 300, 70}, 3}, {{4, 65, 16, 17}, 13}, {{600, 2, 20}, 5}, {{20, 3, 900}, 5},
               {{257, 100}, 2}};
  for (const auto& [shape, dims] : cases) {
    for (int r = 0; r < kReductions; ++r) {
      const auto reduction = static_cast<Reduction>(r);
      if (is_position(reduction) && std::popcount(dims) != 1) continue;
      for (DType dtype : {float32, float16, int32}) {
        for (Layout layout : {Layout::row_major, Layout::channels_last, Layout::strided}) {
          compare(reduction, dtype, shape, layout, dims, random);
        }
      }
    }
  }
}

TEST_CASE("reductions of lines agree at the edges of their vectors and blocks") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Shape shapes[] = {{3, 16},  {9, 63},   {9, 64},   {9, 65},   {600, 33}, {5, 511},
                          {5, 513}, {3, 4095}, {3, 4097}, {2, 8200}, {2, 16384}};
  for (const Shape& shape : shapes) {
    for (int r = 0; r < kReductions; ++r) {
      for (DType dtype : {float64, float32, bfloat16, int64}) {
        for (Layout layout : {Layout::row_major, Layout::strided})
          compare(static_cast<Reduction>(r), dtype, shape, layout, 2, random);
      }
    }
  }
  Elements x(float32, {1, 130});
  for (int64_t place = 0; place < 130; ++place) {
    CAPTURE(place);
    x.randomize(random);
    x.set(place, kNaN);
    CHECK(std::isnan(reduce(table(false), Reduction::amax, x, 2)[0]));
    CHECK(std::isnan(reduce(table(false), Reduction::amin, x, 2)[0]));
    CHECK(reduce(table(false), Reduction::argmin, x, 2)[0] == static_cast<double>(place));
  }
}

TEST_CASE("reductions of nothing, of NaN, of ties") {
  for (bool reference : {false, true}) {
    CAPTURE(reference);
    const Kernels kernels = table(reference);
    Elements nothing(float32, {3, 0});
    CHECK(reduce(kernels, Reduction::sum, nothing, 2)[2] == 0);
    CHECK(std::isnan(reduce(kernels, Reduction::mean, nothing, 2)[1]));
    CHECK(reduce(kernels, Reduction::any, nothing, 2)[0] == 0);
    CHECK(reduce(kernels, Reduction::all, nothing, 2)[0] == 1);

    for (DType dtype : {float64, float32, float16, bfloat16}) {
      Elements x(dtype, {2, 5});
      x.fill({1, kNaN, 3, kNaN, -1, -kInf, -kInf, -kInf, -kInf, -kInf});
      Elements largest = reduce(kernels, Reduction::amax, x, 2),
               smallest = reduce(kernels, Reduction::amin, x, 2);
      CHECK(std::isnan(largest[0]));
      CHECK(std::isnan(smallest[0]));
      CHECK(largest[1] == -kInf);
      CHECK(smallest[1] == -kInf);
      Elements where = reduce(kernels, Reduction::argmax, x, 2);
      CHECK(where[0] == 1);  // the first NaN, as in PyTorch
      CHECK(where[1] == 0);
      CHECK(reduce(kernels, Reduction::any, x, 2)[0] == 1);
      CHECK(reduce(kernels, Reduction::all, x, 2)[0] == 1);
    }

    // A fraction is true although it would be 0 as an integer.
    Elements fractions(float16, {3});
    fractions.fill({0, 0.25, 0});
    CHECK(reduce(kernels, Reduction::any, fractions, 1)[0] == 1);
    CHECK(reduce(kernels, Reduction::all, fractions, 1)[0] == 0);

    Elements ties(int64, {400});
    ties.fill([](int64_t i) { return i == 137 || i == 300 ? 9 : i % 9; });
    CHECK(reduce(kernels, Reduction::argmax, ties, 1)[0] == 137);
    Elements lowest(int64, {3});
    lowest.fill([](int64_t) { return -0x1p63; });
    CHECK(reduce(kernels, Reduction::argmax, lowest, 1)[0] == 0);
  }
}

TEST_CASE("sums do not lose what their dtype could not hold on the way") {
  for (bool reference : {false, true}) {
    CAPTURE(reference);
    const Kernels kernels = table(reference);
    Elements ones(float16, {10000});
    ones.fill([](int64_t) { return 1; });
    CHECK(reduce(kernels, Reduction::sum, ones, 1)[0] == 10000);
    Elements large(float16, {3});
    large.fill({40000, 40000, 40000});
    CHECK(reduce(kernels, Reduction::mean, large, 1)[0] == 40000);
    Elements bytes(uint8, {1000});
    bytes.fill([](int64_t) { return 255; });
    CHECK(reduce(kernels, Reduction::sum, bytes, 1)[0] == 255000);
    Elements exact(int64, {2});
    exact.view().as<int64_t>()[0] = (int64_t{1} << 53) + 1;
    exact.view().as<int64_t>()[1] = 1;
    Elements sum = reduce(kernels, Reduction::sum, exact, 1);
    CHECK(*sum.view().as<int64_t>() == (int64_t{1} << 53) + 2);
  }
}

TEST_CASE("a sum of a million floats has a small error") {
  Elements tenths(float32, {1 << 20});
  tenths.fill([](int64_t) { return 0.1; });
  const double expected = static_cast<double>(0.1f) * (1 << 20);
  CHECK(std::abs(reduce(table(false), Reduction::sum, tenths, 1)[0] / expected - 1) < 1e-6);
  Elements columns(float32, {1 << 16, 16});
  columns.fill([](int64_t) { return 0.1; });
  CHECK(std::abs(reduce(table(false), Reduction::sum, columns, 1)[3] / (expected / 16) - 1) < 1e-6);
}

TEST_CASE("a sum has the same bits for any number of threads") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Elements x(float32, {8, 40, 30, 37}, Layout::channels_last);
  x.randomize(random);
  const Kernels kernels = table(false);
  const int threads = num_threads();
  for (unsigned dims : {13u, 15u, 8u, 2u}) {
    set_num_threads(1);
    const Elements one = reduce(kernels, Reduction::sum, x, dims);
    set_num_threads(2);
    const Elements two = reduce(kernels, Reduction::sum, x, dims);
    CHECK(one.same_bits(two));
  }
  Elements lines(float32, {1300, 100});
  lines.randomize(random);
  set_num_threads(1);
  const Elements one = reduce(kernels, Reduction::sum, lines, 2);
  set_num_threads(3);
  CHECK(one.same_bits(reduce(kernels, Reduction::sum, lines, 2)));
  set_num_threads(threads);
}

}  // namespace mezzo
