#include "examples/common/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <utility>

#include "tensor/error.h"

namespace mezzo::examples {
namespace {

constexpr Color kBackground = 0xffffff, kInk = 0x333333, kGrid = 0xe4e4e4, kFrame = 0x999999,
                kCurve = 0x31688e, kNotFinite = 0xd62728;
constexpr int kMargin = 28, kGap = 10, kPanelGap = 40, kPanelSize = 400, kPanelMinWidth = 240,
              kCurveHeight = 240, kMinWidth = 640;
constexpr double kCurveThickness = 2.5;
constexpr std::array<Color, 4> kCurves = {kCurve, 0xd95f02, 0x1b9e77, 0x7570b3};
constexpr int kBinWidth = 10, kBinHeight = 200, kTickDistance = 8;
// In the order of amp::Zone. What float16 cannot hold is red.
constexpr std::array<Color, 4> kZones = {0xf7cdc9, 0xfbeab5, 0xd5ecd2, 0xf7cdc9};

// matplotlib's table (released under CC0), rounded to 8 bits a channel.
constexpr std::array<Color, 256> kViridis = {
    0x440154, 0x440256, 0x450457, 0x450559, 0x46075a, 0x46085c, 0x460a5d, 0x460b5e, 0x470d60, 0x470e61,
    0x471063, 0x471164, 0x471365, 0x481467, 0x481668, 0x481769, 0x48186a, 0x481a6c, 0x481b6d, 0x481c6e,
    0x481d6f, 0x481f70, 0x482071, 0x482173, 0x482374, 0x482475, 0x482576, 0x482677, 0x482878, 0x482979,
    0x472a7a, 0x472c7a, 0x472d7b, 0x472e7c, 0x472f7d, 0x46307e, 0x46327e, 0x46337f, 0x463480, 0x453581,
    0x453781, 0x453882, 0x443983, 0x443a83, 0x443b84, 0x433d84, 0x433e85, 0x423f85, 0x424086, 0x424186,
    0x414287, 0x414487, 0x404588, 0x404688, 0x3f4788, 0x3f4889, 0x3e4989, 0x3e4a89, 0x3e4c8a, 0x3d4d8a,
    0x3d4e8a, 0x3c4f8a, 0x3c508b, 0x3b518b, 0x3b528b, 0x3a538b, 0x3a548c, 0x39558c, 0x39568c, 0x38588c,
    0x38598c, 0x375a8c, 0x375b8d, 0x365c8d, 0x365d8d, 0x355e8d, 0x355f8d, 0x34608d, 0x34618d, 0x33628d,
    0x33638d, 0x32648e, 0x32658e, 0x31668e, 0x31678e, 0x31688e, 0x30698e, 0x306a8e, 0x2f6b8e, 0x2f6c8e,
    0x2e6d8e, 0x2e6e8e, 0x2e6f8e, 0x2d708e, 0x2d718e, 0x2c718e, 0x2c728e, 0x2c738e, 0x2b748e, 0x2b758e,
    0x2a768e, 0x2a778e, 0x2a788e, 0x29798e, 0x297a8e, 0x297b8e, 0x287c8e, 0x287d8e, 0x277e8e, 0x277f8e,
    0x27808e, 0x26818e, 0x26828e, 0x26828e, 0x25838e, 0x25848e, 0x25858e, 0x24868e, 0x24878e, 0x23888e,
    0x23898e, 0x238a8d, 0x228b8d, 0x228c8d, 0x228d8d, 0x218e8d, 0x218f8d, 0x21908d, 0x21918c, 0x20928c,
    0x20928c, 0x20938c, 0x1f948c, 0x1f958b, 0x1f968b, 0x1f978b, 0x1f988b, 0x1f998a, 0x1f9a8a, 0x1e9b8a,
    0x1e9c89, 0x1e9d89, 0x1f9e89, 0x1f9f88, 0x1fa088, 0x1fa188, 0x1fa187, 0x1fa287, 0x20a386, 0x20a486,
    0x21a585, 0x21a685, 0x22a785, 0x22a884, 0x23a983, 0x24aa83, 0x25ab82, 0x25ac82, 0x26ad81, 0x27ad81,
    0x28ae80, 0x29af7f, 0x2ab07f, 0x2cb17e, 0x2db27d, 0x2eb37c, 0x2fb47c, 0x31b57b, 0x32b67a, 0x34b679,
    0x35b779, 0x37b878, 0x38b977, 0x3aba76, 0x3bbb75, 0x3dbc74, 0x3fbc73, 0x40bd72, 0x42be71, 0x44bf70,
    0x46c06f, 0x48c16e, 0x4ac16d, 0x4cc26c, 0x4ec36b, 0x50c46a, 0x52c569, 0x54c568, 0x56c667, 0x58c765,
    0x5ac864, 0x5cc863, 0x5ec962, 0x60ca60, 0x63cb5f, 0x65cb5e, 0x67cc5c, 0x69cd5b, 0x6ccd5a, 0x6ece58,
    0x70cf57, 0x73d056, 0x75d054, 0x77d153, 0x7ad151, 0x7cd250, 0x7fd34e, 0x81d34d, 0x84d44b, 0x86d549,
    0x89d548, 0x8bd646, 0x8ed645, 0x90d743, 0x93d741, 0x95d840, 0x98d83e, 0x9bd93c, 0x9dd93b, 0xa0da39,
    0xa2da37, 0xa5db36, 0xa8db34, 0xaadc32, 0xaddc30, 0xb0dd2f, 0xb2dd2d, 0xb5de2b, 0xb8de29, 0xbade28,
    0xbddf26, 0xc0df25, 0xc2df23, 0xc5e021, 0xc8e020, 0xcae11f, 0xcde11d, 0xd0e11c, 0xd2e21b, 0xd5e21a,
    0xd8e219, 0xdae319, 0xdde318, 0xdfe318, 0xe2e418, 0xe5e419, 0xe7e419, 0xeae51a, 0xece51b, 0xefe51c,
    0xf1e51d, 0xf4e61e, 0xf6e620, 0xf8e621, 0xfbe723, 0xfde725,
};

/// Smallest and largest finite value; {0, 0} if there is none.
template <class T>
std::pair<double, double> finite_range(const std::vector<T>& values) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const T value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, static_cast<double>(value));
    high = std::max(high, static_cast<double>(value));
  }
  return low <= high ? std::pair{low, high} : std::pair{0.0, 0.0};
}

/// How many pixels wide and high an element is drawn.
int scale_of(const Panel& panel) { return std::max(1, kPanelSize / std::max(panel.width, panel.height)); }
int drawn_width(const Panel& panel) { return std::max(panel.width * scale_of(panel), kPanelMinWidth); }

void draw_panel(Canvas& canvas, int x, int y, int image_height, const Panel& panel) {
  const auto [low, high] = finite_range(panel.values);
  const int scale = scale_of(panel), center = x + drawn_width(panel) / 2;
  canvas.text(center, y, panel.title, kInk, Align::center);
  y += Canvas::text_height + kGap;
  const int left = center - panel.width * scale / 2;
  for (int row = 0, i = 0; row < panel.height; ++row) {
    for (int column = 0; column < panel.width; ++column, ++i) {
      const double value = panel.values[static_cast<size_t>(i)];
      const Color color = !std::isfinite(value) ? kNotFinite
                          : high > low          ? viridis((value - low) / (high - low))
                                                : viridis(0);
      canvas.fill(left + column * scale, y + row * scale, scale, scale, color);
    }
  }
  const std::string range = text(std::setprecision(3), "[", low, ", ", high, "]");
  canvas.text(center, y + image_height + kGap, range, kInk, Align::center);
}

/// One axis of the curve: what it spans.
struct Axis {
  double low, high;
  bool logarithmic = false;

  /// 0 at `low`, 1 at `high`.
  double position(double value) const {
    return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

/// The axis that shows all finite losses with a little room around them.
Axis loss_axis(const std::vector<double>& losses) {
  const auto [low, high] = finite_range(losses);
  if (low > 0 && high > 10 * low) return {low / 1.15, high * 1.15, true};
  const double room = high > low ? 0.05 * (high - low) : std::max(0.1 * std::abs(low), 1e-3);
  return {low - room, high + room};
}

/// 1, 2 and 5 times powers of ten, or powers alone from three decades on.
std::vector<double> logarithmic_ticks(const Axis& axis) {
  std::vector<double> ticks;
  for (int decade = static_cast<int>(std::floor(std::log10(axis.low)));; ++decade) {
    for (const int factor : {1, 2, 5}) {
      const double tick = factor * std::pow(10, decade);
      if (!(tick < axis.high)) return ticks;
      if (tick >= axis.low && (factor == 1 || axis.high < 1e3 * axis.low)) ticks.push_back(tick);
    }
  }
}

/// At most seven numbers that are 1, 2 or 5 times a power of ten apart, but no closer than `smallest_step`.
std::vector<double> linear_ticks(const Axis& axis, double smallest_step = 0) {
  const double wanted = std::max((axis.high - axis.low) / 6, smallest_step);
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  const double ratio = wanted / power, step = power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::ceil(axis.low / step);
  for (int i = 0; i < 7 && (first + i) * step <= axis.high; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

void draw_curves(Canvas& canvas, int top, const std::vector<Curve>& curves) {
  std::vector<double> all;
  size_t longest = 2;
  for (const Curve& curve : curves) {
    all.insert(all.end(), curve.losses.begin(), curve.losses.end());
    longest = std::max(longest, curve.losses.size());
  }
  const Axis x{1, static_cast<double>(longest)}, y = loss_axis(all);
  const std::vector<double> x_ticks = linear_ticks(x, 1),
                            y_ticks = y.logarithmic ? logarithmic_ticks(y) : linear_ticks(y);
  int label_width = 0;
  for (const double tick : y_ticks) label_width = std::max(label_width, Canvas::text_width(text(tick)));

  const int left = kMargin + label_width + kGap, width = canvas.width() - kMargin - left;
  const auto column = [&](double value) { return left + x.position(value) * width; };
  const auto row = [&](double value) { return top + (1 - y.position(value)) * kCurveHeight; };

  for (const double tick : y_ticks) {
    const int at = static_cast<int>(row(tick));
    canvas.fill(left, at, width, 1, kGrid);
    canvas.text(left - kGap, at - Canvas::text_height / 2 + 2, text(tick), kInk, Align::right);
  }
  for (const double tick : x_ticks) {
    const int at = static_cast<int>(column(tick));
    canvas.fill(at, top, 1, kCurveHeight, kGrid);
    const int right_most = canvas.width() - Canvas::text_width(text(tick)) / 2 - kGap;
    canvas.text(std::min(at, right_most), top + kCurveHeight + kGap, text(tick), kInk, Align::center);
  }
  canvas.fill(left, top, 1, kCurveHeight, kFrame);
  canvas.fill(left, top + kCurveHeight, width, 1, kFrame);

  for (size_t k = 0; k < curves.size(); ++k) {
    const std::vector<double>& losses = curves[k].losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      if (!std::isfinite(losses[i])) continue;
      const size_t before = i > 0 && std::isfinite(losses[i - 1]) ? i - 1 : i;
      canvas.line(column(static_cast<double>(before + 1)), row(losses[before]),  //
                  column(static_cast<double>(i + 1)), row(losses[i]), kCurveThickness,
                  kCurves[k % kCurves.size()]);
    }
  }
}

/// The curves' names side by side, each in its colour.
void draw_names(Canvas& canvas, int y, const std::vector<Curve>& curves) {
  int width = -kPanelGap;
  for (const Curve& curve : curves) width += Canvas::text_width(curve.name) + kPanelGap;
  int x = (canvas.width() - width) / 2;
  for (size_t k = 0; k < curves.size(); ++k) {
    const int half = Canvas::text_width(curves[k].name) / 2;
    canvas.text(x + half, y, curves[k].name, curves.size() > 1 ? kCurves[k % kCurves.size()] : kInk,
                Align::center);
    x += 2 * half + kPanelGap;
  }
}

/// The pixel column of a power of two.
int column_of(int log2) { return kMargin + (log2 - amp::GradientHistogram::low) * kBinWidth; }

/// Title, names and shares of the zones, bins, and the axis of powers.
constexpr int kHistogramHeight = 4 * (Canvas::text_height + kGap) + kBinHeight;

void draw_histogram(Canvas& canvas, int y, const amp::GradientHistogram& histogram) {
  constexpr int line = Canvas::text_height + kGap;
  const auto& bins = histogram.bins;
  const auto write = [&canvas](int x, int top, const std::string& words) {
    canvas.text(x, top, words, kInk, Align::center);
  };
  write(canvas.width() / 2, y, text("log2 of gradients times ", histogram.scale, ", in float16"));
  y += line;
  const int bottom = y + 2 * line + kBinHeight;
  for (const amp::ZoneSpan& span : amp::kZoneSpans) {
    const int left = column_of(span.low), right = column_of(span.high);
    canvas.fill(left, y, right - left, bottom - y, kZones[static_cast<size_t>(span.zone)]);
    write((left + right) / 2, y + kGap / 2, std::string(span.name));
    write((left + right) / 2, y + kGap / 2 + Canvas::text_height,
          text(std::fixed, std::setprecision(1), 100 * histogram.share(span.zone), "%"));
  }
  const double most = static_cast<double>(std::max<int64_t>(std::ranges::max(bins), 1));
  for (size_t i = 0; i < bins.size(); ++i) {
    // Rounded up: a bin that is not empty is seen.
    const int height = static_cast<int>(std::ceil(kBinHeight * static_cast<double>(bins[i]) / most));
    canvas.fill(column_of(histogram.low + static_cast<int>(i)), bottom - height, kBinWidth - 1, height,
                kCurve);
  }
  canvas.fill(kMargin, bottom, canvas.width() - 2 * kMargin, 1, kFrame);
  for (int log2 = histogram.low; log2 <= histogram.high; log2 += kTickDistance) {
    canvas.fill(column_of(log2), bottom, 1, kGap / 2, kFrame);
    write(column_of(log2), bottom + kGap, text(log2));
  }
}

}  // namespace

Color viridis(double value) {
  return kViridis[static_cast<size_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)))];
}

void write_training_picture(const std::string& path, const std::vector<Panel>& panels,
                            const std::vector<double>& losses) {
  write_comparison_picture(path, panels, {{"loss", losses}});
}

void write_comparison_picture(const std::string& path, const std::vector<Panel>& panels,
                              const std::vector<Curve>& curves) {
  int width = -kPanelGap, image_height = 0;
  for (const Panel& panel : panels) {
    if (panel.values.size() != static_cast<size_t>(panel.width) * static_cast<size_t>(panel.height)) {
      throw Error(text("write_training_picture: panel ", panel.title, " is ", panel.width, " x ",
                       panel.height, " but has ", panel.values.size(), " values"));
    }
    width += drawn_width(panel) + kPanelGap;
    image_height = std::max(image_height, panel.height * scale_of(panel));
  }
  const int line = Canvas::text_height + kGap, panels_height = image_height + 2 * line + kPanelGap;
  const int curve_top = kMargin + panels_height + line;
  Canvas canvas(std::max(width, kMinWidth) + 2 * kMargin, curve_top + kCurveHeight + 2 * line + kMargin,
                kBackground);

  int x = (canvas.width() - width) / 2;
  for (const Panel& panel : panels) {
    draw_panel(canvas, x, kMargin, image_height, panel);
    x += drawn_width(panel) + kPanelGap;
  }
  const int center = canvas.width() / 2;
  draw_names(canvas, curve_top - line, curves);
  draw_curves(canvas, curve_top, curves);
  canvas.text(center, curve_top + kCurveHeight + kGap + line, "step", kInk, Align::center);
  canvas.write_png(path);
}

void write_gradient_picture(const std::string& path, const amp::GradientReport& report) {
  const auto& histograms = report.total().histograms;
  const int count = static_cast<int>(histograms.size());
  Canvas canvas(column_of(amp::GradientHistogram::high) + kMargin,
                2 * kMargin + count * kHistogramHeight + (count - 1) * kPanelGap, kBackground);
  int y = kMargin;
  for (const amp::GradientHistogram& histogram : histograms) {
    draw_histogram(canvas, y, histogram);
    y += kHistogramHeight + kPanelGap;
  }
  canvas.write_png(path);
}

}  // namespace mezzo::examples
