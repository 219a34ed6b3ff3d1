// Matrix products against loops in double.
#include <cublas_v2.h>

#include <cmath>
#include <limits>

#include "tests/emulator/numeric.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/support.h"

using namespace emulator;

namespace {

template <class T>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
constexpr cudaDataType kType<double> = CUDA_R_64F;
template <>
constexpr cudaDataType kType<__half> = CUDA_R_16F;
template <>
constexpr cudaDataType kType<__nv_bfloat16> = CUDA_R_16BF;

/// Small whole numbers and halves, so that every type holds them and their sums.
template <class T>
std::vector<T> numbers(std::size_t count, unsigned seed) {
  std::vector<T> made;
  RandomNumbers random{seed};
  for (std::size_t i = 0; i < count; ++i)
    made.push_back(from_double<T>(static_cast<double>(random.below(9)) / 2 - 2));
  return made;
}

class Handle {
 public:
  Handle() { REQUIRE(cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS); }
  ~Handle() { cublasDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

/// A batch of two products, each matrix with room between its columns.
template <class T>
void compare(bool a_transposed, bool b_transposed) {
  constexpr int m = 5, n = 4, k = 3, room = 2, batch = 2;
  const int a_rows = a_transposed ? k : m, a_columns = a_transposed ? m : k;
  const int b_rows = b_transposed ? n : k, b_columns = b_transposed ? k : n;
  const int a_leading = a_rows + room, b_leading = b_rows + room, c_leading = m + room;
  const long long a_stride = a_leading * a_columns, b_stride = b_leading * b_columns,
                  c_stride = c_leading * n;
  const auto a = numbers<T>(static_cast<std::size_t>(a_stride * batch), 1);
  const auto b = numbers<T>(static_cast<std::size_t>(b_stride * batch), 2);
  const auto c = numbers<T>(static_cast<std::size_t>(c_stride * batch), 3);
  const DeviceArray<T> on_device_a(a), on_device_b(b), on_device_c(c);
  using Scalar = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Scalar alpha = 2, beta = static_cast<Scalar>(0.5);
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  REQUIRE(cublasGemmStridedBatchedEx(Handle(), operation(a_transposed), operation(b_transposed), m, n, k,
                                     &alpha, on_device_a.data(), kType<T>, a_leading, a_stride,
                                     on_device_b.data(), kType<T>, b_leading, b_stride, &beta,
                                     on_device_c.data(), kType<T>, c_leading, c_stride, batch,
                                     std::is_same_v<T, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  const std::vector<T> got = on_device_c.values();
  std::vector<T> expected = c;
  for (long long number = 0; number < batch; ++number) {
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        double sum = 0;
        for (int i = 0; i < k; ++i) {
          const long long a_at = a_transposed ? i + row * a_leading : row + i * a_leading;
          const long long b_at = b_transposed ? column + i * b_leading : i + column * b_leading;
          sum += to_double(a[static_cast<std::size_t>(number * a_stride + a_at)]) *
                 to_double(b[static_cast<std::size_t>(number * b_stride + b_at)]);
        }
        T& target = expected[static_cast<std::size_t>(number * c_stride + row + column * c_leading)];
        target = from_double<T>(2 * sum + 0.5 * to_double(target));
      }
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(to_double(got[i]) == to_double(expected[i]));
}

cublasStatus_t multiply(cublasHandle_t handle, int size, const void* alpha, const void* a, cudaDataType type,
                        const void* beta, void* c, cudaDataType c_type,
                        cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, alpha, a, type, size, a, type, size,
                      beta, c, c_type, size, compute, CUBLAS_GEMM_DEFAULT);
}

constexpr float kOne = 1, kZero = 0;

}  // namespace

TEST_CASE_TEMPLATE("cuBLAS agrees with loops", T, float, double, __half, __nv_bfloat16) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) compare<T>(a_transposed, b_transposed);
  }
}

TEST_CASE(
    "cuBLAS does not read what beta = 0 discards, and reads scalars of the device when it is its turn") {
  const Handle handle;
  const DeviceArray<float> a(std::vector<float>{3}), c(std::vector<float>{NAN});
  CHECK(multiply(handle, 1, &kOne, a.data(), CUDA_R_32F, &kZero, c.data(), CUDA_R_32F) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(c.values()[0] == 9);
  const DeviceArray<float> scalars(std::vector<float>{2, 1});
  CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(handle, 1, scalars.data(), a.data(), CUDA_R_32F, scalars.data() + 1, c.data(), CUDA_R_32F) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(c.values()[0] == 27);
  CHECK(multiply(handle, 1, &kOne, a.data(), CUDA_R_32F, &kZero, c.data(), CUDA_R_32F) ==
        CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("cuBLAS rounds to TF32 when asked to") {
  const Handle handle;
  const float value = 1 + 1.f / 4096;
  const DeviceArray<float> a(std::vector<float>{value}), c(1);
  const auto product = [&] {
    REQUIRE(multiply(handle, 1, &kOne, a.data(), CUDA_R_32F, &kZero, c.data(), CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS);
    return c.values()[0];
  };
  CHECK(product() == value * value);
  CHECK(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
  cublasMath_t mode{};
  CHECK(cublasGetMathMode(handle, &mode) == CUBLAS_STATUS_SUCCESS);
  CHECK(mode == CUBLAS_TF32_TENSOR_OP_MATH);
  CHECK(product() == 1);
  CHECK(std::isnan(to_tensor_float(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("cuBLAS takes the types that the library takes") {
  const Handle handle;
  const DeviceArray<double> memory(4);
  void* const data = memory.data();
  const auto status = [&](cudaDataType in, cudaDataType out, cublasComputeType_t compute) {
    const double one = 1, zero = 0;
    const bool wide = compute == CUBLAS_COMPUTE_64F;
    return multiply(handle, 1, wide ? static_cast<const void*>(&one) : &kOne, data, in,
                    wide ? static_cast<const void*>(&zero) : &kZero, memory.data() + 2, out, compute);
  };
  CHECK(status(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F) == CUBLAS_STATUS_SUCCESS);
  CHECK(status(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUDA_R_32F, CUDA_R_16F, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(status(CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I) == CUBLAS_STATUS_NOT_SUPPORTED);
  settings().architecture = 75;
  CHECK(status(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_NOT_SUPPORTED);
  settings().architecture = 90;
}
