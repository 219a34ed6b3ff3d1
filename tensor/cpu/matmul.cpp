// Matrix products: prepares the operands for oneDNN, and the products that it does not do, by Eigen.
#include "tensor/cpu/matmul.h"

#include <Eigen/Core>
#include <algorithm>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/matrices.h"
#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu_check.h"

namespace mezzo::cpu {
namespace {

constexpr int64_t kBlockRows = 64;        // rows of one Eigen product: enough to pay for packing b again
constexpr int64_t kGrainTerms = 1 << 16;  // multiply-adds worth a thread

template <class T, int Order>
using ConstMatrix = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Order>,
                               Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using RowMajorMatrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                                  Eigen::Unaligned, Eigen::OuterStride<>>;

/// Calls f with an Eigen map of `rows` rows of a matrix, from `first` on.
template <class T, class F>
void with_map(const View& view, int64_t batch, int64_t first, int64_t rows, F&& f) {
  const T* data = view.as<T>() + offset_of(view, batch, first);
  if (stride_at(view, 1) == 1) {
    f(ConstMatrix<T, Eigen::RowMajor>(data, rows, size_at(view, 1),
                                      Eigen::OuterStride<>(stride_at(view, 2))));
  } else {
    f(ConstMatrix<T, Eigen::ColMajor>(data, rows, size_at(view, 1),
                                      Eigen::OuterStride<>(stride_at(view, 1))));
  }
}

/// rows [first, first + rows) of one matrix of `out` += a b.
template <class T>
void add_rows(const View& out, const View& a, const View& b, int64_t batch, int64_t first, int64_t rows) {
  T* sums = out.as<T>() + offset_of(out, batch, first);
  const int64_t N = size_at(out, 1), K = size_at(a, 1);
  if constexpr (std::is_floating_point_v<T>) {
    with_map<T>(a, batch, first, rows, [&](const auto& left) {
      with_map<T>(b, batch, 0, K, [&](const auto& right) {
        RowMajorMatrix<T>(sums, rows, N, Eigen::OuterStride<>(stride_at(out, 2))).noalias() += left * right;
      });
    });
  } else {  // integers are not worth the time that Eigen's products take to compile
    const T* left = a.as<T>() + offset_of(a, batch, first);
    const T* right = b.as<T>() + offset_of(b, batch, 0);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < K; ++k) {
        const T factor = left[m * stride_at(a, 2) + k * stride_at(a, 1)];
        T* row = sums + m * stride_at(out, 2);
        for (int64_t n = 0; n < N; ++n)
          row[n] = static_cast<T>(row[n] + factor * right[k * stride_at(b, 2) + n * stride_at(b, 1)]);
      }
  }
}

template <class T>
void add_product_as(const View& out, const View& a, const View& b) {
  const int64_t M = size_at(out, 2), N = size_at(out, 1), K = size_at(a, 1);
  if (out.numel() == 0 || K == 0) return;
  const int64_t blocks = (M + kBlockRows - 1) / kBlockRows, batches = out.numel() / (M * N);
  const int64_t grain = 1 + kGrainTerms / (std::min(M, kBlockRows) * N * K);
  parallel_for(batches * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * kBlockRows;
      add_rows<T>(out, a, b, i / blocks, first, std::min(kBlockRows, M - first));
    }
  });
}

/// True if no two indices reach the same element, but through a stride of 0 in an expanded dimension.
bool is_disjoint(const View& view) {
  const auto spans = [&](int inner, int outer) {
    return view.strides[outer] >= view.strides[inner] * view.shape[inner];
  };
  for (int d = 0; d < view.shape.dim(); ++d) {
    for (int e = 0; e < d; ++e) {
      const bool counts =
          view.shape[d] != 1 && view.shape[e] != 1 && view.strides[d] != 0 && view.strides[e] != 0;
      if (counts && !spans(d, e) && !spans(e, d)) return false;
    }
  }
  return true;
}

/// Strides in which the libraries read the matrices of `view` in `dtype`: its own if rows or columns are runs
/// (without gaps if they must be converted), else row-major.
Shape matrix_strides(const View& view, DType dtype) {
  const Shape row_major = contiguous_strides(view.shape);
  if (has_strides(view, row_major)) return row_major;
  const int64_t row = stride_at(view, 2), col = stride_at(view, 1);
  const bool runs = (col == 1 && row >= size_at(view, 1)) || (row == 1 && col >= size_at(view, 2));
  const bool fits = view.dtype == dtype ? is_disjoint(view) : is_dense(view.shape, view.strides);
  return runs && fits ? view.strides : row_major;
}

/// The view without batch dimensions, its rows being the rows of all batches.
View rows_of(const View& view) {
  const int64_t columns = size_at(view, 1);
  return {view.data, view.dtype, {view.numel() / columns, columns}, {columns, 1}};
}

/// The one matrix of an operand that is the same in every batch.
View first_matrix(const View& view) {
  return {
      view.data, view.dtype, {size_at(view, 2), size_at(view, 1)}, {stride_at(view, 2), stride_at(view, 1)}};
}

/// True if a batch dimension of both operands is expanded, where oneDNN expects one of them to have its size.
bool expanded_together(const View& a, const View& b) {
  for (int d = 0; d < a.shape.dim() - 2; ++d) {
    if (a.shape[d] != 1 && a.strides[d] == 0 && b.strides[d] == 0) return true;
  }
  return false;
}

bool same_in_every_batch(const View& view) {
  for (int d = 0; d < view.shape.dim() - 2; ++d) {
    if (view.shape[d] != 1 && view.strides[d] != 0) return false;
  }
  return true;
}

void multiply(const View& out, const View& a, const View& b, const View& bias) {
  if constexpr (onednn::available) {
    if (onednn::multiplies(out.dtype, size_at(out, 2))) return onednn::matmul(out, a, b, bias);
  }
  fill_with_bias(out, bias, out.shape.dim() - 1);
  add_product(out, a, b);
}

}  // namespace

std::string_view product_unit(DType dtype) {
  if constexpr (onednn::available) return dtype == DType::bfloat16 ? onednn::bfloat16_unit() : "";
  return "";
}

DType product_dtype(DType dtype, int64_t rows) {
  if constexpr (onednn::available) {
    if (onednn::multiplies(dtype, rows)) return dtype;
  }
  return compute_type(dtype);
}

void fill_with_bias(const View& out, const View& bias, int dim) {
  static float zero = 0;
  View start{&zero, DType::float32, out.shape, Shape::filled(out.shape.dim(), 0)};
  if (bias.given()) {
    start.data = bias.data;
    start.dtype = bias.dtype;
    start.strides[dim] = bias.strides[0];
  }
  copy(out, start);
}

View transposed(const View& matrix) {
  View result = matrix;
  std::swap(result.shape[0], result.shape[1]);
  std::swap(result.strides[0], result.strides[1]);
  return result;
}

void add_product(const View& out, const View& a, const View& b) {
  dispatch(out.dtype, [&]<class T>(T) {
    constexpr DType dtype = dtype_of<T>;
    constexpr bool by_onednn = onednn::available && dtype == DType::float32;
    if constexpr (!is_half(dtype) && dtype != DType::bool_ && !by_onednn) add_product_as<T>(out, a, b);
  });
}

void matmul(const View& out, const View& a, const View& b, const View& bias) {
  if (out.numel() == 0) return;
  if (size_at(a, 1) == 0) return fill_with_bias(out, bias, out.shape.dim() - 1);
  const Shape row_major = contiguous_strides(out.shape);
  if (out.shape.dim() > 2 && same_in_every_batch(b) && has_strides(out, row_major) &&
      has_strides(a, contiguous_strides(a.shape))) {
    return matmul(rows_of(out), rows_of(a), first_matrix(b), bias);
  }
  const DType dtype = product_dtype(out.dtype, size_at(out, 2));
  const Shape left_strides = expanded_together(a, b) ? contiguous_strides(a.shape) : matrix_strides(a, dtype);
  const StagedInput left(a, dtype, left_strides), right(b, dtype, matrix_strides(b, dtype)),
      offset(bias, dtype, {1});
  const StagedOutput result(out, dtype, row_major);
  multiply(result.view(), left.view(), right.view(), offset.view());
  result.finish();
}

void add_matmul(Kernels& table) { table.matmul = &matmul; }

}  // namespace mezzo::cpu
