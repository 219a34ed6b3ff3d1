#include "tensor/error.h"

#include "tensor/tensor.h"

namespace mezzo {

namespace {
thread_local ModuleScope* innermost_scope = nullptr;
}

void fail(std::string_view op, const std::string& fact, std::initializer_list<Operand> operands,
          std::string_view hint) {
  std::string message = text(op, ": ", fact);
  const char* separator = "; ";
  for (const Operand& operand : operands) {
    if (!operand.tensor.defined()) continue;
    message += text(separator, operand.name, " ", describe(operand.tensor));
    separator = ", ";
  }
  const std::string path = module_path();
  if (!path.empty()) message += text("; in ", path);
  if (!hint.empty()) message += text("; ", hint);
  throw Error(message);
}

ModuleScope::ModuleScope(std::string_view name) : name_(name), outer_(innermost_scope) {
  innermost_scope = this;
}

ModuleScope::~ModuleScope() { innermost_scope = outer_; }

std::string module_path() {
  std::string path;
  for (const ModuleScope* scope = innermost_scope; scope; scope = scope->outer_) {
    if (scope->name_.empty()) continue;
    path = path.empty() ? std::string(scope->name_) : text(scope->name_, ".", path);
  }
  return path;
}

}  // namespace mezzo
