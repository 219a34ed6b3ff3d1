// Atomic operations of every type that CUDA has them for: compare-and-swap on the object's bits. Always
// inlined, so that the checker names the line of the kernel.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace emulator {

/// The unsigned type of T's size.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

/// Replaces *address by change(*address) and returns what was there. Relaxed, like CUDA's.
template <class T, class Change>
[[gnu::always_inline]] inline T atomic_update(T* address, Change change) {
  using Bits = BitsOf<T>;
  static_assert(sizeof(T) == sizeof(Bits));
  auto* const bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (true) {
    const Bits after = std::bit_cast<Bits>(static_cast<T>(change(std::bit_cast<T>(before))));
    if (__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      return std::bit_cast<T>(before);
    }
  }
}

}  // namespace emulator

template <class T>
[[gnu::always_inline]] inline T atomicAdd(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old + value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicSub(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old - value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicMax(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old < value ? value : old; });
}
template <class T>
[[gnu::always_inline]] inline T atomicMin(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return value < old ? value : old; });
}
template <class T>
[[gnu::always_inline]] inline T atomicExch(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T) { return value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicAnd(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old & value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicOr(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old | value; });
}
template <class T>
[[gnu::always_inline]] inline T atomicXor(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old ^ value; });
}
/// Compares bits, so a NaN equals itself.
template <class T>
[[gnu::always_inline]] inline T atomicCAS(T* address, std::type_identity_t<T> expected,
                                          std::type_identity_t<T> desired) {
  using Bits = emulator::BitsOf<T>;
  Bits before = std::bit_cast<Bits>(expected);
  __atomic_compare_exchange_n(reinterpret_cast<Bits*>(address), &before, std::bit_cast<Bits>(desired), false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return std::bit_cast<T>(before);
}
[[gnu::always_inline]] inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return emulator::atomic_update(address, [&](unsigned old) { return old >= limit ? 0u : old + 1u; });
}
[[gnu::always_inline]] inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return emulator::atomic_update(address,
                                 [&](unsigned old) { return old == 0 || old > limit ? limit : old - 1u; });
}
