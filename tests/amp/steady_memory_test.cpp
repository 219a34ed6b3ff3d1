// Training asks the system for memory in its first steps alone: what one step gives back, the next one takes.
#include <doctest/doctest.h>

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "tensor/pool.h"
#include "tests/support.h"

using namespace mezzo;

TEST_CASE("from its third step on, training takes no memory from the system") {
  if (!caches_memory()) return skip("memory is not cached");
  for (const bool mixed : {false, true}) {
    CAPTURE(mixed);
    nn::Sequential net(nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 10));
    net.to(test_device());
    const Tensor x = randn({32, 64}, {.device = test_device()});
    const Tensor y = randint(10, {32}, {.device = test_device()});
    optim::Adam adam(net.parameters());
    amp::GradScaler scaler(test_device(), {.enabled = mixed});
    const auto step = [&] {
      adam.zero_grad();
      Tensor loss;
      {
        const amp::Autocast autocast(test_device(), float16, mixed);
        loss = cross_entropy(net(x), y);
      }
      scaler.scale(loss).backward();
      scaler.step(adam);
      scaler.update();
    };
    step();
    step();
    const MemoryStats before = memory_stats(test_device());
    const size_t scratch = memory_stats().system_allocations, objects = pool::system_allocations();
    for (int i = 0; i < 10; ++i) step();
    const MemoryStats after = memory_stats(test_device());
    CHECK(after.system_allocations == before.system_allocations);
    CHECK(after.live == before.live);
    CHECK(after.peak == before.peak);
    CHECK(memory_stats().system_allocations == scratch);
    CHECK(pool::system_allocations() == objects);
  }
}
