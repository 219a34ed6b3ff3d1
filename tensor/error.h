// The one error type and the one format of its text.
#pragma once

#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mezzo {

class Tensor;

/// What every wrong call throws. Text: `op: fact; operands with shape, dtype and device; in module.path;
/// hint`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What went wrong on a device, outside of any op's checks. The op that was running adds its name
/// (autograd/call.h).
class DeviceError : public Error {
 public:
  /// `fact` without a name before it.
  explicit DeviceError(const std::string& fact) : Error(fact) {}
};

/// A tensor under the name that the message gives it. An undefined tensor is left out of the text.
struct Operand {
  std::string_view name;
  const Tensor& tensor;
};

/// Throws an Error in the one format. `op` is the public name of what was called.
[[noreturn]] void fail(std::string_view op, const std::string& fact,
                       std::initializer_list<Operand> operands = {}, std::string_view hint = {});

/// Joins values into a text: `text("expected ", 3, " channels")`.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// While it lives, messages of this thread say which module they came from: paths of nested scopes are joined
/// with dots. nn::Module opens one around each forward.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::string_view name_;
  ModuleScope* outer_;
  friend std::string module_path();
};

/// The path of the innermost open scope, "" outside any.
std::string module_path();

}  // namespace mezzo
