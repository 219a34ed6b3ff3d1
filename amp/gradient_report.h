// What float16 would make of gradients, and what a scale does for them: how many it would lose, how many
// would overflow, and where they lie in its range.
//
//   scaler.scale(loss).backward();
//   const double scale = scaler.get_scale();
//   std::cout << amp::GradientReport(net.named_parameters(), {.scale = scale, .holds_scale = scale});
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace mezzo::amp {

/// What can come of a number in float16: 0, up to 2^-25; fewer than 11 bits, below 2^-14; all of them;
/// infinity, from 65520 on.
enum class Zone : uint8_t { lost, subnormal, normal, overflowed };

/// Sizes of gradients times a scale. Those that are zero or not finite have none.
struct GradientHistogram {
  static constexpr int low = -48, high = 32;  ///< log2; beyond, float16 has nothing

  double scale = 1;
  /// i: how many lie in [2^(low + i), 2^(low + i + 1)). Those beyond are in the first and the last.
  std::array<int64_t, high - low> bins{};
  std::array<int64_t, 4> zones{};  ///< how many float16 puts into each Zone

  void add(double magnitude);  ///< of a gradient without the scale
  int64_t in(Zone zone) const { return zones[static_cast<size_t>(zone)]; }
  double share(Zone zone) const;  ///< of all that are counted; 0 if none are
};

/// The part of a histogram's axis that belongs to a zone.
struct ZoneSpan {
  Zone zone;
  std::string_view name;
  int low, high;  ///< log2
};
inline constexpr std::array<ZoneSpan, 4> kZoneSpans = {
    {{Zone::lost, "lost", GradientHistogram::low, -25},
     {Zone::subnormal, "subnormal", -25, -14},
     {Zone::normal, "normal", -14, 16},
     {Zone::overflowed, "overflowed", 16, GradientHistogram::high}}};

struct GradientReportOptions {
  double scale = 65536;    ///< to be compared with none
  double holds_scale = 1;  ///< what the gradients have been multiplied by: a scaler's, from backward to step
};

class GradientReport {
 public:
  struct Entry {
    std::string name;
    int64_t elements = 0, zero = 0, nan = 0, infinite = 0;
    std::array<GradientHistogram, 2> histograms{};  ///< at scale 1 and at the scale of the options

    void add(double magnitude);
  };

  /// Of the gradients of these tensors; one that has none is left out. Throws Error unless the scales are
  /// positive and finite.
  explicit GradientReport(const std::vector<std::pair<std::string, Tensor>>& tensors = {},
                          const GradientReportOptions& options = {});
  /// Adds a gradient by itself. Throws Error if it is not floating.
  void add(const std::string& name, const Tensor& gradient);

  const std::vector<Entry>& entries() const { return entries_; }
  /// All entries as one.
  const Entry& total() const { return total_; }
  /// A table of shares at both scales, and the histograms of the total.
  std::string to_string() const;

 private:
  Entry empty_entry(const std::string& name) const;

  GradientReportOptions options_;
  std::vector<Entry> entries_;
  Entry total_;
};

std::ostream& operator<<(std::ostream& out, const GradientReport& report);

}  // namespace mezzo::amp
