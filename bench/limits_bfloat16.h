// bfloat16's instructions, where the compiler's target has them: products of pairs (AVX-512) and matrix tiles
// (AMX).
#pragma once

#if defined(__AVX512BF16__) || defined(__AMX_BF16__)
#include <immintrin.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace bench {

#ifdef __AVX512BF16__

/// sum += a b + c d, with pairs of bfloat16 in each lane
struct PairSum {
  static constexpr int lanes = 16, multiplies = 2 * lanes;
  __m512 sum;
  __m512bh ones = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1), _mm512_set1_ps(1));
  explicit PairSum(const float* from) : sum(_mm512_loadu_ps(from)) {}
  void step() { sum = _mm512_dpbf16_ps(sum, ones, ones); }
  void store(float* to) const { _mm512_storeu_ps(to, sum); }
};

/// Calls add.operator()<Sum>(instruction) if the target has it.
template <class Add>
void if_pairs(Add&& add) {
  add.template operator()<PairSum>("vdpbf16ps of 512 bits");
}

#else

template <class Add>
void if_pairs(Add&&) {}

#endif

inline constexpr int kTileSteps = 20'000;
/// Of multiply_tiles: four products of 16 x 32 by 32 x 16 a step.
inline constexpr double kTileFlop = 2.0 * 16 * 16 * 32 * 4 * kTileSteps;

#ifdef __AMX_BF16__

/// Asks Linux for the registers, which a process does not have without. False if it refuses or knows of none.
inline bool request_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

struct alignas(64) TileConfig {  // as ldtilecfg reads it
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
};

/// Constants: what is written right before an intrinsic reads it counts as unread with gcc 12.
inline constexpr TileConfig kTileConfig;
inline constexpr auto kTileOnes = [] {
  std::array<uint16_t, 512> ones{};
  ones.fill(0x3f80);  // 1 in bfloat16
  return ones;
}();

/// Products of full tiles, added to four that do not wait for each other: latency 52 cycles, one every 16.
inline void multiply_tiles() {
  _tile_loadconfig(&kTileConfig);
  _tile_loadd(4, kTileOnes.data(), 64);
  _tile_loadd(5, kTileOnes.data(), 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int step = 0; step < kTileSteps; ++step) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

#else

inline bool request_tiles() { return false; }
inline void multiply_tiles() {}

#endif

}  // namespace bench
