// Operations of a warp: lanes run independently and meet here, as on cards since Volta.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/location.h"
#include "emulator/thread.h"

namespace emulator {

enum class WarpOperation { sync, shuffle, ballot, match };

/// All lanes of `mask` meet here; returns what lane `source` brought.
std::uint64_t warp_exchange(unsigned mask, std::uint64_t value, WarpOperation operation, Location at,
                            unsigned source = 0);

/// All lanes of `mask` meet here; returns the lanes that brought a value other than 0 (ballot) or the
/// caller's value (match).
unsigned warp_vote(unsigned mask, std::uint64_t value, WarpOperation operation, Location at);

/// Lanes of the caller's warp that have not returned from the kernel.
unsigned active_lanes();

inline unsigned lane() { return current.thread % kWarpSize; }

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source, Location at) {
  const std::uint64_t bits = warp_exchange(mask, to_bits(value), WarpOperation::shuffle, at, source);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

/// The caller's part of the warp in a shuffle of groups of `width` lanes.
struct Group {
  unsigned first, end;
  explicit Group(int width)
      : first(lane() & ~(static_cast<unsigned>(width) - 1)), end(first + static_cast<unsigned>(width)) {}
};

}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffffu, emulator::Location at = emulator::Location::here()) {
  emulator::warp_exchange(mask, 0, emulator::WarpOperation::sync, at);
}
inline unsigned __activemask() { return emulator::active_lanes(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              emulator::Location at = emulator::Location::here()) {
  const unsigned offset = static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1);
  return emulator::shuffle(mask, value, emulator::Group(width).first + offset, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulator::Location at = emulator::Location::here()) {
  const unsigned lane = emulator::lane(), first = emulator::Group(width).first;
  return emulator::shuffle(mask, value, lane - first < delta ? lane : lane - delta, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulator::Location at = emulator::Location::here()) {
  const unsigned lane = emulator::lane(), end = emulator::Group(width).end;
  return emulator::shuffle(mask, value, delta < end - lane ? lane + delta : lane, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  emulator::Location at = emulator::Location::here()) {
  const unsigned lane = emulator::lane(), source = lane ^ static_cast<unsigned>(bits);
  return emulator::shuffle(mask, value, source < emulator::Group(width).end ? source : lane, at);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulator::Location at = emulator::Location::here()) {
  return emulator::warp_vote(mask, predicate != 0, emulator::WarpOperation::ballot, at);
}
inline int __any_sync(unsigned mask, int predicate, emulator::Location at = emulator::Location::here()) {
  return __ballot_sync(mask, predicate, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Location at = emulator::Location::here()) {
  return __ballot_sync(mask, !predicate, at) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, emulator::Location at = emulator::Location::here()) {
  return emulator::warp_vote(mask, emulator::to_bits(value), emulator::WarpOperation::match, at);
}

namespace emulator {

/// A value of all lanes of `mask`, combined in the order of the lanes.
template <class T, class Combine>
T warp_reduce(unsigned mask, T value, Combine combine, Location at) {
  T result{};
  bool first = true;
  for (unsigned source = 0; source < kWarpSize; ++source) {
    if (!(mask >> source & 1u)) continue;
    const T other = shuffle(mask, value, source, at);
    result = first ? other : combine(result, other);
    first = false;
  }
  return result;
}

}  // namespace emulator

template <class T>
T __reduce_add_sync(unsigned mask, T value, emulator::Location at = emulator::Location::here()) {
  return emulator::warp_reduce(
      mask, value, [](T a, T b) { return static_cast<T>(a + b); }, at);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, emulator::Location at = emulator::Location::here()) {
  return emulator::warp_reduce(
      mask, value, [](T a, T b) { return b < a ? b : a; }, at);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, emulator::Location at = emulator::Location::here()) {
  return emulator::warp_reduce(
      mask, value, [](T a, T b) { return a < b ? b : a; }, at);
}
