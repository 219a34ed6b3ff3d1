// Copies between layouts: sizes on both sides of the squares that transpositions move.
#include <doctest/doctest.h>

#include <array>

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
