#include "tests/emulator/errors.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>

#include "tests/emulator/diagnosis.h"
#include "tests/emulator/settings.h"

namespace emulator {

namespace {

std::atomic<cudaError_t> sticky{cudaSuccess};
constinit thread_local cudaError_t last = cudaSuccess;

}  // namespace

void device_error(cudaError_t code, const std::string& message) {
  print(std::string(cudaGetErrorName(code)) + ": " + message);
  if (settings().fatal) std::abort();
  sticky = code;
}

cudaError_t sticky_error() { return sticky; }

void clear_sticky_error() {
  sticky = cudaSuccess;
  last = cudaSuccess;
}

cudaError_t result(cudaError_t code) {
  if (sticky != cudaSuccess) code = sticky;
  if (code != cudaSuccess) last = code;
  return code;
}

cudaError_t refuse(cudaError_t code, const std::string& reason) {
  print(std::string(cudaGetErrorName(code)) + ": " + reason);
  return result(code);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaPeekAtLastError() { return sticky_error() != cudaSuccess ? sticky_error() : last; }

cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  last = cudaSuccess;
  return code;
}

}  // extern "C"
