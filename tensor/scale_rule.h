// Loss scaling: how the scale changes, one pure function for every device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace mezzo {

struct ScaleState {
  float scale;
  int32_t tracker;  ///< updates without overflow since the scale last changed
  bool operator==(const ScaleState&) const = default;
};

struct ScaleRule {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< updates without overflow before the scale grows
};

/// Where back-off stops: gradients are multiplied by 1 / scale, and below 2^-127 that is infinite in float32.
inline constexpr float kSmallestScale = 0x1p-126f;

/// The state after an update. An overflow multiplies the scale by the back-off factor; the growth_interval-th
/// update in a row without one multiplies it by the growth factor, unless the result is infinite. As in
/// PyTorch the tracker must be equal to the interval: an interval set below it stops growth until the next
/// overflow.
constexpr ScaleState next(ScaleState state, bool found_inf, const ScaleRule& rule) {
  if (found_inf) {
    return {std::max(static_cast<float>(state.scale * rule.backoff_factor), kSmallestScale), 0};
  }
  constexpr auto most = std::numeric_limits<int32_t>::max();
  const int32_t tracker = state.tracker < most ? state.tracker + 1 : most;
  if (tracker != rule.growth_interval) return {state.scale, tracker};
  const auto grown = static_cast<float>(state.scale * rule.growth_factor);
  return {grown <= std::numeric_limits<float>::max() ? grown : state.scale, 0};
}

/// What unscaling multiplies by.
constexpr float inverse(float scale) { return static_cast<float>(1.0 / scale); }

}  // namespace mezzo
