// Long graphs: no recursion when they run or when they are freed.
#include "autograd/ops.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// On CUDA launches would be all of the time.
const int kLong = test_device().type == Device::Type::cuda ? 30'000 : 1'000'000;

}  // namespace

TEST_CASE("a chain of a million ops runs backward and is freed") {
  const size_t before = memory_stats(test_device()).live;
  {
    const Tensor a = leaf({1}), zero = make({0});
    Tensor y = a;
    for (int i = 0; i < kLong; ++i) y = y + zero;
    y.sum().backward();
    CHECK(values(a.grad()) == Values{1});
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("a chain of a million ops is freed without backward") {
  const size_t before = memory_stats(test_device()).live;
  {
    const Tensor a = leaf({1}), zero = make({0});
    Tensor y = a;
    for (int i = 0; i < kLong; ++i) y = y + zero;
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("a chain held through saved tensors is freed, with and without backward") {
  const size_t before = memory_stats(test_device()).live;
  for (const bool run : {true, false}) {
    const Tensor a = leaf({0.5});
    Tensor y = a;
    for (int i = 0; i < kLong / 10; ++i) y = y.exp().log();  // exp saves its output, log its input
    if (run) {
      y.sum().backward({}, true);
      CHECK(values(a.grad())[0] == doctest::Approx(1));
    }
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("a chain held by nothing but hooks is freed") {
  const size_t before = memory_stats(test_device()).live;
  {
    const Tensor a = leaf({1});
    Tensor last = a * 1;
    for (int i = 0; i < 100'000; ++i) {
      Tensor next = a * 1;
      next.register_hook([last](const Tensor&) { return last; });
      last = next;
    }
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("a chain held by nothing but a saved tensor of another graph is freed") {
  const size_t before = memory_stats(test_device()).live;
  {
    const Tensor a = leaf({1}), zero = make({0});
    Tensor side;
    {
      Tensor y = a;
      for (int i = 0; i < 100'000; ++i) y = y.view({1});
      side = a * y.detach() * y;
    }
  }
  CHECK(memory_stats(test_device()).live == before);
}
