// What the processor has. A program started on one that lacks what its CPU kernels were built for says so
// instead of crashing.
#pragma once

#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace mezzo {

/// Whether this processor has an instruction set, by the compiler's name, and its operating system has
/// switched it on. Itself compiled for any x86-64, as are the checks.
bool cpu_has(std::string_view feature);

/// Throws Error if this processor, or its operating system, lacks an instruction set that the CPU kernels
/// were compiled for.
void check_cpu();

/// Throws Error with the names in `needed` that are not in `has`, if there are any.
void check_cpu_features(std::span<const std::string_view> needed, std::span<const std::string_view> has);

namespace cpu {
/// Instruction sets that the CPU kernels were compiled for, by the compiler's names. Data, so that reading it
/// runs no instruction of theirs.
extern const std::span<const std::string_view> built_for;

/// What multiplies matrices of a 16-bit dtype on this processor: "AMX", "AVX512_BF16"; empty if they are
/// converted to float32 first.
std::string_view product_unit(DType dtype);
}  // namespace cpu

}  // namespace mezzo
