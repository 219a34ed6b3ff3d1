// The lanes of a warp that wait for each other.
#pragma once

#include <cstdint>

#include <emulator/warp.h>

namespace emulator {

/// What a lane reads that nothing brought: NaN in float and double.
constexpr std::uint64_t kGarbage = 0x7ff7ff7fffffffffull;

/// Lanes of one mask that meet again and again.
class Rendezvous {
 public:
  unsigned mask = 0;
  unsigned arrived = 0;
  WarpOperation operation{};
  Location at;

  /// Forgets the block before. Values stay, nobody reads them.
  void start();
  /// Nobody waits here, and nobody has still to read: the mask may change.
  bool idle() const { return !arrived && !unread_[0] && !unread_[1]; }
  void arrive(unsigned lane, std::uint64_t value);
  /// All have come: their values can be read, and the next round begins. Returns who came.
  unsigned complete();
  /// Which round is going on; a lane remembers it while it waits.
  unsigned round() const { return round_; }
  /// Values of all lanes in a completed round. Once for each lane that came, before anyone can reach the
  /// round after the next.
  const std::uint64_t* read(unsigned round);

 private:
  unsigned round_ = 0;           // 0 or 1: a late lane reads one while others meet in the other
  unsigned unread_[2] = {0, 0};  // lanes that have still to read
  std::uint64_t values_[2][kWarpSize];
};

struct Warp {
  static constexpr unsigned kMeetings = 4;

  Rendezvous meetings[kMeetings];
  unsigned existing = 0;  ///< lanes that the block has
  unsigned returned = 0;  ///< lanes that have left the kernel
  unsigned syncs = 0;     ///< counts __syncwarp() of the whole warp

  void start(unsigned lanes);
  unsigned live() const { return existing & ~returned; }
  /// Where the lanes of `mask` meet; null if too many masks are in use at once.
  Rendezvous* meeting(unsigned mask);
};

}  // namespace emulator
