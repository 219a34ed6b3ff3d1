// What the training examples share: command line, progress, result, picture.
#include <doctest/doctest.h>
#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "examples/common/options.h"
#include "examples/common/picture.h"
#include "examples/common/progress.h"
#include "examples/common/result.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

using namespace mezzo;
using namespace mezzo::examples;
namespace fs = std::filesystem;

namespace {

/// An empty folder that is gone at the end of the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / text("mezzo-common-test-", ::getpid());
  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

/// Parses a command line; returns CLI11's message, or "" if it was right.
std::string parse(TrainingOptions& options, std::vector<std::string> arguments) {
  CLI::App app;
  add_training_options(app, options);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(arguments);
    return {};
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Image {
  png_image header{};
  std::vector<uint8_t> rgb;

  explicit Image(const std::string& path) {
    header.version = PNG_IMAGE_VERSION;
    REQUIRE(png_image_begin_read_from_file(&header, path.c_str()));
    header.format = PNG_FORMAT_RGB;
    rgb.resize(PNG_IMAGE_SIZE(header));
    REQUIRE(png_image_finish_read(&header, nullptr, rgb.data(), 0, nullptr));
  }
  Color at(size_t x, size_t y) const {
    const uint8_t* p = &rgb[3 * (y * header.width + x)];
    return Color{p[0]} << 16 | Color{p[1]} << 8 | Color{p[2]};
  }
  std::set<Color> colors() const {
    std::set<Color> result;
    for (size_t y = 0; y < header.height; ++y) {
      for (size_t x = 0; x < header.width; ++x) result.insert(at(x, y));
    }
    return result;
  }
};

}  // namespace

TEST_CASE("options: values, defaults and what is refused") {
  Folder folder;
  TrainingOptions options{.steps = 7, .out = folder / "default.png"};
  CHECK(parse(options, {}) == "");
  CHECK(options.steps == 7);
  CHECK(options.device == "cpu");
  CHECK_FALSE(options.threads.has_value());
  CHECK_FALSE(options.json);

  CHECK(parse(options, {"--steps", "20", "--seed", "18446744073709551615", "--threads", "3", "--device",
                        "reference", "--out", folder / "a.png", "--log", folder / "a.jsonl", "--json"}) ==
        "");
  CHECK(options.steps == 20);
  CHECK(options.seed == std::numeric_limits<uint64_t>::max());
  CHECK(options.threads == 3);
  CHECK(options.device == "reference");
  CHECK(options.out == folder / "a.png");
  CHECK(options.log == folder / "a.jsonl");
  CHECK(options.json);

  CHECK(options.amp == "off");
  CHECK(amp_dtype(options) == std::nullopt);
  CHECK(parse(options, {"--amp", "bf16"}) == "");
  CHECK(amp_dtype(options) == bfloat16);
  CHECK(parse(options, {"--amp", "fp16"}) == "");
  CHECK(amp_dtype(options) == float16);

  using Arguments = std::vector<std::string>;
  for (const Arguments& wrong : {Arguments{"--steps", "0"},
                                 {"--steps", "-3"},
                                 {"--steps", "1.5"},
                                 {"--steps"},
                                 {"--threads", "0"},
                                 {"--seed", "-1"},
                                 {"--seed", "x"},
                                 {"--device", "tpu"},
                                 {"--amp", "fp32"}}) {
    CAPTURE(wrong.back());
    CHECK(contains(parse(options, wrong), wrong.front()));
  }
  for (const char* unknown : {"--epochs", "--save", "--step", "checkerboard"}) {
    CHECK(contains(parse(options, {unknown}), unknown));
  }
}

TEST_CASE("options: an example that counts in epochs") {
  Folder folder;
  TrainingOptions options{.epochs = 3, .out = folder / "a.png"};
  CHECK(parse(options, {}) == "");
  CHECK(options.epochs == 3);
  CHECK(parse(options, {"--epochs", "4"}) == "");
  CHECK(options.epochs == 4);
  CHECK(contains(parse(options, {"--epochs", "0"}), "--epochs"));
  CHECK(contains(parse(options, {"--steps", "5"}), "--steps"));
}

TEST_CASE("options: a path that cannot be written is said before training") {
  Folder folder;
  const std::string lost = folder / "missing/a.png";
  TrainingOptions options{.out = folder / "a.png"};
  for (const char* option : {"--out", "--log"}) {
    CHECK(parse(options, {option, lost}) ==
          text(option, ": cannot write ", lost, ": there is no folder ", folder / "missing"));
    CHECK(contains(parse(options, {option, folder.path.string()}), "Is a directory"));
    options = {.out = folder / "a.png"};
  }
  options.out = lost;
  CHECK(contains(parse(options, {}), "there is no folder"));
  CHECK(contains(parse(options, {"--out", ""}), "--out"));

  std::ofstream(folder / "old.png") << "kept";
  CHECK(parse(options, {"--out", folder / "old.png", "--log", folder / "new.jsonl"}) == "");
  CHECK(contents(folder / "old.png") == "kept");
  CHECK_FALSE(fs::exists(folder / "new.jsonl"));
}

TEST_CASE("run: exit codes") {
  CLI::App app;
  int trained = 0;
  std::string name = "program", unknown = "--unknown", help = "--help";
  char *good[] = {name.data()}, *bad[] = {name.data(), unknown.data()}, *asks[] = {name.data(), help.data()};
  CHECK(run(app, 1, good, [&] { ++trained; }) == 0);
  CHECK(trained == 1);
  CHECK(run(app, 2, bad, [&] { ++trained; }) == static_cast<int>(CLI::ExitCodes::ExtrasError));
  CHECK(run(app, 2, asks, [&] { ++trained; }) == 0);
  CHECK(trained == 1);
  CHECK(run(app, 1, good, [] { throw Error("conv2d: wrong"); }) == 1);
}

TEST_CASE("progress: plain lines at the marks and every ten seconds") {
  std::ostringstream out;
  {
    Progress progress(1000, out, false);
    for (int step = 1; step <= 1000; ++step) progress.update(step, 1.0 / step, 0.05 * step);
  }
  const std::vector<std::string> lines = lines_of(out.str());
  std::vector<int> shown;
  for (const std::string& line : lines) shown.push_back(std::stoi(line.substr(std::string("step ").size())));
  CHECK(shown == std::vector<int>{10, 20, 50, 100, 200, 400, 500, 700, 900, 1000});
  CHECK(lines[3] == "step 100/1000  loss 0.01  20 steps/s  45 s left");
  CHECK_FALSE(contains(out.str(), "\r"));
}

TEST_CASE("progress: one line redrawn on a terminal, closed at the end and by an exception") {
  std::ostringstream whole, broken;
  {
    Progress progress(100, whole, true);
    for (int step = 1; step <= 100; ++step) progress.update(step, 0.5, 0.0625 * step);
  }
  const std::string shown = whole.str();
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 1);
  CHECK(shown.back() == '\n');
  CHECK(std::count(shown.begin(), shown.end(), '\r') == 51);  // steps 1, 3, ... 99 are 0.125 s apart; and 100
  {
    Progress progress(100, broken, true);
    progress.update(1, 0.5, 1);
    CHECK(broken.str().back() != '\n');
  }
  CHECK(broken.str().back() == '\n');
}

TEST_CASE("progress: time for people") {
  CHECK(duration(0.26) == "0.3 s");
  CHECK(duration(42.4) == "42 s");
  CHECK(duration(120) == "2.0 min");
  CHECK(duration(45 * 60) == "45 min");
  CHECK(duration(3.2 * 3600) == "3.2 h");
}

TEST_CASE("progress: the log holds one JSON object a step") {
  Folder folder;
  std::ofstream(folder / "a.jsonl") << "an older run\n";
  std::ostringstream out;
  Progress progress(3, out, false, folder / "a.jsonl");
  const std::vector<double> losses = {0.5, 0.1, std::numeric_limits<double>::quiet_NaN()};
  for (size_t i = 0; i < 3; ++i)
    progress.update(static_cast<int64_t>(i + 1), losses[i], 0.25 * double(i + 1));

  const std::vector<std::string> lines = lines_of(contents(folder / "a.jsonl"));
  REQUIRE(lines.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const auto entry = nlohmann::json::parse(lines[i]);
    CHECK(entry.size() == 3);
    CHECK(entry["step"] == i + 1);
    CHECK(entry["seconds"] == 0.25 * double(i + 1));
    if (i < 2) CHECK(entry["loss"] == losses[i]);
  }
  CHECK(nlohmann::json::parse(lines[2])["loss"].is_null());
  CHECK_THROWS_WITH_AS(Progress(3, out, false, folder / "missing/a.jsonl"),
                       doctest::Contains("there is no folder"), Error);
}

TEST_CASE("result: the keys, and the last loss") {
  TrainingRecord record;
  for (const double loss : {3.0, 2.0, 1.0}) {
    record.begin_step();
    record.end_step(loss);
  }
  const nlohmann::json result = record.result({.device = "reference", .amp = "bf16"}, float32,
                                              {{"pixel_accuracy", 0.75}, {"target_mean", 0.5}});
  std::set<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"loss", "seconds", "median_step_ms", "peak_mib", "training_mib",
                                      "live_peak_mib", "device", "dtype", "amp", "pixel_accuracy",
                                      "target_mean"});
  CHECK(record.losses() == std::vector<double>{3, 2, 1});
  CHECK(result["loss"] == 1.0);
  CHECK(result["device"] == "reference");
  CHECK(result["dtype"] == "float32");
  CHECK(result["amp"] == "bf16");
  CHECK(result["pixel_accuracy"] == 0.75);
  CHECK(result["median_step_ms"].get<double>() <= 1e3 * result["seconds"].get<double>());
  CHECK(median_step_ms({90, 80, 3, 1, 2}) == 2);
  CHECK(median_step_ms({90, 80}) == 90);
  CHECK(result["peak_mib"].get<double>() > 1);
  CHECK(result["training_mib"].get<double>() >= 0);
}

TEST_CASE("picture: viridis") {
  CHECK(viridis(0) == 0x440154);
  CHECK(viridis(128 / 255.0) == 0x21918c);
  CHECK(viridis(1) == 0xfde725);
  CHECK(viridis(-1) == viridis(0));
  CHECK(viridis(2) == viridis(1));
}

TEST_CASE("picture: a canvas survives its PNG") {
  Folder folder;
  Canvas canvas(31, 17, 0xffffff);
  canvas.fill(2, 3, 4, 5, 0x123456);
  canvas.fill(29, 15, 100, 100, 0xff0000);  // cut off at the edge
  canvas.line(10, 8, 20, 8, 2, 0x0000ff);
  canvas.write_png(folder / "a.png");
  const Image image(folder / "a.png");
  CHECK(image.header.width == 31);
  CHECK(image.header.height == 17);
  CHECK(image.at(2, 3) == 0x123456);
  CHECK(image.at(5, 7) == 0x123456);
  CHECK(image.at(6, 7) == 0xffffff);
  CHECK(image.at(30, 16) == 0xff0000);
  CHECK(image.at(15, 7) == 0x0000ff);
  CHECK(image.at(15, 8) == 0x0000ff);
  CHECK(image.at(15, 11) == 0xffffff);
  CHECK_THROWS_WITH_AS(canvas.write_png(folder / "missing/a.png"),
                       doctest::Contains("write_png: cannot write"), Error);
}

TEST_CASE("picture: text") {
  Canvas canvas(40, 20, 0xffffff);
  canvas.text(38, 0, "1L", 0x000000, Align::right);
  // The stem of the 1 and the foot of the l, at twice the size of the font.
  CHECK(Canvas::text_width("1L") == 22);
  const int left = 38 - 22;
  CHECK(canvas.at(left + 4, 0) == 0x000000);
  CHECK(canvas.at(left + 5, 13) == 0x000000);
  CHECK(canvas.at(left, 0) == 0xffffff);
  CHECK(canvas.at(left + 12 + 2, 12) == 0x000000);
  CHECK(canvas.at(left + 12 + 2, 8) == 0xffffff);
}

TEST_CASE("picture: panels through their own range, the curve beneath") {
  Folder folder;
  const std::string path = folder / "a.png";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Panel panel{"output", 2, 2, {-5, 5, 0, nan}};
  write_training_picture(path, {panel, {"target", 3, 1, {7, 7, 7}}}, {1.0, 0.5, nan, 0.01});
  const std::set<Color> colors = Image(path).colors();
  for (const Color color : {viridis(0), viridis(0.5), viridis(1)}) CHECK(colors.count(color) == 1);
  CHECK(colors.count(0xd62728) == 1);  // the value that is none
  CHECK(colors.count(0x31688e) == 1);  // the curve

  for (const std::vector<double>& losses : {std::vector<double>{0.5},
                                            {0.5, 0.5},
                                            {0, 0},
                                            {nan, nan},
                                            {-1, 3},
                                            {1, std::nextafter(1.0, 2.0)},
                                            {1e-9, 1e9}}) {
    CHECK_NOTHROW(write_training_picture(path, {panel}, losses));
  }
  CHECK_THROWS_AS(write_training_picture(path, {{"output", 2, 2, {1, 2, 3}}}, {1.0}), Error);
  CHECK_THROWS_AS(write_training_picture(path, {{"output", 1, 2, {1, 2, 3}}}, {1.0}), Error);
}

TEST_CASE("picture: gradients move from the lost zone to the right with their scale") {
  Folder folder;
  amp::GradientReport report({}, {.scale = 65536});
  report.add("w", tensor({0x1p-30, 0x1p-30, 0x1p-40, 0}));
  write_gradient_picture(folder / "a.png", report);
  const Image image(folder / "a.png");
  for (const Color zone : {0xf7cdc9u, 0xfbeab5u, 0xd5ecd2u}) CHECK(image.colors().count(zone) == 1);

  // Heights in pixels of the bins, by column, in the upper and the lower half.
  const auto bars = [&image](size_t top) {
    std::map<size_t, size_t> heights;
    for (size_t y = top; y < top + image.header.height / 2; ++y) {
      for (size_t x = 0; x < image.header.width; ++x) {
        if (image.at(x, y) == 0x31688e) ++heights[x];
      }
    }
    return heights;
  };
  const auto before = bars(0), after = bars(image.header.height / 2);
  REQUIRE(before.size() == 18);  // two bins of 9 columns
  const size_t low = before.begin()->first, high = before.rbegin()->first;
  CHECK(high - low == 100 + 8);  // 10 powers of two, of 10 columns
  CHECK(before.at(high) == 2 * before.at(low));
  REQUIRE(after.size() == 18);
  for (const auto& [x, height] : before) CHECK(after.at(x + 160) == height);  // 2^16

  // Where they stand: both are lost; 2^-14, of 2^-30, is the first normal number, 2^-24 the first subnormal
  // one.
  const auto zone_above = [&image](size_t x, size_t top) {
    while (image.at(x, top) != 0x31688e) ++top;
    return image.at(x, top - 1);
  };
  CHECK(zone_above(high, 0) == 0xf7cdc9);
  CHECK(zone_above(high + 160, image.header.height / 2) == 0xd5ecd2);
  CHECK(zone_above(low + 160, image.header.height / 2) == 0xfbeab5);

  CHECK_NOTHROW(write_gradient_picture(folder / "empty.png", amp::GradientReport()));
  CHECK_THROWS_AS(write_gradient_picture(folder / "missing/a.png", report), Error);
}
