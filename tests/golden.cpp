#include "tests/golden.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "tests/support.h"

namespace mezzo {

namespace {

using nlohmann::json;

DType safetensors_dtype(const std::string& name) {
  static const std::map<std::string, DType> dtypes{{"F64", float64},   {"F32", float32}, {"F16", float16},
                                                   {"BF16", bfloat16}, {"I64", int64},   {"I32", int32},
                                                   {"U8", uint8},      {"BOOL", bool_}};
  const auto found = dtypes.find(name);
  if (found == dtypes.end()) fail("golden", "dtype " + name + " is not known");
  return found->second;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("golden", path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

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

std::string golden_path(std::string_view file) { return text(MEZZO_GOLDEN_DIR, "/", file); }

DType parse_dtype(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  fail("golden", text("no dtype ", name));
}

// The format: the header's length as 8 bytes, little end first; the header in JSON, name -> {dtype, shape,
// data_offsets: [begin, end]} and "__metadata__"; the bytes of the tensors, row-major, that the offsets count
// in.
Golden::Golden(std::string_view name) : name_(text(name, ".safetensors")) {
  const std::string file = read_file(golden_path(name_));
  uint64_t header_size = 0;
  if (file.size() < sizeof header_size) fail("golden", name_ + " is shorter than its length field");
  std::memcpy(&header_size, file.data(), sizeof header_size);
  if (header_size > file.size() - sizeof header_size) fail("golden", name_ + " is shorter than its header");
  data_ = file.substr(sizeof header_size + header_size);

  const json header = json::parse(file.substr(sizeof header_size, header_size));
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      metadata_ = value.get<decltype(metadata_)>();
      continue;
    }
    const auto [begin, end] = value.at("data_offsets").get<std::pair<size_t, size_t>>();
    const Entry entry{safetensors_dtype(value.at("dtype")),
                      Shape(value.at("shape").get<std::vector<int64_t>>()), begin};
    const size_t bytes = static_cast<size_t>(entry.shape.numel()) * size_of(entry.dtype);
    if (begin > end || end > data_.size() || end - begin != bytes) {
      fail("golden", text(name_, ": ", key, " has bytes ", begin, " to ", end, " of ", data_.size(),
                          " but needs ", bytes));
    }
    entries_.emplace(key, entry);
  }
}

Tensor Golden::tensor(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail("golden", text(name_, " has no tensor ", name));
  const Entry& entry = found->second;
  const Tensor result = empty(entry.shape, {.dtype = entry.dtype});
  const size_t bytes = static_cast<size_t>(result.numel()) * size_of(entry.dtype);
  dispatch(entry.dtype, [&]<class T>(T) {
    if (bytes > 0) std::memcpy(static_cast<void*>(result.data<T>()), data_.data() + entry.begin, bytes);
  });
  return result;
}

std::vector<std::string> Golden::keys(std::string_view prefix) const {
  std::vector<std::string> found;
  for (auto entry = entries_.lower_bound(prefix); entry != entries_.end() && entry->first.starts_with(prefix);
       ++entry) {
    found.push_back(entry->first);
  }
  return found;
}

const std::string& Golden::metadata(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) fail("golden", text(name_, " has no metadata ", key));
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
                const std::function<Tensor(const std::vector<Tensor>&)>& function) {
  for (const DType dtype : {float32, float64}) {
    const std::string prefix = text(name, ".", name_of(dtype), ".");
    CAPTURE(prefix);
    const double tolerance = golden_tolerance(dtype);
    std::vector<Tensor> inputs;
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
