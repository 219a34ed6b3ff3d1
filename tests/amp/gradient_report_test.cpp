// GradientReport: what float16 makes of hand-made gradients, at scale 1 and at another.
#include "amp/gradient_report.h"

#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;
using amp::GradientReport, amp::Zone;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kEps32 = 0x1p-23;

GradientReport report_of(const Tensor& gradient, const amp::GradientReportOptions& options = {}) {
  GradientReport report({}, options);
  report.add("g", gradient);
  return report;
}

/// Lost, subnormal, normal, overflowed.
using Zones = std::array<int64_t, 4>;
Zones zones(const GradientReport& report, size_t scale = 0) {
  return report.entries().at(0).histograms.at(scale).zones;
}
int64_t bin(const GradientReport& report, int log2, size_t scale = 0) {
  const auto& histogram = report.total().histograms.at(scale);
  return histogram.bins.at(static_cast<size_t>(log2 - histogram.low));
}

}  // namespace

TEST_CASE("gradient report: zones begin where float16 rounds to another kind of number") {
  struct Edge {
    double value;
    Zone zone;
  } const edges[] = {
      {1e-45, Zone::lost},
      {1e-8, Zone::lost},
      {2.98e-8, Zone::lost},
      {0x1p-25, Zone::lost},  // half of the smallest: a tie, and 0 is even
      {0x1p-25 * (1 + kEps32), Zone::subnormal},
      {3e-8, Zone::subnormal},
      {0x1p-24, Zone::subnormal},
      {6.1e-5, Zone::subnormal},
      {0x1p-14 - 0x1p-24, Zone::subnormal},
      {0x1p-14, Zone::normal},
      {1, Zone::normal},
      {65504, Zone::normal},
      {65519.996, Zone::normal},
      {65520, Zone::overflowed},
      {3e38, Zone::overflowed},
  };
  for (const Edge& edge : edges) {
    for (const double sign : {1.0, -1.0}) {
      CAPTURE(sign * edge.value);
      const GradientReport report = report_of(make({sign * edge.value}, float32), {.scale = 1});
      Zones expected{};
      expected[static_cast<size_t>(edge.zone)] = 1;
      CHECK(zones(report) == expected);
      CHECK(zones(report, 1) == expected);
    }
  }
}

TEST_CASE("gradient report: shares at scale 1 and at the present scale") {
  const GradientReport report =
      report_of(make({1e-8, -1e-8, 1e-6, 0.5, 2, 1e-20, 0x1p-30, -0.25}, {2, 4}, float32), {.scale = 65536});
  CHECK(zones(report) == Zones{4, 1, 3, 0});
  // 1e-8 becomes 6.6e-4, 1e-6 0.066, 1e-20 6.6e-16, 2^-30 2^-14, 0.5 32768, -0.25 -16384, 2 131072.
  CHECK(zones(report, 1) == Zones{1, 0, 6, 1});
  const auto& histograms = report.total().histograms;
  CHECK(histograms[0].scale == 1);
  CHECK(histograms[0].share(Zone::lost) == 0.5);
  CHECK(histograms[0].share(Zone::subnormal) == 0.125);
  CHECK(histograms[1].scale == 65536);
  CHECK(histograms[1].share(Zone::normal) == 0.75);
  CHECK(histograms[1].share(Zone::overflowed) == 0.125);
}

TEST_CASE("gradient report: gradients that hold a scale are taken without it") {
  const Tensor gradient = make({1e-8, 3e-5, 0.75, 40}, float32);
  for (const double scale : {0.25, 65536.0, 1000.0}) {
    const GradientReport plain = report_of(gradient, {.scale = scale});
    const GradientReport held = report_of(gradient * scale, {.scale = scale, .holds_scale = scale});
    for (size_t i = 0; i < 2; ++i) {
      CHECK(zones(held, i) == zones(plain, i));
      CHECK(held.total().histograms[i].bins == plain.total().histograms[i].bins);
    }
  }
}

TEST_CASE("gradient report: bins of powers of two, those at the ends open") {
  const GradientReport report = report_of(
      make({1, 1.5, 2 - kEps32, 2, -2, 0x1p-25, 0x1p-48, 0x1p-60, 0x1p32, 3e38}, float32), {.scale = 1024});
  CHECK(bin(report, 0) == 3);
  CHECK(bin(report, 1) == 2);
  CHECK(bin(report, -25) == 1);
  CHECK(bin(report, -48) == 2);
  CHECK(bin(report, 31) == 2);
  CHECK(bin(report, 10, 1) == 3);
  CHECK(bin(report, -15, 1) == 1);
  CHECK(bin(report, -48, 1) == 1);
  CHECK(bin(report, -38, 1) == 1);
  const auto extremes = make({5e-324, std::numeric_limits<double>::max()});
  for (const double scale : {1e-280, 1e300}) {
    const GradientReport beyond = report_of(extremes, {.scale = scale});
    CHECK(bin(beyond, -48, 1) == 1);
    CHECK(bin(beyond, 31, 1) == 1);
    CHECK(zones(beyond, 1) == Zones{1, 0, 0, 1});
  }
}

TEST_CASE("gradient report: zeros, NaN and infinities are counted apart") {
  const GradientReport report = report_of(make({0, -0.0, kNaN, kInf, -kInf, kInf, 1}, float32));
  const GradientReport::Entry& entry = report.entries().at(0);
  CHECK(entry.elements == 7);
  CHECK(entry.zero == 2);
  CHECK(entry.nan == 1);
  CHECK(entry.infinite == 3);
  CHECK(zones(report) == Zones{0, 0, 1, 0});
  CHECK(entry.histograms[0].share(Zone::normal) == 1);
}

TEST_CASE("gradient report: 16-bit, float64 and strided gradients") {
  CHECK(zones(report_of(make({0x1p-24, 0x1p-14, 65504}, float16))) == Zones{0, 1, 2, 0});
  CHECK(zones(report_of(make({0x1p-30, 0x1p-20, 1, 0x1p20}, bfloat16))) == Zones{1, 1, 1, 1});
  CHECK(zones(report_of(make({1e-300, 1e-6, 1, 1e300}))) == Zones{1, 1, 1, 1});
  const Tensor matrix = make({1, 1e-9, 1e6, 1, 1e-9, 1e6}, {2, 3}, float32);
  CHECK(zones(report_of(matrix.t())) == Zones{2, 0, 2, 2});
  CHECK(zones(report_of(matrix.select(1, 1))) == Zones{2, 0, 0, 0});
  CHECK(zones(report_of(matrix.select(1, 2).unsqueeze(0).expand({5, 2}))) == Zones{0, 0, 0, 10});
}

TEST_CASE("gradient report: of tensors that have gradients, in their order, and of all together") {
  const Tensor a = leaf({1, 2}, float32), b = leaf({3}, float32), unused = leaf({4}, float32);
  Tensor hidden = a * 1e-9;
  hidden.retain_grad();
  (hidden.sum() + 1e6 * b.sum()).backward();
  const GradientReport report({{"a", a}, {"unused", unused}, {"b", b}, {"hidden", hidden}}, {.scale = 1});
  REQUIRE(report.entries().size() == 3);
  CHECK(report.entries()[0].name == "a");
  CHECK(zones(report) == Zones{2, 0, 0, 0});
  CHECK(report.entries()[1].name == "b");
  CHECK(report.entries()[2].name == "hidden");
  CHECK(report.total().elements == 5);
  CHECK(report.total().histograms[0].zones == Zones{2, 0, 2, 1});
  CHECK(report.total().histograms[1].zones == Zones{2, 0, 2, 1});
}

TEST_CASE("gradient report: nothing to report") {
  const GradientReport none, empty = report_of(make({}, {0, 3}, float32));
  CHECK(none.entries().empty());
  CHECK(none.total().elements == 0);
  CHECK(empty.entries().size() == 1);
  CHECK(empty.total().elements == 0);
  CHECK(empty.total().histograms[0].share(Zone::lost) == 0);
  CHECK(none.to_string().find("total") != std::string::npos);
}

TEST_CASE("gradient report: as text") {
  GradientReport report({}, {.scale = 65536});
  report.add("body.weight", make({1e-8, 1e-8, 0x1p-20, 0}, float32));
  report.add("body.bias", make({1, kInf, kNaN}, float32));
  // log2 of 1e-8 is -26.6: bins -27, -20 and 0, which the scale moves by 16.
  CHECK(text(report) ==
        R"(gradient     elements      zero       NaN  infinite  times  lost     subnormal  normal   overflowed
body.weight         4         1         0         0  1       66.7 %   33.3 %      0.0 %    0.0 %
                                                     65536    0.0 %    0.0 %    100.0 %    0.0 %
body.bias           3         0         1         1  1        0.0 %    0.0 %    100.0 %    0.0 %
                                                     65536    0.0 %    0.0 %      0.0 %  100.0 %
total               7         1         1         1  1       50.0 %   25.0 %     25.0 %    0.0 %
                                                     65536    0.0 %    0.0 %     75.0 %   25.0 %

log2 |gradient|  -48     -40     -32     -24     -16     -8      0       8       16      24
times 1                               @      +                   +
times 65536                                           @      +                   +
in float16       |lost                  |subnormal |normal                       |overflowed
)");
}

TEST_CASE("gradient report: what is refused") {
  for (const double scale : {0.0, -1.0, kInf, kNaN}) {
    CHECK(error_text([&] { GradientReport({}, {.scale = scale}); }) ==
          text("GradientReport: scales must be positive and finite, not ", scale));
    CHECK(error_text([&] { GradientReport({}, {.holds_scale = scale}); }) != "");
  }
  GradientReport report;
  CHECK(error_text([&] { report.add("g", make({1}, int64)); }) ==
        text("GradientReport.add: needs a floating dtype; gradient [1] int64 ", to_string(test_device())));
  CHECK_THROWS_AS(report.add("g", Tensor()), Error);
  CHECK(report.entries().empty());
}
