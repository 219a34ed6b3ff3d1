// What the op table says of an op, as data.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/pointwise.h"

namespace mezzo {

enum class OpId : uint16_t {
#define OP(name, ...) name,
#include "autograd/ops.def"
#undef OP
  count
};
inline constexpr size_t kOps = static_cast<size_t>(OpId::count);

/// How often an op can be differentiated.
enum class Order : uint8_t { NoGrad, Once, Twice };

struct OpInfo {
  std::string_view name;
  Order order;
  std::string_view what;
  bool is_pointwise;
};

inline constexpr OpInfo kOpInfo[] = {
#define OP(name, Struct, order, what, parameters, ...) {#name, Order::order, what, false __VA_OPT__(|| true)},
#include "autograd/ops.def"
#undef OP
};

constexpr const OpInfo& info(OpId id) { return kOpInfo[static_cast<size_t>(id)]; }

/// The row of a pointwise struct.
template <class S>
inline constexpr OpId id_of = OpId::count;
#define OP(name, Struct, order, what, parameters, ...) \
  __VA_OPT__(template <> inline constexpr OpId id_of<pointwise::Struct> = OpId::name;)
#include "autograd/ops.def"
#undef OP

}  // namespace mezzo
