// cuBLAS: matrix products, plain and strided-batched, column-major. Products are summed in double and rounded
// once.
#include <cublas_v2.h>

#include <Eigen/Core>
#include <algorithm>
#include <mutex>
#include <string>

#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/numeric.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/streams.h"

using namespace emulator;

/// What a cublasHandle_t points to.
struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
};

namespace {

cublasStatus_t refuse_call(cublasStatus_t status, const std::string& reason) {
  print("cuBLAS: " + reason);
  return status;
}

std::optional<Type> type_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return Type::float32;
    case CUDA_R_64F:
      return Type::float64;
    case CUDA_R_16F:
      return Type::float16;
    case CUDA_R_16BF:
      return Type::bfloat16;
    default:
      return std::nullopt;
  }
}

/// A batch of matrices as a call describes it: op(X) has rows x columns elements.
struct Operand {
  const void* data;
  cudaDataType cuda_type;
  std::int64_t leading, stride;
  std::int64_t rows, columns;
  bool transposed;

  std::int64_t stored_rows() const { return transposed ? columns : rows; }
  std::int64_t stored_columns() const { return transposed ? rows : columns; }
  Type type() const { return *type_of(cuda_type); }

  /// From the first byte to the last.
  std::size_t bytes(std::int64_t batch) const {
    if (rows == 0 || columns == 0) return 0;
    const long long elements = static_cast<long long>(leading) * (stored_columns() - 1) + stored_rows();
    return static_cast<std::size_t>(elements + stride * (batch - 1)) * size_of(type());
  }

  /// Where the matrix of that number in the batch begins.
  template <class T>
  T* matrix(std::int64_t number) const {
    return static_cast<T*>(const_cast<void*>(data)) + stride * number;
  }
};

struct Product {
  Operand a, b, c;
  std::int64_t batch;
  bool tensor_float;
};

Eigen::MatrixXd load(const Operand& operand, std::int64_t number, bool tensor_float) {
  return with_type(operand.type(), [&]<class T>(T) {
    const T* const data = operand.matrix<const T>(number);
    Eigen::MatrixXd made(operand.stored_rows(), operand.stored_columns());
    for (Eigen::Index column = 0; column < made.cols(); ++column) {
      for (Eigen::Index row = 0; row < made.rows(); ++row) {
        const double value = to_double(data[row + column * operand.leading]);
        made(row, column) = tensor_float ? to_tensor_float(value) : value;
      }
    }
    if (operand.transposed) made.transposeInPlace();
    return made;
  });
}

void run(const Product& call, double alpha, double beta) {
  const Operand& c = call.c;
  for (std::int64_t number = 0; number < call.batch; ++number) {
    const Eigen::MatrixXd product =
        load(call.a, number, call.tensor_float) * load(call.b, number, call.tensor_float);
    with_type(c.type(), [&]<class T>(T) {
      T* const data = c.matrix<T>(number);
      for (Eigen::Index column = 0; column < c.columns; ++column) {
        for (Eigen::Index row = 0; row < c.rows; ++row) {
          blend(data[row + column * c.leading], alpha, product(row, column), beta);
        }
      }
    });
  }
}

/// Whether the library has this combination of types on this card.
bool supported(const Product& call, cublasComputeType_t compute) {
  const cudaDataType in = call.a.cuda_type, out = call.c.cuda_type;
  if (in != call.b.cuda_type || !type_of(in) || !type_of(out)) return false;
  const bool in_double = in == CUDA_R_64F;
  if (in_double != (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC)) return false;
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      break;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      if (in != CUDA_R_32F) return false;
      break;
    default:
      return false;
  }
  if (in == CUDA_R_16BF && settings().architecture < kAmpere) return false;
  return out == in || (out == CUDA_R_32F && !in_double);
}

double scalar(const void* pointer, bool in_double) {
  return in_double ? *static_cast<const double*>(pointer)
                   : static_cast<double>(*static_cast<const float*>(pointer));
}

cublasStatus_t check_scalar(const cublasContext& handle, const void* pointer, std::size_t bytes) {
  if (!pointer) return refuse_call(CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is null");
  const bool on_device = holds(handle.device, pointer, bytes);
  if (on_device != (handle.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)) {
    return refuse_call(CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is not where the pointer mode says");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply(cublasHandle_t handle, Product call, const void* alpha, const void* beta,
                        cublasComputeType_t compute) {
  const std::lock_guard lock(runtime_mutex());
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle->device != current_device()) {
    return refuse_call(CUBLAS_STATUS_EXECUTION_FAILED,
                       "the handle belongs to another device than the current one");
  }
  const Operand &a = call.a, &b = call.b, &c = call.c;
  if (c.rows < 0 || c.columns < 0 || a.columns < 0 || call.batch < 0) {
    return refuse_call(CUBLAS_STATUS_INVALID_VALUE, "a negative size");
  }
  for (const Operand* operand : {&a, &b, &c}) {
    if (operand->leading < std::max<std::int64_t>(1, operand->stored_rows())) {
      return refuse_call(CUBLAS_STATUS_INVALID_VALUE,
                         "leading dimension " + std::to_string(operand->leading) + " of a matrix of " +
                             std::to_string(operand->stored_rows()) + " rows");
    }
  }
  if (!supported(call, compute)) return refuse_call(CUBLAS_STATUS_NOT_SUPPORTED, "this combination of types");
  const bool in_double = a.cuda_type == CUDA_R_64F;
  const std::size_t scalar_bytes = in_double ? sizeof(double) : sizeof(float);
  for (const void* pointer : {alpha, beta}) {
    if (const auto status = check_scalar(*handle, pointer, scalar_bytes)) return status;
  }
  if (c.rows == 0 || c.columns == 0 || call.batch == 0) return CUBLAS_STATUS_SUCCESS;
  for (const Operand* operand : {&a, &b, &c}) {
    const std::size_t bytes = operand->bytes(call.batch);
    if (bytes && !holds(handle->device, operand->data, bytes)) {
      device_error(cudaErrorIllegalAddress, "cuBLAS: a matrix is not inside one allocation of the device");
      return CUBLAS_STATUS_EXECUTION_FAILED;
    }
  }
  const bool allowed = (handle->math_mode & CUBLAS_TF32_TENSOR_OP_MATH) && compute == CUBLAS_COMPUTE_32F;
  call.tensor_float = a.cuda_type == CUDA_R_32F && settings().architecture >= kAmpere &&
                      (allowed || compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  cudaError_t code;
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST) {
    const double factor = scalar(alpha, in_double), kept = scalar(beta, in_double);
    code = enqueue(handle->stream, [=] { run(call, factor, kept); });
  } else {
    code = enqueue(handle->stream, [=] { run(call, scalar(alpha, in_double), scalar(beta, in_double)); });
  }
  return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  const auto found = find_stream(stream);
  if (!found || found->device != handle->device) {
    return refuse_call(CUBLAS_STATUS_INVALID_VALUE, "the stream is not one of the handle's device");
  }
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  constexpr std::uintptr_t kAlignment = 256;
  if (bytes && (!holds(handle->device, workspace, bytes) ||
                reinterpret_cast<std::uintptr_t>(workspace) % kAlignment)) {
    return refuse_call(CUBLAS_STATUS_INVALID_VALUE,
                       "the workspace is no memory of the device or not aligned");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS of another kind";
  }
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    default:
      return "an error of another kind";
  }
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, std::int64_t m,
    std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType a_type,
    std::int64_t a_leading, long long a_stride, const void* b, cudaDataType b_type, std::int64_t b_leading,
    long long b_stride, const void* beta, void* c, cudaDataType c_type, std::int64_t c_leading,
    long long c_stride, std::int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  const Operand left{a, a_type, a_leading, a_stride, m, k, a_operation != CUBLAS_OP_N};
  const Operand right{b, b_type, b_leading, b_stride, k, n, b_operation != CUBLAS_OP_N};
  const Operand target{c, c_type, c_leading, c_stride, m, n, false};
  return multiply(handle, {left, right, target, batch, false}, alpha, beta, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int a_leading, long long a_stride, const void* b,
    cudaDataType b_type, int b_leading, long long b_stride, const void* beta, void* c, cudaDataType c_type,
    int c_leading, long long c_stride, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, a_operation, b_operation, m, n, k, alpha, a, a_type, a_leading,
                                       a_stride, b, b_type, b_leading, b_stride, beta, c, c_type, c_leading,
                                       c_stride, batch, compute, algorithm);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a_operation,
                            cublasOperation_t b_operation, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int a_leading, const void* b,
                            cudaDataType b_type, int b_leading, const void* beta, void* c,
                            cudaDataType c_type, int c_leading, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, a_operation, b_operation, m, n, k, alpha, a, a_type, a_leading, 0,
                                    b, b_type, b_leading, 0, beta, c, c_type, c_leading, 0, 1, compute,
                                    algorithm);
}

}  // extern "C"
