// Tensors as values: how they are made, viewed, joined, read and counted.
#include "tensor/tensor.h"

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "tensor/backend.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

const TensorOptions on_device{.device = test_device()};

}  // namespace

TEST_CASE("creation: values, default dtypes and options") {
  CHECK(zeros({2}).dtype() == float32);
  CHECK(full({2}, 1.5).dtype() == float32);
  CHECK(full({2}, 3).dtype() == int64);
  CHECK(full({2}, true).dtype() == bool_);
  CHECK(values(ones({3}, on_device)) == Values{1, 1, 1});
  CHECK(values(full({2, 1}, 7, {.dtype = uint8, .device = test_device()})) == Values{7, 7});
  CHECK(zeros({2}, {.requires_grad = true}).requires_grad());
  CHECK(zeros({2}, on_device).device() == test_device());
  CHECK(ones({}).item<double>() == 1);
  CHECK(zeros({0, 3}).numel() == 0);
  CHECK(empty({1, 2, 3, 4}, {.format = channels_last}).strides() == Shape{24, 1, 8, 2});
  CHECK(values(tensor({1.5, 2})) == Values{1.5, 2});
}

TEST_CASE("arange: half-open, with integers and floats as PyTorch has them") {
  CHECK(arange(3).dtype() == int64);
  CHECK(values(arange(3, on_device)) == Values{0, 1, 2});
  CHECK(values(arange(5, 0, -2, on_device)) == Values{5, 3, 1});
  CHECK(arange(0, 1, 0.25).dtype() == float32);
  CHECK(values(arange(0, 1, 0.25, on_device)) == Values{0, 0.25, 0.5, 0.75});
  CHECK(arange(0).numel() == 0);
  CHECK(arange(2.5).numel() == 3);
  CHECK_THROWS_AS(arange(1, 2, 0), Error);
  CHECK_THROWS_AS(arange(1, 2, -1), Error);
  CHECK_THROWS_AS(arange(0, NAN), Error);
}

TEST_CASE("creation refuses sizes that no memory has") {
  CHECK_THROWS_AS(empty({-1}), Error);
  CHECK_THROWS_AS(empty({int64_t{1} << 40, int64_t{1} << 40}), Error);  // the product is 0 modulo 2^64
  CHECK_THROWS_AS(empty({int64_t{1} << 62}), Error);
  CHECK_THROWS_AS(zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  CHECK_THROWS_AS(tensor({1, 2, 3}, Shape{2}), Error);
  CHECK(empty({0, int64_t{1} << 62, int64_t{1} << 62}).numel() == 0);
}

TEST_CASE("views share memory, with their own shape, strides and offset") {
  const Tensor x = make({0, 1, 2, 3, 4, 5}, {2, 3});
  CHECK(x.strides() == Shape{3, 1});
  CHECK(x.t().strides() == Shape{1, 3});
  CHECK_FALSE(x.t().is_contiguous());
  CHECK(values(x.t()) == Values{0, 3, 1, 4, 2, 5});
  CHECK(values(x.select(1, -1)) == Values{2, 5});
  CHECK(values(x[1]) == Values{3, 4, 5});
  CHECK(values(x.narrow(1, 1, 2)) == Values{1, 2, 4, 5});
  CHECK(values(x.narrow(1, 1, 0)) == Values{});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 1});
  CHECK(x.unsqueeze(0).squeeze(0).shape() == Shape{2, 3});
  CHECK(x.squeeze(0).shape() == Shape{2, 3});
  CHECK(x.flatten().shape() == Shape{6});
  CHECK(make({1}, Shape{}).flatten().shape() == Shape{1});
  CHECK(make(Values(24), Shape{2, 3, 4}).flatten(1).shape() == Shape{2, 12});
  CHECK(x.expand({4, -1, -1}).shape() == Shape{4, 2, 3});
  CHECK(x.transpose(0, -1).view_of_memory().data == x.view_of_memory().data);
  x[1].fill_(9);
  CHECK(values(x) == Values{0, 1, 2, 9, 9, 9});
}

TEST_CASE("split, chunk, unbind: views in the sizes that PyTorch cuts") {
  const auto sizes = [](const Tensors& pieces, int dim) {
    Values found;
    for (const Tensor& piece : pieces) found.push_back(static_cast<double>(piece.size(dim)));
    return found;
  };
  const Tensor x = make({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 5});
  CHECK(sizes(split(x, 2, 1), 1) == Values{2, 2, 1});
  CHECK(sizes(split(x, {1, 0, 4}, -1), 1) == Values{1, 0, 4});
  CHECK(sizes(chunk(x, 3, 1), 1) == Values{2, 2, 1});
  CHECK(sizes(chunk(x, 4, 1), 1) == Values{2, 2, 1});  // pieces of 2, so there are three
  CHECK(sizes(chunk(x, 9, 1), 1) == Values{1, 1, 1, 1, 1});
  CHECK(sizes(split(make({}, {0, 2}), 3), 0) == Values{0});
  CHECK(sizes(chunk(make({}, {0, 2}), 3), 0) == Values{0, 0, 0});
  CHECK(values(split(x, 2, 1)[1]) == Values{2, 3, 7, 8});
  CHECK(unbind(x, 1).size() == 5);
  CHECK(values(unbind(x, 1)[3]) == Values{3, 8});
  CHECK(values(unbind(x)[1]) == Values{5, 6, 7, 8, 9});
  unbind(x)[0].fill_(-1);
  CHECK(values(x.select(0, 0)) == Values{-1, -1, -1, -1, -1});
}

TEST_CASE("view: exactly where strides allow it; reshape copies elsewhere") {
  const Tensor x = make({0, 1, 2, 3, 4, 5}, {2, 3});
  CHECK(x.view({3, -1}).shape() == Shape{3, 2});
  CHECK(x.view({1, 2, 1, 3, 1}).view_of_memory().data == x.view_of_memory().data);
  CHECK_THROWS_WITH_AS(x.t().view({6}), doctest::Contains("use reshape"), Error);
  CHECK(values(x.t().reshape({6})) == Values{0, 3, 1, 4, 2, 5});
  CHECK(x.reshape({6}).view_of_memory().data == x.view_of_memory().data);
  CHECK(values(x.t().view({3, 1, 2, 1})) == Values{0, 3, 1, 4, 2, 5});  // a size of 1 may stand anywhere
  CHECK(x.narrow(1, 0, 2).view({2, 2, 1}).numel() == 4);
  CHECK_THROWS_AS(x.narrow(1, 0, 2).view({4}), Error);
  CHECK(make({1, 2}, {2, 1}).expand({2, 3}).reshape({6}).is_contiguous());
  CHECK_THROWS_AS(x.view({4, 2}), Error);
  CHECK_THROWS_AS(x.view({-1, -1}), Error);
  CHECK_THROWS_AS(x.view({-2, -3}), Error);
  CHECK_THROWS_AS(x.reshape({5, -1}), Error);
  CHECK_THROWS_AS(make({}).view({0, -1}), Error);
  CHECK_THROWS_AS(x.reshape({int64_t{1} << 40, int64_t{1} << 40}), Error);
}

TEST_CASE("views of a channels-last tensor keep its order of memory") {
  const Tensor x = arange(24, on_device).reshape({1, 2, 3, 4}).to(channels_last);
  CHECK(x.is_contiguous(channels_last));
  CHECK_FALSE(x.is_contiguous());
  CHECK(values(x) == values(arange(24)));
  CHECK(x.contiguous().is_contiguous());
  CHECK(x.clone().strides() == x.strides());
  CHECK(x.to(float16).strides() == x.strides());
  CHECK_THROWS_AS(make({1}).contiguous(channels_last), Error);
}

TEST_CASE("tensor: with one channel the strides say which format was asked for, in the same memory") {
  const Tensor x = make({1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 2, 2});
  const Tensor last = x.contiguous(channels_last);
  CHECK(last.view_of_memory().data == x.view_of_memory().data);
  CHECK(last.strides() == Shape{4, 1, 2, 1});
  CHECK(x.contiguous().strides() == x.strides());
  CHECK(close(last, x, 0));
  CHECK(conv2d(last, ones({3, 1, 1, 1}, {.dtype = float64, .device = test_device()})).strides() ==
        Shape{12, 1, 6, 3});
}

TEST_CASE("repeat, stack and cat") {
  const Tensor x = make({1, 2});
  CHECK(values(x.repeat({2, 2})) == Values{1, 2, 1, 2, 1, 2, 1, 2});
  CHECK(x.repeat({0}).shape() == Shape{0});
  CHECK(values(make({1, 2}, {2, 1}).repeat({1, 2})) == Values{1, 1, 2, 2});
  CHECK_THROWS_AS(make({1, 2}, {2, 1}).repeat({2}), Error);
  CHECK(values(stack({x, x * 3}, 0)) == Values{1, 2, 3, 6});
  CHECK(values(stack({x, x * 3}, -1)) == Values{1, 3, 2, 6});
  CHECK(stack({scalar(1), scalar(2)}).shape() == Shape{2});
  CHECK(values(cat({x, make({3})})) == Values{1, 2, 3});
  CHECK(cat({make({1}, float16), make({2}, float32)}).dtype() == float32);
  CHECK(stack({make({1}, int64), make({2}, float16)}).dtype() == float16);
  CHECK_THROWS_AS(cat(Inputs{}), Error);
  CHECK_THROWS_AS(stack({x, make({1})}), Error);
  CHECK_THROWS_AS(stack({x, x}, 3), Error);
  CHECK_THROWS_AS(cat({x, x}, 1), Error);
  CHECK_THROWS_AS(cat({x, make({1, 2}, {1, 2})}), Error);
}

TEST_CASE("reading elements") {
  const Tensor x = make({1.5, -2}, float16);
  CHECK(x[0].item<double>() == 1.5);
  CHECK(x[1].item<int64_t>() == -2);
  CHECK(make({1}, Shape{1, 1}, bool_).item<bool>());
  CHECK(static_cast<float>(x.cpu().t().data<Half>()[1]) == -2);
  CHECK_THROWS_WITH_AS(x.cpu().data<float>(), doctest::Contains("float16"), Error);
  CHECK_THROWS_AS(x.item<double>(), Error);
  CHECK_THROWS_AS(make({}).item<double>(), Error);
  CHECK_THROWS_AS(Tensor().shape(), Error);
  CHECK(make({1, 2, 3, 4}, {2, 2}, int32).t().to_vector<int64_t>() == std::vector<int64_t>{1, 3, 2, 4});
}

TEST_CASE("casts round to nearest even, and keep subnormals") {
  const auto cast = [](double value, DType dtype) {
    return make({value}, float32).to(dtype).to(float64).item<double>();
  };
  CHECK(cast(0.1, float16) == 0.0999755859375);
  CHECK(cast(1.0 / 3, float16) == 0.333251953125);
  CHECK(cast(2049, float16) == 2048);
  CHECK(cast(2051, float16) == 2052);
  CHECK(cast(1e-8, float16) == 0);
  CHECK(cast(6.1e-5, float16) == 6.097555160522461e-05);
  CHECK(cast(3e-8, float16) == 5.960464477539063e-08);
  CHECK(cast(0x1p-25, float16) == 0);  // a tie, to even
  CHECK(cast(65519.996, float16) == 65504);
  CHECK(cast(65520, float16) == INFINITY);
  CHECK(cast(0.1, bfloat16) == 0.10009765625);
  CHECK(cast(1.0 / 3, bfloat16) == 0.333984375);
  CHECK(cast(257, bfloat16) == 256);
  CHECK(cast(259, bfloat16) == 260);
  CHECK(cast(3.396e38, bfloat16) == 3.3895313892515355e38);
  CHECK(cast(3.4e38, bfloat16) == INFINITY);
  CHECK(cast(0x1p-133, bfloat16) == 0x1p-133);
  CHECK(cast(0x1p-134, bfloat16) == 0);
  // For each dtype: the largest value, the least normal and subnormal ones, and the step at 1.
  const struct {
    DType dtype;
    double largest, normal, subnormal, step;
  } limits[] = {{float16, 65504, 0x1p-14, 0x1p-24, 0x1p-10},
                {bfloat16, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7}};
  for (const auto& [dtype, largest, normal, subnormal, step] : limits) {
    CHECK(largest_of(dtype) == largest);
    for (double kept : {largest, normal, subnormal, 1 + step}) CHECK(cast(kept, dtype) == kept);
    CHECK(cast(largest * (1 + step / 2), dtype) == INFINITY);
    CHECK(cast(subnormal / 2, dtype) == 0);
    CHECK(cast(1 + step / 2, dtype) == 1);
  }
  CHECK(largest_of(float32) == std::numeric_limits<float>::max());
  CHECK(largest_of(float64) == std::numeric_limits<double>::max());
  CHECK(cast(2.7, int32) == 2);
  CHECK(cast(-2.7, int64) == -2);
  CHECK(cast(0.1, bool_) == 1);
}

TEST_CASE("sums and means of many small values") {
  const auto many = [](int64_t n, double value, DType dtype) {
    return full({n}, value, {.dtype = dtype, .device = test_device()});
  };
  CHECK(many(10'000, 1, float16).sum().item<double>() == 10'000);
  CHECK(matmul(many(4096, 1, float16), many(4096, 1, float16)).item<double>() == 4096);
  CHECK(many(100'000, 1, float16).mean().item<double>() == 1);
  CHECK(many(65'520, 1, float16).mean().item<double>() == 1);
  CHECK(many(3, 40'000, float16).mean().item<double>() == 40'000);
  CHECK(many(100'000, 1, bfloat16).mean().item<double>() == 1);
  CHECK(many(300, 1, uint8).sum().item<int64_t>() == 300);
  CHECK(many(300, 1, bool_).sum().dtype() == int64);
}

TEST_CASE("versions count changes of memory") {
  Tensor x = make({1, 2, 3, 4}, {2, 2});
  CHECK(x.version() == 0);
  x += 1;
  x.t().mul_(2);
  x[0].zero_();
  x.copy_(make({1, 2}));
  x.uniform_();
  CHECK(x.version() == 5);
  CHECK((x + 1).version() == 0);
  CHECK(x.clone().version() == 0);
  const Tensor same = x.to(float64).contiguous().detach();
  CHECK(same.version() == 5);
}

TEST_CASE("memory: a second round of the same work asks the system for nothing") {
  if (!caches_memory()) return skip("memory is not cached");
  const Tensor weight = leaf(Values(64, 0.5), {8, 8}, float32);
  const auto step = [&] {
    const Tensor x = rand({32, 8}, {.device = test_device()});
    Tensor loss = relu(x.matmul(weight)).square().mean();
    loss.backward();
  };
  step();
  step();
  const MemoryStats before = memory_stats(test_device());
  reset_peak_memory(test_device());
  for (int i = 0; i < 10; ++i) step();
  const MemoryStats after = memory_stats(test_device());
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.live == before.live);
  CHECK(after.peak > after.live);
  CHECK(after.cached > 0);
  empty_cache(test_device());
  if (!in_host_memory(test_device())) return;  // what is used holds on to the rest of its segment
  CHECK(memory_stats(test_device()).cached == 0);
  step();
  CHECK(memory_stats(test_device()).system_allocations > before.system_allocations);
}
