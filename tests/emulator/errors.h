// What the emulator answers when something is wrong.
#pragma once

#include <driver_types.h>

#include <string>

namespace emulator {

/// An error on the device: prints it and ends the process or, with CUDA_EMULATOR_FATAL=0, makes every later
/// call return `code`, as a card does.
void device_error(cudaError_t code, const std::string& message);

/// What device_error left behind; cudaSuccess: nothing.
cudaError_t sticky_error();
void clear_sticky_error();

/// A call's result, remembered for cudaGetLastError. A sticky error replaces it.
cudaError_t result(cudaError_t code = cudaSuccess);

/// The result of a call that makes no sense, with the reason on standard error.
cudaError_t refuse(cudaError_t code, const std::string& reason);

}  // namespace emulator
