#include "tests/emulator/warp.h"

#include <bit>

namespace emulator {

void Rendezvous::start() {
  mask = arrived = round_ = 0;
  unread_[0] = unread_[1] = 0;
}

void Rendezvous::arrive(unsigned lane, std::uint64_t value) {
  values_[round_][lane] = value;
  arrived |= 1u << lane;
}

unsigned Rendezvous::complete() {
  const unsigned came = arrived;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(came >> lane & 1u)) values_[round_][lane] = kGarbage;
  }
  unread_[round_] = static_cast<unsigned>(std::popcount(came));
  arrived = 0;
  round_ ^= 1u;
  return came;
}

const std::uint64_t* Rendezvous::read(unsigned round) {
  --unread_[round];
  return values_[round];
}

void Warp::start(unsigned lanes) {
  existing = lanes == kWarpSize ? 0xffffffffu : (1u << lanes) - 1u;
  returned = syncs = 0;
  for (Rendezvous& meeting : meetings) meeting.start();
}

Rendezvous* Warp::meeting(unsigned mask) {
  for (Rendezvous& meeting : meetings) {
    if (meeting.mask == mask) return &meeting;
  }
  for (Rendezvous& meeting : meetings) {
    if (meeting.idle()) {
      meeting.mask = mask;
      return &meeting;
    }
  }
  return nullptr;
}

}  // namespace emulator
