// The softmax kernels of the CPU beside the naive ones: layouts, dtypes, lengths of lines, NaN and
// infinities, numbers of threads; and what the ops refuse.
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
  Elements x(dtype, shape, from), g(dtype, shape, from), g_sizes(dtype, shape);
  x.randomize(random, 3, 4);
  g.randomize(random);
  g_sizes.fill([&](int64_t i) { return std::abs(g[i]); });
  // The naive kernel adds up in float64: for operands of that its own error grows with the line.
  const double allowed =
      8 * epsilon(dtype) * (dtype == float64 ? 1 + static_cast<double>(shape[dim]) / 100 : 1);
  for (const bool log : {false, true}) {
    CAPTURE(log);
    Elements y(dtype, shape, to), dx(dtype, shape, to), expected(dtype, shape), expected_dx(dtype, shape);
    table(false).softmax(y.view(), x.view(), dim, log);
    table(true).softmax(expected.view(), x.view(), dim, log);
    table(false).softmax_grad(dx.view(), g.view(), y.view(), dim, log);
    table(true).softmax_grad(expected_dx.view(), g.view(), y.view(), dim, log);
    // A gradient is a difference of terms that may be larger: those of |g| have the sizes a and b, and a - b
    // here.
    Elements difference(dtype, shape);
    table(true).softmax_grad(difference.view(), g_sizes.view(), y.view(), dim, log);
    bool agree = true;
    for (int64_t i = 0; i < x.numel(); ++i) {
      agree &= near(y[i], expected[i], allowed * ((log ? 1 : 1e-3) + std::abs(expected[i])));
      const double a = g_sizes[i] * (log ? 1 : y[i]), b = a - difference[i];
      agree &= near(dx[i], expected_dx[i], allowed * (1 + a + b));
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

TEST_CASE("softmax kernels: lines of any length, in memory as they are or not") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const int64_t n : {1, 2, 15, 16, 17, 64, 65, 100, 511, 512, 513, 1100}) {
    for (const DType dtype : {float64, float32, float16, bfloat16}) {
      for (const Layout from : {Layout::row_major, Layout::strided}) {
        for (const Layout to : {Layout::row_major, Layout::strided})
          check_kernels({3, 2, n}, 2, dtype, from, to, random);
      }
    }
    check_kernels({2, n, 3}, 1, float32, Layout::channels_last, Layout::row_major, random);
    check_kernels({2, n, 3}, 1, float32, Layout::row_major, Layout::channels_last, random);
  }
  check_kernels({600, 20}, 1, float32, Layout::row_major, Layout::row_major, random);
}

TEST_CASE("softmax kernels: NaN and infinities come out as from the naive ones, wherever they are") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Shape shape{1, 70};
  for (const DType dtype : {float64, float32, bfloat16}) {
    for (const double odd : {std::numeric_limits<double>::quiet_NaN(), inf, -inf}) {
      for (const bool alone : {true, false}) {
        for (int64_t place = 0; place < 70; ++place) {
          Elements x(dtype, shape), y(dtype, shape), expected(dtype, shape);
          x.randomize(random);
          for (int64_t i = 0; i < 70; ++i)
            if (alone ? i == place : i != place) x.set(i, odd);
          for (const bool log : {false, true}) {
            table(false).softmax(y.view(), x.view(), 1, log);
            table(true).softmax(expected.view(), x.view(), 1, log);
            bool agree = true;
            for (int64_t i = 0; i < 70; ++i)
              agree &= near(y[i], expected[i], 8 * epsilon(dtype) * (1 + std::abs(expected[i])));
            CAPTURE(name_of(dtype));
            CAPTURE(odd);
            CAPTURE(alone);
            CAPTURE(place);
            CAPTURE(log);
            CHECK(agree);
          }
        }
      }
    }
  }
}

TEST_CASE("softmax kernels: columns side by side, whatever comes first in them") {
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t rows = 600;
  const auto element = [](int64_t kind, int64_t row) -> double {
    switch (kind) {
      case 0:
        return static_cast<double>(row) / 8;  // each is the largest so far
      case 1:
        return row < 300 ? -1000 : 1000;  // nothing is left of the first half
      case 2:
        return row < 300 ? 1000 : -1000;  // nor, here, of the second
      case 3:
        return row < 300 ? -inf : -1000.0 + static_cast<double>(row) / 128;
      case 4:
        return row == 599 ? 0 : -inf;
      case 5:
        return -inf;
      case 6:
        return row == 301 ? nan : static_cast<double>(row % 7);
      case 7:
        return row == 0 ? nan : -inf;
      case 8:
        return row == 301 ? inf : static_cast<double>(row % 7);
      default:
        return -static_cast<double>(row % 13);
    }
  };
  for (const DType dtype : {float64, float32, bfloat16}) {
    for (const int64_t width : {1, 3, 20, 515}) {
      Elements x(dtype, {rows, width}), y(dtype, {rows, width}), expected(dtype, {rows, width});
      for (int64_t first = 0; first < 10; first += width < 10 ? width : 10) {
        x.fill([&](int64_t i) { return element((first + i % width) % 10, i / width); });
        for (const bool log : {false, true}) {
          table(false).softmax(y.view(), x.view(), 0, log);
          table(true).softmax(expected.view(), x.view(), 0, log);
          int64_t wrong = -1;
          for (int64_t i = 0; i < x.numel() && wrong < 0; ++i)
            if (!near(y[i], expected[i], 8 * epsilon(dtype) * (1 + std::abs(expected[i])))) wrong = i;
          CAPTURE(name_of(dtype));
          CAPTURE(width);
          CAPTURE(first);
          CAPTURE(log);
          CHECK(wrong == -1);
        }
      }
    }
  }
}

TEST_CASE("softmax: columns whose result is written past the caches, and the same in halves, which are not") {
  const Tensor x = rand({16384, 528});
  for (const bool log : {false, true}) {
    const auto half = [&](int64_t first) {
      const Tensor part = x.narrow(1, first, 264);
      return log ? log_softmax(part, 0) : softmax(part, 0);
    };
    const Tensor whole = log ? log_softmax(x, 0) : softmax(x, 0), halves = cat({half(0), half(264)}, 1);
    CHECK((whole / halves - 1).abs().max().item<double>() < 1e-6);
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
