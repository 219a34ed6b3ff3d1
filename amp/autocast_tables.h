// THE autocast tables: what happens to the inputs of each op inside an amp::Autocast guard.
//
// The lists are PyTorch's, the CPU's and CUDA's as different as they are there. Other on purpose, on CUDA:
// - cross_entropy: full. PyTorch lists log_softmax alone and asks it for the dtype of the logits, so that
//   log-probabilities are rounded to 16 bits before they are averaged.
// - 1 / x: a division, which keeps; PyTorch goes through reciprocal, with a second rounding.
// - index_put_: converts what it puts, in or out of a guard; PyTorch widens both.
// amp/autocast.h says where the guard itself is other.
#pragma once

#include <array>
#include <cstdint>

#include "autograd/op_info.h"

namespace mezzo::amp {

/// What becomes of an op's eligible inputs: floating, not float64, on the device of the guard.
enum class Policy : uint8_t {
  keep,          ///< as they are
  low,           ///< to the guard's 16-bit dtype
  low_operands,  ///< the first three to that, the others (of a normalisation) as they are
  full,          ///< to float32
  full_dtype,    ///< as they are, but the op's option `dtype` is float32 if it is not given and the first is
                 ///< eligible
  widest,  ///< to float32 if one of them is, else to the guard's dtype; the other 16-bit dtype is refused
  banned,  ///< the op is refused
};

/// A policy for each op. A value: copy one, change a row, give it to the guard.
class AutocastTable {
 public:
  constexpr Policy operator[](OpId op) const { return policies_[static_cast<size_t>(op)]; }
  constexpr Policy& operator[](OpId op) { return policies_[static_cast<size_t>(op)]; }

 private:
  std::array<Policy, kOps> policies_{};
};

namespace tables {

using enum Policy;

struct Row {
  OpId op;
  Policy cpu, cuda;
};

/// In the order of ops.def.
inline constexpr Row rows[] = {
    // clang-format off
    {OpId::add, keep, keep},
    {OpId::sub, keep, keep},
    {OpId::mul, keep, keep},
    {OpId::div, keep, keep},
    {OpId::floor_divide, keep, keep},
    {OpId::remainder, keep, keep},
    {OpId::fmod, keep, keep},
    {OpId::pow, keep, full},
    {OpId::maximum, keep, keep},
    {OpId::minimum, keep, keep},
    {OpId::clamp_min, keep, keep},
    {OpId::clamp_max, keep, keep},
    {OpId::lerp, keep, keep},
    {OpId::neg, keep, keep},
    {OpId::abs, keep, keep},
    {OpId::sign, keep, keep},
    {OpId::floor, keep, keep},
    {OpId::ceil, keep, keep},
    {OpId::round, keep, keep},
    {OpId::trunc, keep, keep},
    {OpId::square, keep, full},
    {OpId::exp, keep, full},
    {OpId::expm1, keep, full},
    {OpId::log, keep, full},
    {OpId::log1p, keep, full},
    {OpId::log2, keep, full},
    {OpId::sqrt, keep, keep},
    {OpId::rsqrt, keep, full},
    {OpId::reciprocal, keep, full},
    {OpId::sin, keep, keep},
    {OpId::cos, keep, keep},
    {OpId::tanh, keep, keep},
    {OpId::erf, keep, keep},
    {OpId::sigmoid, keep, keep},
    {OpId::log_sigmoid, keep, keep},
    {OpId::relu, keep, keep},
    {OpId::softsign, keep, keep},
    {OpId::gelu, keep, keep},
    {OpId::gelu_tanh, keep, keep},
    {OpId::silu, keep, keep},
    {OpId::softplus, keep, full},
    {OpId::where, keep, keep},
    {OpId::eq, keep, keep},
    {OpId::ne, keep, keep},
    {OpId::lt, keep, keep},
    {OpId::le, keep, keep},
    {OpId::gt, keep, keep},
    {OpId::ge, keep, keep},
    {OpId::logical_and, keep, keep},
    {OpId::logical_or, keep, keep},
    {OpId::logical_xor, keep, keep},
    {OpId::logical_not, keep, keep},
    {OpId::isnan, keep, keep},
    {OpId::isinf, keep, keep},
    {OpId::isfinite, keep, keep},
    {OpId::slope, keep, keep},
    {OpId::to, keep, keep},
    {OpId::clone, keep, keep},
    {OpId::view, keep, keep},
    {OpId::permute, keep, keep},
    {OpId::expand, keep, keep},
    {OpId::slice, keep, keep},
    {OpId::split, keep, keep},
    {OpId::cat, widest, keep},
    {OpId::embed, keep, keep},
    {OpId::gather, keep, keep},
    {OpId::scatter, keep, keep},
    {OpId::scatter_add, keep, widest},
    {OpId::index_select, keep, keep},
    {OpId::embedding, keep, keep},
    {OpId::sum, keep, full_dtype},
    {OpId::mean, keep, keep},
    {OpId::amax, keep, keep},
    {OpId::amin, keep, keep},
    {OpId::any, keep, keep},
    {OpId::all, keep, keep},
    {OpId::argmax, keep, keep},
    {OpId::argmin, keep, keep},
    {OpId::prod, full, full_dtype},
    {OpId::var, keep, keep},
    {OpId::std, keep, keep},
    {OpId::norm, keep, full_dtype},
    {OpId::logsumexp, keep, full},
    {OpId::softmax, keep, full_dtype},
    {OpId::log_softmax, keep, full_dtype},
    {OpId::softmax_grad, keep, keep},
    {OpId::matmul, low, low},
    {OpId::addmm, low, low},
    {OpId::linear, low, low},
    {OpId::linear_relu, low, low},
    {OpId::gelu_linear, low, low},
    {OpId::conv2d, low, low},
    {OpId::conv2d_input_grad, keep, keep},
    {OpId::conv2d_weight_grad, keep, keep},
    {OpId::scaled_dot_product_attention, low, low},
    {OpId::max_pool2d, keep, keep},
    {OpId::max_pool2d_grad, keep, keep},
    {OpId::batch_norm, keep, keep},
    {OpId::batch_norm_grad, keep, keep},
    {OpId::batch_norm_relu, keep, keep},
    {OpId::conv1x1_stats, low_operands, low_operands},
    {OpId::layer_norm, keep, full},
    {OpId::layer_norm_grad, keep, keep},
    {OpId::l1_loss, full, full},
    {OpId::mse_loss, full, full},
    {OpId::nll_loss, full, full},
    {OpId::cross_entropy, full, full},
    {OpId::binary_cross_entropy, full, banned},
    {OpId::binary_cross_entropy_with_logits, full, full},
    // clang-format on
};

constexpr bool each_op_has_its_row() {
  if (std::size(rows) != kOps) return false;
  for (size_t i = 0; i < kOps; ++i) {
    if (rows[i].op != static_cast<OpId>(i)) return false;
  }
  return true;
}
static_assert(each_op_has_its_row(),
              "autocast_tables.h needs a row for each row of autograd/ops.def, in its order");

constexpr AutocastTable column(Policy Row::*device) {
  AutocastTable table;
  for (const Row& row : rows) table[row.op] = row.*device;
  return table;
}

}  // namespace tables

inline constexpr AutocastTable cpu_table = tables::column(&tables::Row::cpu);
inline constexpr AutocastTable cuda_table = tables::column(&tables::Row::cuda);

}  // namespace mezzo::amp
