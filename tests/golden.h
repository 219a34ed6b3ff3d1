// Numbers that PyTorch wrote (tests/golden/make_golden.py says how), and how close is close.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/node.h"
#include "tensor/io/safetensors.h"

namespace mezzo {

/// One file of tests/golden/. Throws Error for a file that is not what it says, and for a name that is not in
/// it.
class Golden {
 public:
  /// Reads tests/golden/NAME.safetensors.
  explicit Golden(std::string_view name);

  /// A new tensor in the CPU's memory, with the stored dtype.
  Tensor tensor(std::string_view name) const;
  bool has(std::string_view name) const { return file_.tensors.contains(std::string(name)); }
  /// Names that begin with `prefix`, sorted.
  std::vector<std::string> keys(std::string_view prefix = {}) const;
  const std::string& metadata(std::string_view key) const;

 private:
  std::string name_;
  Safetensors file_;
};

/// The dtype with this name_of(): "float32".
DType parse_dtype(std::string_view name);

/// Path of a file of tests/.
std::string test_path(std::string_view file);
/// Path of a file of tests/golden/.
std::string golden_path(std::string_view file);

/// Whether tensors agree, and if not, where they differ most. `CHECK(close(a, b, 1e-5))` prints that.
struct [[nodiscard]] Closeness {
  std::string difference;  ///< empty if they agree
  explicit operator bool() const { return difference.empty(); }
};
std::ostream& operator<<(std::ostream& out, const Closeness& closeness);

/// Agreement: the same shape and dtype, NaN and infinities in the same places, and elsewhere
/// |actual - expected| <= tolerance * max |expected| (over its finite entries; * 1 if that is 0).
Closeness close(const Tensor& actual, const Tensor& expected, double tolerance);

/// The project's tolerance of a comparison with PyTorch in this dtype: 1e-10 in float64, 1e-5 in float32,
/// else exact.
double golden_tolerance(DType dtype);

/// Runs `function` on the inputs CASE.DTYPE.in0, in1, ... on test_device(), in float32 and in float64, and
/// checks the output against CASE.DTYPE.out and the gradients for CASE.DTYPE.grad_out against grad0, grad1,
/// ..., where stored.
void check_case(const Golden& golden, const std::string& name,
                const std::function<Tensor(const Tensors&)>& function);

}  // namespace mezzo
