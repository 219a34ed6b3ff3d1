// What CUDA, cuBLAS and cuDNN say of a failure, in one message.
#include "cuda/check.h"

#include "tensor/error.h"

namespace mezzo::cuda {

namespace {
[[noreturn]] void refuse(std::string_view what, std::string_view name, std::string_view words) {
  throw DeviceError(text("CUDA: ", what, " failed: ", name, name == words ? "" : text(", ", words)));
}
}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // an error that can be passed over is not reported again
  refuse(what, cudaGetErrorName(status), cudaGetErrorString(status));
}

void check(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) refuse(what, "cuBLAS", cublasGetStatusString(status));
}

void check(cudnnStatus_t status, std::string_view what) {
  if (status != CUDNN_STATUS_SUCCESS) refuse(what, "cuDNN", cudnnGetErrorString(status));
}

}  // namespace mezzo::cuda
