// Copies between layouts: sizes on both sides of the squares that transpositions move; large results.
#include <doctest/doctest.h>

#include <array>

#include "autograd/ops.h"
#include "tensor/index.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

constexpr int64_t kSizes[] = {3, 70, 130};

/// The value at a position of the tensors here; all dtypes but bool tell neighbours apart.
double value_at(const std::array<int64_t, 3>& position) {
  return static_cast<double>((position[0] * 61 + position[1] * 7 + position[2]) % 127);
}

/// x.permute(dims), element by element in row-major order.
Values permuted(const std::array<int, 3>& dims, DType dtype) {
  Values result;
  std::array<int64_t, 3> at{};
  const auto size = [&](size_t i) { return kSizes[dims[i]]; };
  for (int64_t i = 0; i < size(0); ++i) {
    for (int64_t j = 0; j < size(1); ++j) {
      for (int64_t k = 0; k < size(2); ++k) {
        at[static_cast<size_t>(dims[0])] = i;
        at[static_cast<size_t>(dims[1])] = j;
        at[static_cast<size_t>(dims[2])] = k;
        result.push_back(dtype == bool_ ? value_at(at) != 0 : value_at(at));
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("copies: every order of dimensions, in every dtype") {
  for (const DType dtype : {float64, float32, float16, bfloat16, int64, int32, uint8, bool_}) {
    CAPTURE(name_of(dtype));
    const Tensor x = make(permuted({0, 1, 2}, dtype), {3, 70, 130}, dtype);
    for (const std::array<int, 3>& dims : {std::array{0, 2, 1}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}}) {
      const Tensor view = x.permute({dims[0], dims[1], dims[2]});
      CHECK(values(view.contiguous()) == permuted(dims, dtype));
      Tensor back = empty({3, 70, 130}, {.dtype = dtype, .device = test_device()});
      back.permute({dims[0], dims[1], dims[2]}).copy_(view.contiguous());
      CHECK(values(back) == values(x));
    }
    const DType other = dtype == float32 ? float64 : float32;
    CHECK(values(x.transpose(1, 2).to(other).contiguous()) == permuted({0, 2, 1}, dtype));
  }
}

TEST_CASE("copies: a part of a transposed tensor, and nothing beside it") {
  const Tensor x = make(permuted({0, 1, 2}, float32), {3, 70, 130}, float32)[1];
  const Tensor all = zeros({100, 150}, {.dtype = float32, .device = test_device()});
  Tensor part = all.narrow(0, 4, 66).narrow(1, 9, 70);
  part.copy_(x.narrow(1, 2, 66).t());
  double sum = 0;
  for (int64_t i = 0; i < 66; ++i) {
    for (int64_t j = 0; j < 70; ++j) sum += value_at({1, j, i + 2});
  }
  CHECK(part[65][3].item<double>() == value_at({1, 3, 67}));
  CHECK(part[0][69].item<double>() == value_at({1, 69, 2}));
  CHECK(part.sum().item<double>() == sum);
  CHECK(all.sum().item<double>() == sum);
  CHECK(make({}, {0, 3}).t().contiguous().numel() == 0);
}

TEST_CASE("copies, rows by position, pointwise ops: results so large that they are written past the caches") {
  const Device cpu("cpu");
  for (const Shape& shape : {Shape{4096, 2048}, Shape{3001, 2999}}) {  // of whole cache lines, and not
    CAPTURE(to_string(shape));
    // Most of them the bits of a float32 that is no number, and must stay.
    constexpr int32_t first = 0x7f800000 - 1'000'000;
    const Tensor x = (arange(shape.numel(), {.dtype = int32, .device = cpu}) + first).view(shape);
    const Tensor turned = x.t().contiguous();
    CHECK(all(eq(turned.t(), x)).item<bool>());
    CHECK(all(eq(x + 1, x.clone().add_(1))).item<bool>());  // in place is written as usual
    const Tensor last_first = shape[0] - 1 - arange(shape[0], {.device = cpu}),
                 upside_down = index_select(x, 0, last_first);
    CHECK(all(eq(upside_down[1], x[shape[0] - 2])).item<bool>());
    CHECK(all(eq(index_select(upside_down, 0, last_first), x)).item<bool>());
    const Tensor row = arange(shape[1], {.dtype = int32, .device = cpu});
    CHECK(all(eq((x + row) - row, x)).item<bool>());
    const Tensor real = (x - first).to(float32);  // whole numbers, all of which float32 has
    CHECK(all(eq(real.to(float64), x.to(float64) - first)).item<bool>());
    CHECK(all(eq(real * 2, real + real)).item<bool>());
    CHECK(all(eq((real * 2).to(int32), (x - first) * 2)).item<bool>());
  }
  const Tensor half = rand({5000, 4000}, {.dtype = float16, .device = cpu});
  CHECK(all(eq(half.t().contiguous().t(), half)).item<bool>());
}
