// Type promotion at its corners: what values become, what is refused. (The table of dtypes is compared with
// PyTorch's in golden_ops_test.cpp.)
#include <doctest/doctest.h>

#include <limits>

#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("promotion: joining and choosing take the wider dtype") {
  const Tensor half = make({1, 2}, float16), single = make({3, 4}, float32), whole = make({5, 6}, int64);
  CHECK(cat({half, single}).dtype() == float32);
  CHECK(stack({whole, half}).dtype() == float16);
  CHECK(values(stack({whole, half})) == Values{5, 6, 1, 2});
  const Tensor condition = make({1, 0}, bool_);
  CHECK(where(condition, half, single).dtype() == float32);
  CHECK(where(condition, half, scalar(2.5, float32)).dtype() == float16);
  CHECK(where(condition, half, 2.5).dtype() == float16);
  CHECK(where(condition, whole, 2.5).dtype() == float32);
  CHECK(lerp(half, half, 0.5).dtype() == float16);
  CHECK(maximum(half, make({0, 0}, bfloat16)).dtype() == float32);
}

TEST_CASE("promotion: numbers and 0-d tensors give way, and their values go through the tensor's dtype") {
  const Tensor half = make({1, 2}, float16), byte = make({1, 2}, uint8);
  CHECK(values(half * 1e10) == Values(2, std::numeric_limits<double>::infinity()));
  CHECK((half * 1e10).dtype() == float16);
  CHECK(values(byte + 300) == Values{45, 46});
  CHECK((byte + scalar(300, int64)).dtype() == uint8);
  CHECK((make({1}, bool_) + 1).dtype() == int64);
  CHECK((make({1}, bool_) + Tensor(true)).dtype() == bool_);
  CHECK((scalar(1, float16) + 1.5).dtype() == float16);
  CHECK((scalar(1, int64) + 1.5).dtype() == float32);
  CHECK((scalar(1, float16) + make({1}, int64)).dtype() == float16);
  CHECK((make({1}, float16) + make({1, 2, 3, 4}, {2, 2}, float32)).dtype() == float32);
  // One element in one dimension is a tensor like others; a 0-d float32 factor of a float16 tensor stays
  // float32 while they are multiplied: 0.01 in float16 is 0.010002...
  CHECK((make({0.01}, float16) * scalar(65536, float32)).item<double>() == 655.5);
}

TEST_CASE("promotion: division is true, other arithmetic keeps integers") {
  const Tensor a = make({7, -7}, int32), b = make({2, 2}, int32);
  CHECK((a / b).dtype() == float32);
  CHECK(values(a / b) == Values{3.5, -3.5});
  CHECK(a.floor_divide(b).dtype() == int32);
  CHECK(values(a.floor_divide(b)) == Values{3, -4});
  CHECK(exp(a).dtype() == float32);
  CHECK(values(make({1, -2}, int64) + make({3, 4}, int64)) == Values{4, 2});
  CHECK(values(make({0.5}, float16) + make({0.25}, float32)) == Values{0.75});
  CHECK(sum(make({1, 1}, bool_)).dtype() == int64);
  CHECK(prod(make({200, 2}, uint8)).item<int64_t>() == 400);
}

TEST_CASE("promotion: in place the tensor's dtype stays, and its kind may not fall") {
  Tensor half = make({1}, float16), byte = make({250}, uint8), whole = make({1}, int32),
         flag = make({1}, bool_);
  CHECK(half.add_(make({0.5}, float32)).dtype() == float16);
  CHECK(values(byte.add_(make({10}, int64))) == Values{4});
  CHECK(error_text([&] {
          whole.add_(1.5);
        }).starts_with("add_: the result is float32 and cannot be kept in int32; "));
  CHECK(error_text([&] {
          flag.add_(1);
        }).starts_with("add_: the result is int64 and cannot be kept in bool; "));
  CHECK(values(whole) == Values{1});
  CHECK(values(flag) == Values{1});
}

TEST_CASE("promotion: products mix no dtypes, and bool has no difference") {
  const Tensor half = make({1, 2, 3, 4}, {2, 2}, float16), single = make({1, 2, 3, 4}, {2, 2}, float32);
  CHECK(error_text([&] { matmul(half, single); }).starts_with("matmul: b is float32 but a is float16; "));
  CHECK(error_text([&] { addmm(single, half, half); }).starts_with("addmm: a is float16 but c is float32; "));
  CHECK(error_text([&] { linear(half, single); }).starts_with("linear: "));
  const Tensor flag = make({1}, bool_);
  CHECK(error_text([&] { flag - flag; }).starts_with("sub: "));
  CHECK(error_text([&] { -flag; }).starts_with("neg: "));
}

TEST_CASE("half and bfloat16: to their dtypes, with a gradient in one's own") {
  const Tensor x = leaf({1, 2}, float32);
  CHECK(x.half().dtype() == float16);
  CHECK(x.bfloat16().dtype() == bfloat16);
  x.half().sum().backward();
  CHECK(x.grad().dtype() == float32);
  CHECK(values(x.grad()) == Values{1, 1});
}
