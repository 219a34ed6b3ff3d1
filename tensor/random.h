// Random numbers: Philox 4x32-10, a counter and a key, so element i is the same on every device and thread
// count.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "tensor/kernels.h"

namespace mezzo {

/// A stream of random numbers: a handle, copies share the position. Thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0);

  void manual_seed(uint64_t seed);
  uint64_t seed() const;
  /// Position in the stream, in blocks of four 32-bit numbers.
  uint64_t offset() const;
  void set_offset(uint64_t offset);
  /// Reserves the numbers for `elements` elements and returns where they begin.
  PhiloxState take(int64_t elements);
  /// For a kernel of `device`: if it is captured in a graph, each replay reserves numbers of its own, as the
  /// same work would outside of it.
  PhiloxState take(int64_t elements, const Device& device);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The generator used where none is given.
Generator& default_generator();
/// Seeds it.
void manual_seed(uint64_t seed);

/// Block `counter` of stream `key`: four uniform 32-bit numbers. Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3" (SC 2011), Philox4x32-10 with counter (counter, 0) and key as 2 x 32 bits, low word
/// first.
constexpr std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace mezzo
