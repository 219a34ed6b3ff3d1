// CUDA kernels beside the reference ones: reductions and softmax.
#include <limits>
#include <optional>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

// --- reductions

DType result_of(Reduction reduction, DType in) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::mean:
      return is_floating(in) ? in : reduction == Reduction::sum ? int64 : float32;
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

bool reduces(Reduction reduction, const Array& in, const Shape& kept, Layout out_layout = Layout::row_major,
             std::optional<DType> result = {}) {
  const DType dtype = result.value_or(result_of(reduction, in.host().dtype));
  const Array out = array_of(dtype, kept, out_layout);
  const View to = out.to_device();
  device_table().reduce[static_cast<size_t>(reduction)](to, in.to_device());
  reference_table().reduce[static_cast<size_t>(reduction)](out.host(), in.host());
  const bool adds = reduction == Reduction::sum || reduction == Reduction::mean;
  return out.agrees(adds ? 4 * std::max(precision_of(dtype), precision_of(in.host().dtype) / 64) : 0);
}

struct Reduced {
  Shape shape, kept;
};

}  // namespace

TEST_CASE("reductions: every dtype, layout and set of dimensions") {
  Numbers numbers(1);
  const Reduced cases[] = {
      {{}, {}},                      // one element
      {{7}, {1}},                    // a few
      {{1003}, {1}},                 // a run and a tail
      {{40, 33}, {40, 1}},           // short lines
      {{40, 33}, {1, 33}},           // columns
      {{3, 5, 64}, {3, 1, 64}},      // columns of several matrices
      {{3, 5, 64}, {1, 5, 1}},       // channels
      {{2, 3, 4, 5}, {2, 1, 4, 1}},  // scattered
      {{300, 2}, {300, 1}},          // two elements each
      {{2, 300}, {2, 300}},          // nothing to do
      {{0, 3}, {0, 1}},              // no lines
  };
  for (const Reduced& c : cases) {
    const Shape &shape = c.shape, &kept = c.kept;
    for (const DType dtype : kAll) {
      for (const Layout layout : kLayouts) {
        Array in = array_of(dtype, shape, layout);
        in.fill([&](int64_t) { return numbers.of(dtype); });
        for (int r = 0; r < kReductions; ++r) {
          const auto reduction = static_cast<Reduction>(r);
          CAPTURE(to_string(shape));
          CAPTURE(to_string(kept));
          CAPTURE(name_of(dtype));
          CAPTURE(static_cast<int>(layout));
          CAPTURE(r);
          int dims = 0;
          for (int d = 0; d < shape.dim(); ++d) dims += shape[d] != kept[d];
          if (reduction >= Reduction::argmax && dims > 1) continue;
          CHECK(reduces(reduction, in, kept, layout == Layout::permuted ? layout : Layout::row_major));
        }
      }
    }
  }
}

TEST_CASE("reductions: long lines are shared by blocks, along and across") {
  Numbers numbers(2);
  const Reduced cases[] = {{{200'003}, {1}},
                           {{3, 70'001}, {3, 1}},
                           {{40'000, 5}, {1, 5}},
                           {{20'000, 24}, {1, 24}},
                           {{40, 20'000}, {1, 20'000}},
                           {{64, 8, 200}, {1, 8, 1}},
                           {{8, 16, 24, 24}, {1, 16, 1, 1}}};
  for (const Reduced& c : cases) {
    const Shape &shape = c.shape, &kept = c.kept;
    for (const DType dtype : {float64, float32, float16, bfloat16, int32}) {
      for (const Layout layout : {Layout::row_major, Layout::permuted}) {
        CAPTURE(to_string(shape));
        CAPTURE(name_of(dtype));
        CAPTURE(static_cast<int>(layout));
        Array in = array_of(dtype, shape, layout);
        in.fill([&](int64_t) { return numbers.of(dtype); });
        CHECK(reduces(Reduction::sum, in, kept, Layout::row_major,
                      is_half(dtype) ? std::optional(float32) : std::nullopt));
        CHECK(reduces(Reduction::mean, in, kept));
        CHECK(reduces(Reduction::amax, in, kept));
        if (shape.dim() < 3) CHECK(reduces(Reduction::argmin, in, kept));
      }
    }
  }
}

TEST_CASE("reductions: the empty, the infinite and NaN; the first of equals") {
  for (const DType dtype : kAll) {
    const Array nothing(dtype, {3, 0});
    for (const Reduction r : {Reduction::sum, Reduction::mean, Reduction::any, Reduction::all})
      CHECK(reduces(r, nothing, {3, 1}));
  }
  for (const DType dtype : kFloating) {
    for (const int64_t width : {8, 5}) {
      for (const double special : {inf - inf, inf, -inf}) {
        for (int64_t at = 0; at < width * 40; at += 53) {
          Array in(dtype, {40, width});
          in.fill([&](int64_t i) { return i >= at && i % 3 == at % 3 ? special : -inf; });
          for (int r = 0; r < kReductions; ++r) {
            CAPTURE(r);
            CAPTURE(at);
            CAPTURE(special);
            CHECK(reduces(static_cast<Reduction>(r), in, {40, 1}));
            CHECK(reduces(static_cast<Reduction>(r), in, {1, width}));
          }
        }
      }
    }
  }
  Array equal(int64, {2, 5000});
  equal.fill([](int64_t i) { return i % 1700 == 1600 ? 5 : 1; });
  for (const Reduction r : {Reduction::argmax, Reduction::argmin}) {
    CHECK(reduces(r, equal, {2, 1}));
    CHECK(reduces(r, equal, {1, 5000}));
  }
}

// --- softmax

namespace {

struct Line {
  Shape shape;
  int dim;
};

/// Both directions, in these dtypes of input and result.
void check_softmax(const Array& in, int dim, DType result, Layout out_layout, Numbers& numbers) {
  const DType dtype = in.host().dtype;
  const double tolerance = std::max(precision_of(result), precision_of(dtype == float64 ? float64 : float32));
  for (const bool log : {false, true}) {
    CAPTURE(log);
    const Array out = array_of(result, in.shape(), out_layout);
    const View to = out.to_device();
    device_table().softmax(to, in.to_device(), dim, log);
    reference_table().softmax(out.host(), in.host(), dim, log);
    CHECK(out.agrees(2 * tolerance));

    Array g = array_of(result, in.shape(), out_layout);
    g.fill([&](int64_t) { return numbers.of(result); });
    const Array grad = array_of(dtype, in.shape(), out_layout);
    const View grad_to = grad.to_device();
    device_table().softmax_grad(grad_to, g.to_device(), out.to_device(), dim, log);
    reference_table().softmax_grad(grad.host(), g.host(), out.host(), dim, log);
    CHECK(grad.agrees(8 * std::max(precision_of(dtype), tolerance)));
  }
}

}  // namespace

TEST_CASE("softmax: dtypes, layouts and lengths") {
  Numbers numbers(3);
  const Line cases[] = {{{}, 0},        {{1}, 0},          {{5, 8}, 1},      {{5, 8}, 0},   {{3, 64}, 1},
                        {{64, 3}, 0},   {{3, 5, 40}, 1},   {{2, 3, 33}, 2},  {{300, 8}, 0}, {{7, 1000}, 1},
                        {{2, 0, 3}, 1}, {{2, 3, 4, 5}, 2}, {{2, 8, 4, 4}, 1}};
  for (const Line& c : cases) {
    const Shape& shape = c.shape;
    const int dim = c.dim;
    for (const DType dtype : kFloating) {
      for (const DType result : kFloating) {
        if (dtype != result && dim != 1) continue;
        for (const Layout layout : kLayouts) {
          CAPTURE(to_string(shape));
          CAPTURE(dim);
          CAPTURE(name_of(dtype));
          CAPTURE(name_of(result));
          CAPTURE(static_cast<int>(layout));
          Array in = array_of(dtype, shape, layout);
          in.fill([&](int64_t) { return 3 * numbers.of(dtype); });
          check_softmax(in, dim, result, layout == Layout::expanded ? Layout::row_major : layout, numbers);
        }
      }
    }
  }
}

TEST_CASE("softmax: lines longer than registers") {
  Numbers numbers(4);
  for (const Line& c : {Line{{2, 9000}, 1}, Line{{2, 9001}, 1}, Line{{1100, 40}, 0}}) {
    const Shape& shape = c.shape;
    const int dim = c.dim;
    for (const DType dtype : kFloating) {
      CAPTURE(to_string(shape));
      CAPTURE(name_of(dtype));
      Array in(dtype, shape);
      in.fill([&](int64_t) { return 3 * numbers.of(dtype); });
      check_softmax(in, dim, dtype, Layout::row_major, numbers);
      if (is_half(dtype)) check_softmax(in, dim, float32, Layout::row_major, numbers);
    }
  }
}

TEST_CASE("softmax: infinity and NaN") {
  Numbers numbers(5);
  for (const int64_t length : {4, 40, 9000}) {
    for (const double special : {inf, -inf, inf - inf}) {
      for (const int64_t count : {int64_t{1}, length / 2, length}) {
        CAPTURE(length);
        CAPTURE(special);
        CAPTURE(count);
        Array in(float32, {2, length});
        in.fill(
            [&](int64_t i) { return i < count || i >= 2 * length - count ? special : numbers.real(-1, 1); });
        check_softmax(in, 1, float32, Layout::row_major, numbers);
      }
    }
  }
}
