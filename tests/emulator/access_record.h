// What the checker remembers about accesses.
#pragma once

#include <cstdint>

#include <emulator/thread.h>

namespace emulator {

/// Who made an access, and at which place of the program: the return address, counted from the program's
/// start.
struct Origin {
  std::uint32_t block = 0, place = 0;
  std::uint16_t thread = 0;

  bool same_thread(const Origin& other) const { return thread == other.thread && block == other.block; }
};

/// One access.
struct Access {
  Origin origin;
  std::uint32_t launch = 0, barriers = 0, warp_syncs = 0;
  bool atomic = false;
};

/// All accesses of one kind to a piece of memory that may conflict with a later one: the last of them, and
/// whether others were there that are not ordered with it. Packed, since checking is mostly waiting for
/// memory.
class Record {
 public:
  bool conflicts_with(const Access& now) const {
    return !ordered_before(now) && !(all_atomic_ && now.atomic);
  }

  void add(const Access& now) {
    const Origin& by = now.origin;
    bool alone = false;  // all before it is ordered
    if (launch_ != now.launch) {
      many_lanes_ = many_warps_ = many_blocks_ = has_other_ = false;
      alone = true;
    } else {
      if (block_ != by.block) {
        many_blocks_ = true;
      } else if (barriers_ != now.barriers) {
        many_lanes_ = many_warps_ = false;
        alone = !many_blocks_;
      } else if (thread_ / kWarpSize != by.thread / kWarpSize) {
        many_warps_ = true;
      } else if (warp_syncs_ != now.warp_syncs) {
        many_lanes_ = false;
        alone = !many_blocks_ && !many_warps_;
      } else if (thread_ != by.thread) {
        many_lanes_ = true;
      }
      if (!last().same_thread(by)) {
        other_block_ = block_;
        other_place_ = place_;
        other_thread_ = thread_;
        has_other_ = true;
      }
    }
    all_atomic_ = alone ? now.atomic : all_atomic_ && now.atomic;
    launch_ = now.launch;
    block_ = by.block;
    place_ = by.place;
    barriers_ = now.barriers;
    warp_syncs_ = now.warp_syncs;
    thread_ = by.thread & 0x3ffu;
  }

  /// One that is not ordered before `now`, for a message.
  Origin culprit(const Access& now) const {
    if (!last().same_thread(now.origin) || !has_other_) return last();
    return {other_block_, other_place_, other_thread_};
  }

 private:
  Origin last() const { return {block_, place_, thread_}; }

  /// Whether all of them happened before an access, so that it sees them and they do not see it.
  bool ordered_before(const Access& now) const {
    if (launch_ != now.launch) return true;
    if (many_blocks_ || block_ != now.origin.block) return false;
    if (barriers_ != now.barriers) return true;
    if (many_warps_ || thread_ / kWarpSize != now.origin.thread / kWarpSize) return false;
    if (warp_syncs_ != now.warp_syncs) return true;
    return !many_lanes_ && thread_ == now.origin.thread;
  }

  std::uint32_t launch_ = 0, block_ = 0, place_ = 0, barriers_ = 0, warp_syncs_ = 0;  // of the last
  std::uint32_t other_block_ = 0, other_place_ = 0;  // of the last by another thread in the same launch
  std::uint16_t other_thread_ = 0;
  std::uint16_t thread_ : 10 = 0;  // of the last
  std::uint16_t all_atomic_ : 1 = 0;
  std::uint16_t many_lanes_ : 1 = 0;   // several lanes of its warp, since the warp's last __syncwarp()
  std::uint16_t many_warps_ : 1 = 0;   // several warps of its block, since the block's last barrier
  std::uint16_t many_blocks_ : 1 = 0;  // several blocks
  std::uint16_t has_other_ : 1 = 0;
};

/// What is remembered about a piece of memory.
struct Cell {
  Record writes, reads;
};
static_assert(sizeof(Cell) == 64);

}  // namespace emulator
