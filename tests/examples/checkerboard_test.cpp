// The checkerboard's data are those of the tutorial.
#include "examples/checkerboard.h"

#include <doctest/doctest.h>

#include "tests/golden.h"

using namespace mezzo;

TEST_CASE("grid and board at 48 x 32 equal PyTorch's") {
  const Golden golden("checkerboard");
  CHECK(close(examples::grid(48, 32), golden.tensor("grid"), 0));
  CHECK(close(examples::checker(48, 32, 8), golden.tensor("board"), 0));
}
