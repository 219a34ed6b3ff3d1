// Memory and race checker for kernels, after compute-sanitizer's memcheck and racecheck.
//
// .cu files are compiled with -fsanitize=thread but linked without its library: the calls that the compiler
// puts before each access land in checker_hooks.cpp. (The library itself knows neither blocks nor barriers.)
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

enum class AccessKind : std::uint8_t { read, write };

/// Looks at an access of the running CUDA thread: it must hit memory that a kernel may touch, and no other
/// thread may have touched the same bytes, one of the two writing, since a barrier kept them apart. Two
/// atomic accesses never conflict. `aligned`: the compiler relies on an address that is a multiple of the
/// size.
void check_access(const volatile void* address, std::size_t bytes, AccessKind kind, bool atomic, bool aligned,
                  const void* return_address);

}  // namespace emulator
