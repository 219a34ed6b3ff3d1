#include "tests/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <ostream>

#include "tests/support.h"

namespace mezzo {

namespace {

/// "[2, 0, 1]" for the `linear`-th element in row-major order.
std::string position(const Shape& shape, int64_t linear) {
  Shape index = shape;
  for (int d = shape.dim() - 1; d >= 0; --d) {
    index[d] = linear % shape[d];
    linear /= shape[d];
  }
  return to_string(index);
}

}  // namespace

std::string test_path(std::string_view file) { return text(MEZZO_TESTS_DIR, "/", file); }
std::string golden_path(std::string_view file) { return test_path(text("golden/", file)); }

DType parse_dtype(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  fail("golden", text("no dtype ", name));
}

Golden::Golden(std::string_view name)
    : name_(text(name, ".safetensors")), file_(load_safetensors(golden_path(name_))) {}

Tensor Golden::tensor(std::string_view name) const {
  if (!has(name)) fail("golden", text(name_, " has no tensor ", name));
  return file_.tensors.at(std::string(name)).clone();
}

std::vector<std::string> Golden::keys(std::string_view prefix) const {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : file_.tensors) {
    if (name.starts_with(prefix)) found.push_back(name);
  }
  std::ranges::sort(found);
  return found;
}

const std::string& Golden::metadata(std::string_view key) const {
  const auto found = file_.metadata.find(std::string(key));
  if (found == file_.metadata.end()) fail("golden", text(name_, " has no metadata ", key));
  return found->second;
}

std::ostream& operator<<(std::ostream& out, const Closeness& closeness) {
  return out << (closeness ? "close" : closeness.difference);
}

Closeness close(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (!actual.defined() || !expected.defined())
    return {"undefined: " + describe(actual) + ", " + describe(expected)};
  if (actual.shape() != expected.shape() || actual.dtype() != expected.dtype()) {
    return {describe(actual) + " is not of the kind " + describe(expected)};
  }
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  double scale = 0;
  for (double value : e) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  if (scale == 0) scale = 1;

  std::optional<size_t> worst;
  double worst_error = tolerance * scale;
  for (size_t i = 0; i < e.size(); ++i) {
    const bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    const bool finite = std::isfinite(a[i]) && std::isfinite(e[i]);
    const double error = same ? 0 : finite ? std::abs(a[i] - e[i]) : std::numeric_limits<double>::infinity();
    if (error > worst_error) worst = i, worst_error = error;
  }
  if (!worst) return {};
  std::ostringstream out;
  out.precision(17);
  out << "worst at " << position(expected.shape(), static_cast<int64_t>(*worst)) << ": " << a[*worst]
      << " is not " << e[*worst] << "; difference " << worst_error << ", relative to the largest entry "
      << worst_error / scale << ", allowed " << tolerance;
  return {out.str()};
}

double golden_tolerance(DType dtype) { return dtype == float64 ? 1e-10 : dtype == float32 ? 1e-5 : 0; }

void check_case(const Golden& golden, const std::string& name,
                const std::function<Tensor(const Tensors&)>& function) {
  for (const DType dtype : {float32, float64}) {
    const std::string prefix = text(name, ".", name_of(dtype), ".");
    CAPTURE(prefix);
    const double tolerance = golden_tolerance(dtype);
    Tensors inputs;
    while (golden.has(prefix + "in" + std::to_string(inputs.size()))) {
      const std::string i = std::to_string(inputs.size());
      inputs.push_back(golden.tensor(prefix + "in" + i).to(test_device()));
      if (golden.has(prefix + "grad" + i)) inputs.back().requires_grad_();
    }
    REQUIRE(!inputs.empty());
    const Tensor out = function(inputs);
    CHECK(close(out, golden.tensor(prefix + "out"), tolerance));
    if (!golden.has(prefix + "grad_out")) continue;
    out.backward(golden.tensor(prefix + "grad_out").to(test_device()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      if (inputs[i].requires_grad()) {
        CHECK(close(inputs[i].grad(), golden.tensor(prefix + "grad" + std::to_string(i)), tolerance));
      }
    }
  }
}

}  // namespace mezzo
