// The tutorial's grid() and checker(), line for line.
#include "autograd/ops.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

Tensor grid(int64_t width, int64_t height) {
  const TensorOptions options{.device = test_device()};
  const Tensor hrange = arange(width, options).unsqueeze(0).repeat({height, 1}).div(width);
  const Tensor vrange = arange(height, options).unsqueeze(1).repeat({1, width}).div(height);
  return stack({hrange, vrange}, 0);
}

Tensor checker(int64_t w, int64_t h, double freq) {
  const TensorOptions options{.device = test_device()};
  const double width = static_cast<double>(w), height = static_cast<double>(h);
  const Tensor hrange = arange(w, options).reshape({1, w}).mul(freq / width / 2.0).fmod(1.0).gt(0.5);
  const Tensor vrange = arange(h, options).reshape({h, 1}).mul(freq / height / 2.0).fmod(1.0).gt(0.5);
  return hrange.logical_xor(vrange).to(float32);
}

}  // namespace

TEST_CASE("tutorial: the grid of coordinates") {
  const Tensor coordinates = grid(4, 2);
  CHECK(coordinates.shape() == Shape{2, 2, 4});
  CHECK(coordinates.dtype() == float32);
  CHECK(values(coordinates[0]) == Values{0, 0.25, 0.5, 0.75, 0, 0.25, 0.5, 0.75});
  CHECK(values(coordinates[1]) == Values{0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5});
  CHECK(coordinates.unsqueeze(0).shape() == Shape{1, 2, 2, 4});
}

TEST_CASE("tutorial: the checkerboard") {
  // 8 columns, 4 rows, 2 periods halved: a field is 4 wide less the one where the remainder is 0.5 and not
  // above it.
  const Tensor board = checker(8, 4, 2);
  CHECK(board.shape() == Shape{4, 8});
  CHECK(board.dtype() == float32);
  CHECK(values(board) == Values{0, 0, 0, 0, 0, 1, 1, 1,  //
                                0, 0, 0, 0, 0, 1, 1, 1,  //
                                0, 0, 0, 0, 0, 1, 1, 1,  //
                                1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(board.unsqueeze(0).unsqueeze(1).shape() == Shape{1, 1, 4, 8});
}

TEST_CASE("tutorial: a board of many fields is half ones") {
  const double share = checker(512, 512, 8).mean().item<double>();
  CHECK(share > 0.49);
  CHECK(share < 0.51);
}
