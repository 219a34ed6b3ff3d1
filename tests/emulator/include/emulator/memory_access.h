// Loads and stores with a cache hint, and views of a value's bits. The accesses are always inlined, so that
// the checker names the line of the kernel.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

template <class T>
[[gnu::always_inline]] inline T __ldg(const T* address) {
  return *address;
}
template <class T>
[[gnu::always_inline]] inline T __ldca(const T* address) {
  return *address;
}
template <class T>
[[gnu::always_inline]] inline T __ldcg(const T* address) {
  return *address;
}
template <class T>
[[gnu::always_inline]] inline T __ldcs(const T* address) {
  return *address;
}
template <class T>
[[gnu::always_inline]] inline T __ldcv(const T* address) {
  return *address;
}
template <class T>
[[gnu::always_inline]] inline void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
[[gnu::always_inline]] inline void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
[[gnu::always_inline]] inline void __stwb(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
[[gnu::always_inline]] inline void __stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}

inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

inline int __popc(unsigned value) { return std::popcount(value); }
inline int __popcll(unsigned long long value) { return std::popcount(value); }
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }
inline int __clzll(long long value) { return std::countl_zero(static_cast<unsigned long long>(value)); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (unsigned bit = 0; bit < 32; ++bit) result |= (value >> bit & 1u) << (31 - bit);
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned bits = shift & 31u;
  return bits == 0 ? high : high << bits | low >> (32 - bits);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned bits = shift & 31u;
  return bits == 0 ? low : low >> bits | high << (32 - bits);
}
