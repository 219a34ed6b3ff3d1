// Matrices in any strides become products that cuBLAS knows. It is column-major: what it takes for a matrix
// [C, R] with leading dimension ld is our [R, C] whose rows are runs, ld apart. So out = a b runs as outᵀ =
// bᵀ aᵀ, each operand as it lies ("N") if its rows are runs, or transposed ("T") if its columns are.
#include "cuda/gemm.h"

#include <array>
#include <optional>
#include <utility>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/copy.h"
#include "cuda/views.h"
#include "tensor/cuda_settings.h"
#include "tensor/strided_loop.h"

namespace mezzo::cuda {
namespace {

int64_t size_at(const View& view, int from_end) { return view.shape[view.shape.dim() - from_end]; }
int64_t stride_at(const View& view, int from_end) { return view.strides[view.strides.dim() - from_end]; }

/// What of a matrix lies side by side in memory, without overlapping the next run.
enum class Runs { rows, columns, neither };

Runs runs_of(const View& matrix) {
  const int64_t rows = size_at(matrix, 2), columns = size_at(matrix, 1);
  const int64_t down = stride_at(matrix, 2), across = stride_at(matrix, 1);
  if ((across == 1 || columns == 1) && (down >= columns || rows == 1)) return Runs::rows;
  if ((down == 1 || rows == 1) && (across >= rows || columns == 1)) return Runs::columns;
  return Runs::neither;
}

/// A matrix as an argument of cuBLAS.
struct Argument {
  char* data;
  cublasOperation_t operation;
  int64_t leading;

  explicit Argument(const View& matrix)
      : data(matrix.as<char>()),
        operation(runs_of(matrix) == Runs::rows ? CUBLAS_OP_N : CUBLAS_OP_T),
        leading(operation == CUBLAS_OP_N ? leading_of(matrix, 2) : leading_of(matrix, 1)) {}

 private:
  static int64_t leading_of(const View& matrix, int along) {
    return size_at(matrix, along) == 1 ? size_at(matrix, 3 - along) : stride_at(matrix, along);
  }
};

cudaDataType_t blas_dtype(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDA_R_64F;
    case DType::float16:
      return CUDA_R_16F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t blas_compute(DType dtype) {
  if (dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = dtype == DType::float32 && tf32_matmul_allowed();
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// `count` products, the matrices of each operand `steps` elements apart; rows or columns of all are runs,
/// those of `out` rows.
void multiply(const View& out, const View& a, const View& b, const std::array<int64_t, 3>& offsets,
              int64_t count, const std::array<int64_t, 3>& steps, bool add) {
  const Argument y(out), left(a), right(b);
  const cudaDataType_t type = blas_dtype(a.dtype), out_type = blas_dtype(out.dtype);
  const auto size = static_cast<int64_t>(size_of(a.dtype)),
             out_size = static_cast<int64_t>(size_of(out.dtype));
  const double alpha = 1, beta = add ? 1 : 0;
  const float alpha32 = 1, beta32 = add ? 1 : 0;
  const bool wide = out.dtype == DType::float64;  // the type of the factors too
  check(cublasGemmStridedBatchedEx_64(
            context().blas(), right.operation, left.operation, size_at(out, 1), size_at(out, 2),
            size_at(a, 1), wide ? static_cast<const void*>(&alpha) : &alpha32, right.data + offsets[2] * size,
            type, right.leading, steps[2], left.data + offsets[1] * size, type, left.leading, steps[1],
            wide ? static_cast<const void*>(&beta) : &beta32, y.data + offsets[0] * out_size, out_type,
            y.leading, steps[0], count, blas_compute(a.dtype), CUBLAS_GEMM_DEFAULT),
        "a matrix product");
}

/// True if the rows of every batch continue those of the one before.
bool rows_go_on(const View& matrix, int64_t step) {
  return size_at(matrix, 2) == 1 || step == size_at(matrix, 2) * stride_at(matrix, 2);
}

/// The rows of all `count` batches as those of one matrix.
View all_rows(const View& view, int64_t count, int64_t step) {
  const int64_t rows = size_at(view, 2);
  return {view.data,
          view.dtype,
          {count * rows, size_at(view, 1)},
          {rows == 1 ? step : stride_at(view, 2), stride_at(view, 1)}};
}

/// Products of all batches: one call for each element of all batch dimensions but the longest, after those
/// that are one progression in every operand have been merged.
void multiply_batches(const View& out, const View& a, const View& b, bool add) {
  const std::array batches{batches_of(out), batches_of(a), batches_of(b)};
  const std::array<const View*, 3> views{&batches[0], &batches[1], &batches[2]};
  const StridedLoop loop{std::span<const View* const>(views)};
  int longest = 0;
  for (int d = 1; d < loop.dims(); ++d) {
    if (loop.size(d) > loop.size(longest)) longest = d;
  }
  const auto steps_of = [&](int d) {
    return std::array{loop.stride(d, 0), loop.stride(d, 1), loop.stride(d, 2)};
  };
  const int64_t count = loop.size(longest);
  const auto steps = steps_of(longest);
  if (loop.dims() == 1 && steps[2] == 0 && count > 1 && rows_go_on(out, steps[0]) &&
      rows_go_on(a, steps[1])) {
    const View rows = all_rows(out, count, steps[0]), left = all_rows(a, count, steps[1]);
    if (runs_of(rows) == Runs::rows && runs_of(left) != Runs::neither)
      return multiply(rows, left, b, {}, 1, {}, add);
  }
  for (int64_t i = 0; i < loop.size() / count; ++i) {
    std::array<int64_t, 3> offsets{};
    int64_t rest = i;
    for (int d = loop.dims() - 1; d >= 0; --d) {
      if (d == longest) continue;
      const auto step = steps_of(d);
      for (size_t v = 0; v < 3; ++v) offsets[v] += rest % loop.size(d) * step[v];
      rest /= loop.size(d);
    }
    multiply(out, a, b, offsets, count, steps, add);
  }
}

/// A view whose rows or columns are runs: the original, or else a row-major copy, which has each matrix once
/// where a batch dimension is expanded.
class Operand {
 public:
  explicit Operand(const View& original) : view_(original) {
    if (runs_of(original) != Runs::neither) return;
    const View once = without_repeats(original);
    const View& dense = dense_.emplace(once.dtype, once.shape).view();
    copy(dense, once);
    view_.data = dense.data;
    for (int d = 0; d < view_.shape.dim(); ++d)
      view_.strides[d] = once.shape[d] == view_.shape[d] ? dense.strides[d] : 0;
  }
  const View& view() const { return view_; }

 private:
  static View without_repeats(const View& view) {
    View result = view;
    for (int d = 0; d < view.shape.dim() - 2; ++d) {
      if (view.strides[d] == 0) result.shape[d] = 1;
    }
    return result;
  }

  std::optional<ScratchTensor> dense_;
  View view_;
};

}  // namespace

View transposed(const View& matrix) {
  View result = matrix;
  const int last = matrix.shape.dim() - 1;
  std::swap(result.shape[last], result.shape[last - 1]);
  std::swap(result.strides[last], result.strides[last - 1]);
  return result;
}

void gemm(const View& out, const View& a, const View& b, bool add) {
  if (out.numel() == 0) return;
  if (size_at(a, 1) == 0) {  // no terms
    if (!add) fill(out, 0);
    return;
  }
  const Runs runs = runs_of(out);
  if (runs == Runs::columns) return gemm(transposed(out), transposed(b), transposed(a), add);
  if (runs == Runs::neither) {
    const ScratchTensor dense(out.dtype, out.shape);
    if (add) copy(dense.view(), out);
    gemm(dense.view(), a, b, add);
    return copy(out, dense.view());
  }
  const Operand left(a), right(b);
  multiply_batches(out, left.view(), right.view(), add);
}

}  // namespace mezzo::cuda
