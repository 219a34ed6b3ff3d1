#include "tensor/random.h"

#include <mutex>

#include "tensor/backend.h"
#include "tensor/storage.h"

namespace mezzo {

namespace {

/// A block serves two elements of float64, the most that any dtype asks for, so the position that a draw
/// leaves behind does not depend on the dtype.
uint64_t blocks_for(int64_t elements) { return (static_cast<uint64_t>(elements) + 1) / 2; }

/// What a graph draws from a generator: how many blocks each replay takes, and where its kernels find seed
/// and offset.
struct GraphDraws {
  uint64_t capture, blocks = 0;
  Storage origin;

  GraphDraws(uint64_t capture, const Device& device)
      : capture(capture), origin(2 * sizeof(uint64_t), device) {}
};

}  // namespace

struct Generator::State {
  std::mutex mutex;
  uint64_t seed = 0, offset = 0;
  std::weak_ptr<GraphDraws> draws;  ///< of the last graph that was captured, which owns them

  void begin_replay(const GraphDraws& graph) {
    const std::lock_guard lock(mutex);
    auto* const origin = static_cast<uint64_t*>(graph.origin.data());
    const Kernels& table = kernels(graph.origin.device());
    table.fill({origin, int64, {}, {}}, static_cast<int64_t>(seed));
    table.fill({origin + 1, int64, {}, {}}, static_cast<int64_t>(offset));
    offset += graph.blocks;
  }
};

Generator::Generator(uint64_t seed) : state_(std::make_shared<State>()) { state_->seed = seed; }

void Generator::manual_seed(uint64_t seed) {
  const std::lock_guard lock(state_->mutex);
  state_->seed = seed;
  state_->offset = 0;
}

uint64_t Generator::seed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->seed;
}

uint64_t Generator::offset() const {
  const std::lock_guard lock(state_->mutex);
  return state_->offset;
}

void Generator::set_offset(uint64_t offset) {
  const std::lock_guard lock(state_->mutex);
  state_->offset = offset;
}

PhiloxState Generator::take(int64_t elements) {
  const std::lock_guard lock(state_->mutex);
  const PhiloxState state{state_->seed, state_->offset};
  state_->offset += blocks_for(elements);
  return state;
}

PhiloxState Generator::take(int64_t elements, const Device& device) {
  const uint64_t capture = capture_on(device);
  if (capture == 0) return take(elements);
  const std::lock_guard lock(state_->mutex);
  std::shared_ptr<GraphDraws> draws = state_->draws.lock();
  if (!draws || draws->capture != capture) {
    draws = std::make_shared<GraphDraws>(capture, device);
    state_->draws = draws;
    backend(device).at_replay(device.index, [state = state_, draws] { state->begin_replay(*draws); });
  }
  const PhiloxState state{.offset = draws->blocks, .origin = static_cast<uint64_t*>(draws->origin.data())};
  draws->blocks += blocks_for(elements);
  return state;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace mezzo
