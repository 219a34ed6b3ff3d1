#include "tensor/random.h"

#include <mutex>

namespace mezzo {

struct Generator::State {
  std::mutex mutex;
  uint64_t seed = 0, offset = 0;
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
  // A block serves two elements of float64, the most that any dtype asks for, so the position that a draw
  // leaves behind does not depend on the dtype.
  state_->offset += (static_cast<uint64_t>(elements) + 1) / 2;
  return state;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace mezzo
