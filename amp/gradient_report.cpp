#include "amp/gradient_report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>

#include "amp/text_table.h"
#include "autograd/ops/check.h"

namespace mezzo::amp {

namespace {

constexpr int kLow = GradientHistogram::low, kHigh = GradientHistogram::high;

std::string count(int64_t n) { return text(std::setw(8), n); }
std::string percent(double share) {
  return text(std::fixed, std::setprecision(1), std::setw(5), 100 * share, " %");
}

/// A character for each bin, the darker the more are in it.
std::string drawn(const GradientHistogram& histogram) {
  constexpr std::string_view ink = ".:-=+*#%@";
  const int64_t most = std::ranges::max(histogram.bins);
  std::string line;
  for (const int64_t n : histogram.bins) {
    line += n == 0 ? ' ' : ink[static_cast<size_t>(std::ceil(9.0 * double(n) / double(most))) - 1];
  }
  return line;
}

/// Puts a word above or below a drawn histogram, from a power of two on.
void write(std::string& caption, int log2, const std::string& word) {
  caption.replace(static_cast<size_t>(log2 - kLow), word.size(), word);
}

}  // namespace

void GradientHistogram::add(double magnitude) {
  const double scaled = magnitude * scale;
  const float held = Half(static_cast<float>(scaled));
  const Zone zone = held == 0          ? Zone::lost
                    : held < 0x1p-14f  ? Zone::subnormal
                    : std::isinf(held) ? Zone::overflowed
                                       : Zone::normal;
  ++zones[static_cast<size_t>(zone)];
  ++bins[static_cast<size_t>(std::clamp(std::ilogb(scaled), low, high - 1) - low)];
}

double GradientHistogram::share(Zone zone) const {
  int64_t all = 0;
  for (const int64_t n : zones) all += n;
  return all == 0 ? 0 : double(in(zone)) / double(all);
}

void GradientReport::Entry::add(double magnitude) {
  ++elements;
  if (std::isnan(magnitude)) {
    ++nan;
  } else if (std::isinf(magnitude)) {
    ++infinite;
  } else if (magnitude == 0) {
    ++zero;
  } else {
    for (GradientHistogram& histogram : histograms) histogram.add(magnitude);
  }
}

GradientReport::GradientReport(const std::vector<std::pair<std::string, Tensor>>& tensors,
                               const GradientReportOptions& options)
    : options_(options), total_(empty_entry("total")) {
  for (const double scale : {options.scale, options.holds_scale}) {
    if (!(scale > 0) || std::isinf(scale)) {
      fail("GradientReport", text("scales must be positive and finite, not ", scale));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (tensor.grad().defined()) add(name, tensor.grad());
  }
}

GradientReport::Entry GradientReport::empty_entry(const std::string& name) const {
  Entry entry{name};
  entry.histograms[1].scale = options_.scale;
  return entry;
}

void GradientReport::add(const std::string& name, const Tensor& gradient) {
  ops::check_floating("GradientReport.add", {{"gradient", gradient}});
  const std::vector<double> values = gradient.to_vector<double>();
  Entry& entry = entries_.emplace_back(empty_entry(name));
  for (const double value : values) {
    const double magnitude = std::abs(value) / options_.holds_scale;
    entry.add(magnitude);
    total_.add(magnitude);
  }
}

std::string GradientReport::to_string() const {
  std::vector<std::vector<std::string>> table = {
      {"gradient", "elements", "    zero", "     NaN", "infinite", "times"}};
  std::string powers(kHigh - kLow, ' '), zones = powers;
  for (int log2 = kLow; log2 < kHigh; log2 += 8) write(powers, log2, std::to_string(log2));
  for (const ZoneSpan& span : kZoneSpans) {
    table[0].emplace_back(span.name);
    write(zones, span.low, text('|', span.name));
  }

  const auto add_rows = [&table](const Entry& entry) {
    std::vector<std::string> row = {entry.name, count(entry.elements), count(entry.zero), count(entry.nan),
                                    count(entry.infinite)};
    for (const GradientHistogram& histogram : entry.histograms) {
      row.push_back(text(histogram.scale));
      for (const ZoneSpan& span : kZoneSpans) row.push_back(percent(histogram.share(span.zone)));
      table.push_back(std::move(row));
      row.assign(5, "");
    }
  };
  for (const Entry& entry : entries_) add_rows(entry);
  add_rows(total_);

  std::vector<std::vector<std::string>> picture = {{"log2 |gradient|", powers}};
  for (const GradientHistogram& histogram : total_.histograms) {
    picture.push_back({text("times ", histogram.scale), drawn(histogram)});
  }
  picture.push_back({"in float16", zones});
  return text_table(table) + "\n" + text_table(picture);
}

std::ostream& operator<<(std::ostream& out, const GradientReport& report) {
  return out << report.to_string();
}

}  // namespace mezzo::amp
