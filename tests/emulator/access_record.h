// What the checker remembers about accesses.
#pragma once

#include <cstdint>

#include <emulator/thread.h>

namespace emulator {

/// One access: when, by whom and at which place of the program.
struct Access {
  std::uint32_t launch = 0, block = 0, barriers = 0, warp_syncs = 0;
  std::uint32_t place = 0;  ///< return address, from the start of the program
  std::uint16_t thread = 0;
  bool atomic = false;

  std::uint32_t warp() const { return thread / kWarpSize; }
  bool same_thread(const Access& other) const { return thread == other.thread && block == other.block; }
};

/// All accesses of one kind to a piece of memory that may conflict with a later one: the last of them, and
/// whether others were there that are not ordered with it.
struct Record {
  Access last;
  Access other;  ///< the last by another thread than `last`, of the same launch
  bool all_atomic = false;
  bool many_lanes = false;  ///< several lanes of last's warp, since its last __syncwarp()
  bool many_warps = false;  ///< several warps of last's block, since its last barrier
  bool many_blocks = false;

  /// Whether all of them happened before an access, so that it sees them and they do not see it.
  bool ordered_before(const Access& now) const {
    if (last.launch != now.launch) return true;
    if (many_blocks || last.block != now.block) return false;
    if (last.barriers != now.barriers) return true;
    if (many_warps || last.warp() != now.warp()) return false;
    if (last.warp_syncs != now.warp_syncs) return true;
    return !many_lanes && last.thread == now.thread;
  }

  bool conflicts_with(const Access& now) const { return !ordered_before(now) && !(all_atomic && now.atomic); }

  void add(const Access& now) {
    bool alone = false;  // all before it is ordered
    if (last.launch != now.launch) {
      many_lanes = many_warps = many_blocks = false;
      other.launch = 0;
      alone = true;
    } else {
      if (last.block != now.block) {
        many_blocks = true;
      } else if (last.barriers != now.barriers) {
        many_lanes = many_warps = false;
        alone = !many_blocks;
      } else if (last.warp() != now.warp()) {
        many_warps = true;
      } else if (last.warp_syncs != now.warp_syncs) {
        many_lanes = false;
        alone = !many_blocks && !many_warps;
      } else if (last.thread != now.thread) {
        many_lanes = true;
      } else {
        alone = false;
      }
      if (!last.same_thread(now)) other = last;
    }
    all_atomic = alone ? now.atomic : all_atomic && now.atomic;
    last = now;
  }

  /// One that is not ordered before `now`, for a message.
  const Access& culprit(const Access& now) const {
    return last.same_thread(now) && other.launch == now.launch ? other : last;
  }
};

/// What is remembered about a piece of memory.
struct Cell {
  Record writes, reads;
};

}  // namespace emulator
