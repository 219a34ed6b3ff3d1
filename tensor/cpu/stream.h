// Results that are too large to wait in the caches for who reads them next: written past these, so that their
// memory is not read before, and what the caches hold stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/kernels.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace mezzo::cpu {

/// Whether a result is written so: from 32 MiB on, where a copy and what reads it take a tenth less together;
/// below, they take longer.
inline bool is_streamed(const View& out) {
  constexpr size_t kLarge = size_t{32} << 20;
  return static_cast<size_t>(out.numel()) * size_of(out.dtype) >= kLarge;
}

/// memcpy past the caches, if `to` and `bytes` are whole cache lines. Each thread that has called it calls
/// finish_streams before another may read.
inline void stream(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  if (reinterpret_cast<uintptr_t>(to) % kLine == 0 && bytes % kLine == 0) {
    auto* lines = static_cast<__m128i*>(to);
    const auto* values = static_cast<const __m128i*>(from);
    for (size_t i = 0; i < bytes / sizeof(__m128i); ++i)
      _mm_stream_si128(lines + i, _mm_loadu_si128(values + i));
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

inline void finish_streams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace mezzo::cpu
