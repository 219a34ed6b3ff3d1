// A program started on a processor that lacks what its CPU kernels were built for says so instead of
// crashing.
#pragma once

#include <span>
#include <string_view>

namespace mezzo {

/// Throws Error if this processor, or its operating system, lacks an instruction set that the CPU kernels
/// were compiled for. Itself compiled for any x86-64.
void check_cpu();

/// Throws Error with the names in `needed` that are not in `has`, if there are any.
void check_cpu_features(std::span<const std::string_view> needed, std::span<const std::string_view> has);

namespace cpu {
/// Instruction sets that the CPU kernels were compiled for, by the compiler's names. Data, so that reading it
/// runs no instruction of theirs.
extern const std::span<const std::string_view> built_for;
}  // namespace cpu

}  // namespace mezzo
