// Making tensors: values as PyTorch gives them, memory of others, random integers.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>

#include "autograd/ops.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

TensorOptions options(DType dtype = float64) { return {.dtype = dtype, .device = test_device()}; }

}  // namespace

TEST_CASE("linspace: both ends are exact, and the middle is mirrored") {
  CHECK(values(linspace(0, 1, 5, options())) == Values{0, 0.25, 0.5, 0.75, 1});
  CHECK(values(linspace(3, -3, 4, options())) == Values{3, 1, -1, -3});
  CHECK(values(linspace(2, 7, 1, options())) == Values{2});
  CHECK(values(linspace(2, 7, 0, options())) == Values{});
  CHECK(linspace(0, 1, 2).dtype() == float32);
  const Values tenths = values(linspace(0, 0.3, 11, options()));
  CHECK(tenths.back() == 0.3);
  for (size_t i = 0; i < tenths.size(); ++i)
    CHECK(std::abs(tenths[i] - 0.03 * static_cast<double>(i)) < 1e-16);
  CHECK(error_text([] { linspace(0, 1, -1); }) == "linspace: steps = -1 is negative");
}

TEST_CASE("eye: ones on the diagonal") {
  CHECK(values(eye(2, options())) == Values{1, 0, 0, 1});
  CHECK(values(eye(2, 3, options(float16))) == Values{1, 0, 0, 0, 1, 0});
  CHECK(values(eye(3, 1, options(int64))) == Values{1, 0, 0});
  CHECK(eye(0, options()).shape() == Shape{0, 0});
  CHECK(eye(2, {.requires_grad = true}).requires_grad());
  CHECK(error_text([] { eye(-1); }).starts_with("empty: size -1 is negative"));
}

TEST_CASE("the _like forms: shape, device and layout of another tensor, its dtype or a given one") {
  const Tensor like =
      empty({2, 3, 4, 5}, {.dtype = float16, .device = test_device(), .format = channels_last});
  for (const Tensor& x :
       {zeros_like(like), ones_like(like), full_like(like, 3), rand_like(like), randn_like(like)}) {
    CHECK(x.strides() == like.strides());
    CHECK(x.dtype() == float16);
    CHECK(x.device() == test_device());
  }
  CHECK(zeros_like(like, float32).dtype() == float32);
  CHECK(sum(ones_like(like, int64)).item<int64_t>() == 120);
  CHECK(sum(full_like(like, 2.5, float64)).item<double>() == 300);
  CHECK(zeros_like(scalar(1)).shape() == Shape{});
  manual_seed(test_seed());
  const Tensor a = rand_like(like, float32);
  manual_seed(test_seed());
  // The stream follows the order of the elements, not that of memory.
  CHECK(values(a) == values(rand(like.shape(), options(float32))));
}

TEST_CASE("randint: every integer of the range about equally often, none outside") {
  manual_seed(test_seed());
  const Values drawn = values(randint(-2, 3, {1000, 10}, options(int64)));
  std::array<int, 5> counts{};
  for (double x : drawn) {
    REQUIRE(x >= -2);
    REQUIRE(x <= 2);
    ++counts[static_cast<size_t>(x + 2)];
  }
  // Binomial, n = 10,000, p = 1/5: standard deviation 40.
  for (int count : counts) CHECK(std::abs(count - 2000) < 5 * 40);
  CHECK(randint(7, {3}).dtype() == int64);
  CHECK(randint(7, {3}, options(float32)).dtype() == float32);
  CHECK(values(randint(41, 42, {3}, options(uint8))) == Values{41, 41, 41});
  CHECK(error_text([] { randint(3, 3, {2}); }).starts_with("randint: the range [3, 3) is empty"));
  CHECK(error_text([] { randint(INT64_MIN, INT64_MAX, {2}); }).starts_with("randint: "));
}

TEST_CASE("randperm: each number once, each order about equally often") {
  manual_seed(test_seed());
  Values order = values(randperm(1000, options(int64)));
  CHECK(!std::ranges::is_sorted(order));
  std::ranges::sort(order);
  CHECK(order == values(arange(1000)));
  std::array<int, 6> counts{};
  for (int i = 0; i < 6000; ++i) {
    const Values three = values(randperm(3));
    ++counts[static_cast<size_t>(three[0] * 2 + (three[1] > three[2] ? 1 : 0))];
  }
  for (int count : counts)
    CHECK(std::abs(count - 1000) < 5 * 29);  // standard deviation sqrt(6000 / 6 * 5 / 6)
  Generator generator(7);
  manual_seed(7);
  const Tensor given = randperm(50, generator);
  CHECK(default_generator().offset() == 0);
  CHECK(values(given) == values(randperm(50)));
  CHECK(generator.offset() == default_generator().offset());
  CHECK(randperm(0).numel() == 0);
  CHECK(values(randperm(1)) == Values{0});
  CHECK(error_text([] { randperm(-1); }) == "randperm: n = -1 is negative");
}

TEST_CASE("from_blob: the memory of others, kept alive and not copied") {
  std::array<float, 6> memory{0, 1, 2, 3, 4, 5};
  const Blob blob{memory.data(), sizeof memory};
  Tensor x = from_blob(blob, {2, 3});
  CHECK(values(x) == Values{0, 1, 2, 3, 4, 5});
  x.add_(1);
  CHECK(memory[5] == 6);
  CHECK(values(from_blob(blob, {2, 2}, {1, 3})) == Values{1, 4, 2, 5});
  CHECK(values(from_blob(blob, {2, 2}, Shape{0, 5})) == Values{1, 6, 1, 6});
  CHECK(values(from_blob({memory.data() + 1, 4}, {})) == Values{2});
  CHECK(from_blob({nullptr, 0}, {0, 3}).numel() == 0);

  auto owner = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{7, 8});
  const std::weak_ptr<std::vector<int32_t>> alive = owner;
  const size_t live = memory_stats().live;
  Tensor part = from_blob({owner->data(), 8, owner}, {2}, {.dtype = int32})[1];
  CHECK(memory_stats().live == live);  // what others own is not counted
  owner.reset();
  CHECK(part.item<int>() == 8);
  part = Tensor();
  CHECK(alive.expired());
}

TEST_CASE("from_blob: what leaves the memory is refused") {
  alignas(8) std::array<float, 6> memory{};
  const Blob blob{memory.data(), sizeof memory};
  const auto refused = [&](std::string_view fact, const std::function<void()>& f) {
    CAPTURE(fact);
    CHECK(error_text(f).find(fact) != std::string::npos);
  };
  refused("from_blob: shape [7] with strides [1] needs 7 elements of float32, but the memory holds 6",
          [&] { from_blob(blob, {7}); });
  refused("needs 4 elements of float64, but the memory holds 3",
          [&] { from_blob(blob, {4}, {.dtype = float64}); });
  refused("needs 8 elements", [&] { from_blob(blob, {2, 2}, {1, 6}); });
  refused("strides [-1] are negative", [&] { from_blob(blob, {2}, Shape{-1}); });
  refused("are negative or too large", [&] { from_blob(blob, {3, 3}, {INT64_MAX / 2, INT64_MAX / 2 + 1}); });
  refused("strides [1] do not belong to shape [2, 3]", [&] { from_blob(blob, {2, 3}, Shape{1}); });
  refused("size -1 is negative", [&] { from_blob(blob, {-1}); });
  refused("holds 0", [&] { from_blob({nullptr, 24}, {1}); });
  refused("not aligned for float64", [&] { from_blob({memory.data() + 1, 16}, {1}, {.dtype = float64}); });
}
