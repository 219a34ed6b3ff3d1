// Statuses of CUDA's libraries become Errors.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string_view>

namespace mezzo::cuda {

/// Throw DeviceError, "CUDA: what failed: the library's words", unless the status is success. `what` says
/// what was tried: "launching a kernel".
void check(cudaError_t status, std::string_view what);
void check(cublasStatus_t status, std::string_view what);
void check(cudnnStatus_t status, std::string_view what);

}  // namespace mezzo::cuda
