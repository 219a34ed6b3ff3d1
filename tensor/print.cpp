// Tensors as text, the way PyTorch prints them. A tensor of more than kSummarized elements shows kEdge of
// them at either end of each long dimension.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>

#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

constexpr int64_t kSummarized = 1000;
constexpr int64_t kEdge = 3;
constexpr size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "tensor(";

/// printf of one double; a NaN has no sign.
std::string print(const char* format, double value) {
  if (std::isnan(value)) return "nan";
  std::string buffer(static_cast<size_t>(std::snprintf(nullptr, 0, format, value)), '\0');
  std::snprintf(buffer.data(), buffer.size() + 1, format, value);
  return buffer;
}

/// One way of writing for all elements of a tensor, and one width: whole numbers as `3.`, others with four
/// decimals, and with an exponent where their magnitudes lie far apart or far from 1.
class Format {
 public:
  explicit Format(const std::vector<Scalar>& values) {
    double smallest = std::numeric_limits<double>::infinity(), largest = 0;
    for (const Scalar& value : values) {
      if (!counts(value)) continue;
      const double magnitude = std::abs(value.to<double>());
      smallest = std::min(smallest, magnitude);
      largest = std::max(largest, magnitude);
      whole_ = whole_ && magnitude == std::ceil(magnitude);
    }
    scientific_ = largest > 0 && (largest / smallest > 1000 || largest > 1e8 || smallest < 1e-4);
    for (const Scalar& value : values) {
      if (value.dtype() != float64 || counts(value)) width_ = std::max(width_, written(value).size());
    }
  }

  size_t width() const { return width_; }

  std::string operator()(const Scalar& value) const {
    std::string text = written(value);
    if (text.size() < width_) text.insert(0, width_ - text.size(), ' ');
    return text;
  }

 private:
  /// True for the floating values that choose format and width: 0, inf and NaN have no say.
  static bool counts(const Scalar& value) {
    const double number = value.to<double>();
    return value.dtype() == float64 && std::isfinite(number) && number != 0;
  }

  std::string written(const Scalar& value) const {
    if (value.dtype() == bool_) return value.to<bool>() ? "True" : "False";
    if (value.dtype() == int64) return std::to_string(value.to<int64_t>());
    const double number = value.to<double>();
    if (scientific_) return print("%.4e", number);
    if (!whole_) return print("%.4f", number);
    return print("%.0f", number) + (std::isfinite(number) ? "." : "");
  }

  bool whole_ = true, scientific_ = false;
  size_t width_ = 1;
};

/// Writes the brackets of a tensor in the CPU's memory.
class Writer {
 public:
  explicit Writer(const Tensor& tensor)
      : shape_(tensor.shape()),
        summarized_(tensor.numel() > kSummarized),
        values_(shown_values(tensor)),
        format_(values_) {}

  std::string write() { return write(0, kPrefix.size()); }

 private:
  /// Entries of dimension d that are shown, ascending.
  std::vector<int64_t> shown(int d) const {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < shape_[d]; ++i) {
      if (cut(d) && i == kEdge) i = shape_[d] - kEdge;
      indices.push_back(i);
    }
    return indices;
  }

  bool cut(int d) const { return summarized_ && shape_[d] > 2 * kEdge; }

  std::vector<Scalar> shown_values(const Tensor& tensor) const {
    std::vector<int64_t> offsets{0};
    for (int d = 0; d < shape_.dim(); ++d) {
      std::vector<int64_t> inner;
      for (int64_t offset : offsets) {
        for (int64_t i : shown(d)) inner.push_back(offset + i * tensor.strides()[d]);
      }
      offsets = std::move(inner);
    }
    std::vector<Scalar> values;
    values.reserve(offsets.size());
    dispatch(tensor.dtype(), [&]<class T>(T) {
      const T* data = tensor.data<T>();
      for (int64_t offset : offsets) {
        if constexpr (is_half(dtype_of<T>))
          values.emplace_back(static_cast<float>(data[offset]));
        else
          values.emplace_back(data[offset]);
      }
    });
    return values;
  }

  /// Everything below dimension d, beginning at column `indent`; takes the values that it writes.
  std::string write(int d, size_t indent) {
    if (d == shape_.dim()) return format_(values_[next_++]);
    const bool innermost = d == shape_.dim() - 1;
    std::vector<std::string> entries;
    for (int64_t i : shown(d)) {
      if (cut(d) && i == shape_[d] - kEdge) entries.push_back(innermost ? " ..." : "...");
      entries.push_back(write(d + 1, indent + 1));
    }
    const size_t per_line =
        innermost ? std::max<size_t>(1, (kLineWidth - std::min(indent, kLineWidth)) / (format_.width() + 2))
                  : 1;
    const std::string line_break(innermost ? 1 : static_cast<size_t>(shape_.dim() - 1 - d), '\n');
    std::string text = "[";
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) text += i % per_line ? ", " : "," + line_break + std::string(indent + 1, ' ');
      text += entries[i];
    }
    return text + "]";
  }

  Shape shape_;
  bool summarized_;
  std::vector<Scalar> values_;
  Format format_;
  size_t next_ = 0;
};

/// What is not the default, in PyTorch's order.
std::vector<std::string> suffixes(const Tensor& tensor) {
  std::vector<std::string> found;
  const bool empty = tensor.numel() == 0;
  const DType dtype = tensor.dtype();
  if (tensor.device().type != Device::Type::cpu)
    found.push_back("device='" + to_string(tensor.device()) + "'");
  if (empty && tensor.dim() > 1) {
    std::string size = to_string(tensor.shape());
    size.front() = '(';
    size.back() = ')';
    found.push_back("size=" + size);
  }
  const bool visible = !empty && (dtype == int64 || dtype == bool_);  // the elements say it
  if (dtype != float32 && !visible) found.push_back(text("dtype=", name_of(dtype)));
  if (const std::string_view op = history_name(tensor); !op.empty()) {
    found.push_back(text("grad_fn=<", op, ">"));
  } else if (tensor.requires_grad()) {
    found.push_back("requires_grad=True");
  }
  return found;
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  std::string text(kPrefix);
  if (!tensor.defined()) return text + "undefined)";
  text += tensor.numel() == 0 ? "[]" : Writer(tensor.detach().to(Device())).write();
  size_t column =
      text.size() - text.rfind('\n') + 1;  // as PyTorch counts: without a line break, 2 more than there are
  for (const std::string& suffix : suffixes(tensor)) {
    const bool fits = column + suffix.size() + 2 <= kLineWidth;
    text += (fits ? ", " : ",\n" + std::string(kPrefix.size(), ' ')) + suffix;
    column = suffix.size() + (fits ? column + 2 : kPrefix.size());
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

}  // namespace mezzo
