// x.index({...}) and x[i]: what they give, what assigning to them writes, what they refuse.
#include "tensor/index.h"

#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// 0, 1, 2, ... in the given shape.
Tensor counting(const Shape& shape) {
  return arange(shape.numel(), {.dtype = float64, .device = test_device()}).reshape(shape);
}
Tensor positions(const Values& at) { return make(at, int64); }
Tensor positions(const Values& at, const Shape& shape) { return make(at, shape, int64); }
bool is_part_of(const Tensor& part, const Tensor& x) {
  return part.view_of_memory().data >= x.view_of_memory().data && part.version() == x.version();
}

}  // namespace

TEST_CASE("index: integers and ranges give views") {
  const Tensor x = counting({4, 6});
  CHECK(values(x[2]) == Values{12, 13, 14, 15, 16, 17});
  CHECK(values(x[-1]) == values(x[3]));
  CHECK(values(x.index({1, 2})) == Values{8});
  CHECK(x.index({1, 2}).dim() == 0);
  CHECK(values(x.index({Slice(1, 3), Slice(None, None, 4)})) == Values{6, 10, 12, 16});
  CHECK(values(x.index({Slice(-2, None), 0})) == Values{12, 18});
  CHECK(values(x.index({0, Slice(1, -1, 2)})) == Values{1, 3});
  CHECK(values(x.index({0, Slice(2)})) == Values{2, 3, 4, 5});
  CHECK(x.index({Slice(3, 1)}).shape() == Shape{0, 6});
  CHECK(x.index({Slice(2, 100)}).shape() == Shape{2, 6});
  CHECK(values(x.index({"...", 5})) == Values{5, 11, 17, 23});
  CHECK(values(x.index({Ellipsis, Slice(0, 1), 5, None})) == Values{5});
  CHECK(x.index({None, Ellipsis, None}).shape() == Shape{1, 4, 6, 1});
  CHECK(x.index({}).shape() == x.shape());
  CHECK(is_part_of(x.index({Slice(1, 3), 2}), x));
  CHECK(values(x.slice(1, -6, -1, 4).select(0, 1)) == Values{6, 10});
}

TEST_CASE("index: tensors of positions, beside each other, apart, broadcast, negative") {
  const Tensor x = counting({2, 3, 4});
  CHECK(values(x.index({positions({1, 0, 1}), 0, 0})) == Values{12, 0, 12});
  CHECK(values(x.index({Ellipsis, positions({-1, 0}, {2, 1})}).select(0, 1).select(0, 2)) == Values{23, 20});
  CHECK(x.index({Ellipsis, positions({-1, 0}, {2, 1})}).shape() == Shape{2, 3, 2, 1});
  CHECK(values(x.index({positions({0, 1}), positions({2, -3})})) == Values{8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(values(x.index({Slice(), positions({0, 2}), positions({3, 3})})) == Values{3, 11, 15, 23});
  // Apart: the indexed dimensions lead.
  const Tensor apart = x.index({positions({0, 1, 1}), Slice(), positions({3, 0, 1})});
  CHECK(apart.shape() == Shape{3, 3});
  CHECK(values(apart) == Values{3, 7, 11, 12, 16, 20, 13, 17, 21});
  CHECK(values(x.index({positions({1, 0}, {2, 1}), positions({0, 2}), 1})) == Values{13, 21, 1, 9});
  CHECK(values(x.index({0, positions({1}), Slice(1, 3)})) == Values{5, 6});
  CHECK(x.index({positions({})}).shape() == Shape{0, 3, 4});
  CHECK(x.to(bfloat16).index({positions({1})}).dtype() == bfloat16);
}

TEST_CASE("index: masks") {
  const Tensor x = counting({2, 3});
  CHECK(values(x.index({x > 2.5})) == Values{3, 4, 5});
  CHECK(values(x.index({Ellipsis, make({1, 0, 1}, bool_)})) == Values{0, 2, 3, 5});
  CHECK(values(x.index({make({0, 1}, bool_), Slice(1, None)})) == Values{4, 5});
  CHECK(x.index({x < 0}).shape() == Shape{0});
  CHECK(values(nonzero(x.gt(2))) == Values{1, 0, 1, 1, 1, 2});
  CHECK(x.gt(7).nonzero().shape() == Shape{0, 2});
  CHECK(scalar(3).nonzero().shape() == Shape{1, 0});
}

TEST_CASE("index: a 0-d mask takes all or nothing, in a new dimension") {
  const Tensor yes = scalar(1) > 0, no = scalar(1) < 0;
  Tensor x = counting({3}), loss = scalar(3);
  CHECK(x.index({no}).shape() == Shape{0, 3});
  CHECK(x.index({yes}).shape() == Shape{1, 3});
  CHECK(x.index({Slice(1, None), yes}).shape() == Shape{2, 1});
  loss.index({loss.isnan()}) = 0;
  x.index({no}) = 7;
  CHECK(values(loss) == Values{3});
  CHECK(values(x) == Values{0, 1, 2});
  x.index({yes}) = 7;
  CHECK(values(x) == Values{7, 7, 7});
}

TEST_CASE("index: assignment writes to the tensor") {
  Tensor x = counting({3, 4});
  const uint32_t version = x.version();
  x[0] = 7;
  CHECK(x.version() == version + 1);
  CHECK(values(x[0]) == Values{7, 7, 7, 7});
  x.index({Slice(1, None), 0}) = make({-1, -2});
  CHECK(values(x.index({Ellipsis, 0})) == Values{7, -1, -2});
  x.index({positions({2, 1}), positions({3, 3})}) = make({30, 20});
  CHECK(values(x.index({Ellipsis, 3})) == Values{7, 20, 30});
  x.index({x > 6.5}) = 0;
  CHECK(values(x) == Values{0, 0, 0, 0, -1, 5, 6, 0, -2, 0, 0, 0});
  x[1] = x[2];
  CHECK(values(x[1]) == Values{-2, 0, 0, 0});
  x.index({positions({0}), Slice(None, None, 2)}) =
      make({8, 9}, {1, 1, 2});  // leading ones have no place: dropped
  CHECK(values(x[0]) == Values{8, 0, 9, 0});
  x.index({1, positions({0, 0})}) += 1;  // reads, then writes, as Python's +=
  x[2] *= 3;
  CHECK(values(x) == Values{8, 0, 9, 0, -1, 0, 0, 0, -6, 0, 0, 0});
  // Apart, through a copy and back; in a transposed tensor.
  Tensor y = counting({3, 2, 2}).transpose(0, 1);
  y.index({positions({0, 1}), Slice(), positions({1, 0})}) = -1;
  CHECK(values(y) == Values{0, -1, 4, -1, 8, -1, -1, 3, -1, 7, -1, 11});
}

TEST_CASE("index: a variable that holds what indexing gave is a handle like any other") {
  const Tensor x = counting({2, 2});
  auto row = x[0];
  row = make({5, 6});
  row = x[1];
  row = relu(row);
  auto picked = x.index({positions({0})});
  picked += 100;
  CHECK(values(picked) == Values{100, 101});
  CHECK(values(x) == Values{0, 1, 2, 3});
  CHECK(values(row) == Values{2, 3});
}

TEST_CASE("index_put_: accumulates once for each time that a position occurs") {
  Tensor x = zeros({3, 2}, {.dtype = float16, .device = test_device()});
  x.index_put_({positions({1, 1, 2})}, 1.5, true);
  CHECK(values(x) == Values{0, 0, 3, 3, 1.5, 1.5});
  x.index_put_({1}, make({1, 2}, float16), true);
  CHECK(values(x[1]) == Values{4, 5});
  x.index_put_({positions({0, 0})}, make({1, 2, 3, 4}, {2, 2}, float16));  // the last stays
  CHECK(values(x[0]) == Values{3, 4});
}

TEST_CASE("index: gradients pass through, also to what is assigned") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  (x.index({Ellipsis, positions({2, 2, 0})}) * make({1, 2, 3})).sum().backward();
  CHECK(values(x.grad()) == Values{3, 0, 3, 3, 0, 3});
  const Tensor y = leaf({1, 2, 3});
  (y.slice(0, 0, 3, 2) * make({5, 7})).sum().backward();
  CHECK(values(y.grad()) == Values{5, 0, 7});

  const Tensor put = leaf({10, 20});
  Tensor target = make({1, 2, 3}) * leaf({1, 1, 1});
  const Tensor before = target;
  target.index_put_({positions({2, 0})}, put);
  CHECK(values(target) == Values{20, 2, 10});
  (target * make({1, 2, 3})).sum().backward();
  CHECK(values(put.grad()) == Values{3, 1});
}

TEST_CASE("index: what is refused, and then nothing has changed") {
  Tensor x = counting({2, 3});
  const auto refused = [&](std::string_view start, const std::function<void()>& f) {
    CAPTURE(start);
    CHECK(error_text(f).starts_with(start));
  };
  refused("select: index 2 is out of range for dimension 0 of size 2; ", [&] { x[2]; });
  refused("select: index -3 is out of range", [&] { x[-3] = 1; });
  refused("index: there are indices for 3 dimensions, but the input has 2; ", [&] { x.index({0, 0, 0}); });
  refused("index: there are several ellipses; ", [&] { x.index({Ellipsis, Ellipsis}); });
  refused("index: index 3 at [1] is outside [-3, 3); ", [&] { x.index({Slice(), positions({0, 3})}); });
  refused("index: index -3 at [0] is outside [-2, 2); ", [&] { x.index({positions({-3})}) = 1; });
  refused("index_put_: index 2 at [1] is outside [-2, 2); ", [&] { x.index_put_({positions({0, 2})}, 1); });
  refused("index: an index tensor must be int64 or int32, or a bool mask; ", [&] { x.index({make({0.5})}); });
  refused("index: an index tensor must be int64 or int32", [&] { x.index({make({1}, uint8)}); });
  refused("index: an index tensor is undefined", [&] { x.index({Tensor()}); });
  refused("index: the mask does not fit the dimensions from 0 on; ", [&] {
    x.index({make({1, 0, 1}, bool_)});
  });
  refused("index: the index tensors do not broadcast to one shape; ", [&] {
    x.index({positions({0, 1}), positions({0, 1, 2})});
  });
  refused("index: \"..\" is no index; \"...\" is one", [&] { x.index({".."}); });
  refused("slice: step = 0 is not positive; ", [&] { x.index({Slice(None, None, 0)}); });
  refused("index_put_: the value does not broadcast to [2, 3]; ", [&] {
    x.index({positions({0, 1})}) = make({1, 2});
  });
  refused("copy_: the source does not broadcast", [&] { x[0] = make({1, 2}); });
  refused("index_put_: the value is undefined", [&] { x[0] = Tensor(); });
  refused("slice: a 0-d tensor has no dimension", [&] { scalar(1).slice(0); });
  const Tensor weight = leaf({1, 2});
  refused("copy_: a leaf that requires grad", [&] { Tensor(weight).index_put_({positions({0})}, 1); });
  refused("copy_: ", [&] { weight[0] = 1; });
  CHECK(values(x) == Values{0, 1, 2, 3, 4, 5});
  CHECK(values(weight) == Values{1, 2});
}
