// Atomic operations of every type that CUDA has them for: compare-and-swap on the object's bits.
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
T atomic_update(T* address, Change change) {
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
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old + value; });
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old - value; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return value < old ? value : old; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T) { return value; });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old & value; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old | value; });
}
template <class T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return emulator::atomic_update(address, [&](T old) { return old ^ value; });
}
/// Compares bits, so a NaN equals itself.
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  using Bits = emulator::BitsOf<T>;
  Bits before = std::bit_cast<Bits>(expected);
  __atomic_compare_exchange_n(reinterpret_cast<Bits*>(address), &before, std::bit_cast<Bits>(desired), false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return std::bit_cast<T>(before);
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return emulator::atomic_update(address, [&](unsigned old) { return old >= limit ? 0u : old + 1u; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return emulator::atomic_update(address,
                                 [&](unsigned old) { return old == 0 || old > limit ? limit : old - 1u; });
}
