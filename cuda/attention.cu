// Between the products of attention: scores to weights, and backward, a block for each query. It goes over
// its row of scores a few times, but the row comes from memory once.
#include "cuda/attention.h"

#include <limits>

#include "cuda/block.cuh"
#include "cuda/element.cuh"
#include "cuda/loop.cuh"
#include "cuda/views.h"

namespace mezzo::cuda {
namespace {

/// What the kernels know of scores beside the products: element j of the row of query i.
template <class T>
struct Scores {
  const void* mask;
  DType mask_dtype;
  int64_t mask_step, first_query, queries, keys;
  T scale;
  bool is_causal;

  Scores(const AttentionOperands& in, int64_t first_query)
      : mask(in.mask.data),
        mask_dtype(in.mask.dtype),
        mask_step(in.mask.given() ? in.mask.strides[in.mask.strides.dim() - 1] : 0),
        first_query(first_query),
        queries(in.query.shape[in.query.shape.dim() - 2]),
        keys(in.key.shape[in.key.shape.dim() - 2]),
        scale(static_cast<T>(in.scale)),
        is_causal(in.is_causal) {}

  /// From the product; mask_row is where the query's mask begins.
  __device__ T operator()(T product, int64_t row, int64_t j, int64_t mask_row) const {
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    if (is_causal && j > first_query + row % queries) return hidden;
    if (mask == nullptr) return product * scale;
    const T value = load<T>(mask, mask_dtype, mask_row + j * mask_step);
    if (mask_dtype == DType::bool_) return value != 0 ? product * scale : hidden;
    return product * scale + value;
  }
};

/// write(j, compute(j)) for a row's elements, in steps that all threads make together: 16-bit results lie
/// where other threads' products were, which must have been read.
template <class E, class F, class Write>
__device__ void replace_row(int64_t keys, F&& compute, Write&& write) {
  for (int64_t first = 0; first < keys; first += blockDim.x) {
    const int64_t j = first + threadIdx.x;
    decltype(compute(j)) result{};
    if (j < keys) result = compute(j);
    if constexpr (is_16_bit<E>) __syncthreads();
    if (j < keys) write(j, result);
  }
}

/// lse = log of the sum of exp(scores), weights = exp(scores - lse).
template <class E>
__global__ void weigh_rows(Compute<E>* products, Walk<3> rows, Compute<E>* lse, Scores<Compute<E>> scores) {
  using T = Compute<E>;
  for (int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
    int64_t place[3];
    rows.places(row, place);
    T* const values = products + place[0];
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    for (int64_t j = threadIdx.x; j < scores.keys; j += blockDim.x) {
      values[j] = scores(values[j], row, j, place[2]);
      largest = Larger()(largest, values[j]);
    }
    largest = block_max(largest);
    if (largest == -std::numeric_limits<T>::infinity()) largest = 0;  // all are hidden: their weights are 0
    for (int64_t j = threadIdx.x; j < scores.keys; j += blockDim.x) {
      values[j] = exp(values[j] - largest);
      sum += values[j];
    }
    sum = block_sum(sum);
    const T factor = sum == 0 ? T(0) : 1 / sum;
    E* const weights = reinterpret_cast<E*>(values);
    replace_row<E>(
        scores.keys, [&](int64_t j) { return values[j] * factor; },
        [&](int64_t j, T weight) { weights[j] = convert_to<E>(weight); });
    if (threadIdx.x == 0) lse[place[1]] = largest + log(sum);
  }
}

enum : int { kProducts, kLse, kMask, kGradOut, kOut };

/// What the gradient's kernel gets beside the scores; products and grad_products are overwritten.
template <class E>
struct GradOperands {
  using T = Compute<E>;
  T *products, *grad_products;
  const T* lse;
  const E *grad_out, *out;
  int64_t values, grad_out_step, out_step;  ///< elements of a value, and how far they are apart
};

/// weigh_grad (attention.h): from a row of products, the weights and the gradients of the scores.
template <class E>
__global__ void weigh_grad_rows(GradOperands<E> in, Walk<5> rows, Scores<Compute<E>> scores) {
  using T = Compute<E>;
  for (int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
    int64_t place[5];
    rows.places(row, place);
    T mean = 0;
    for (int64_t e = threadIdx.x; e < in.values; e += blockDim.x) {
      mean += convert_to<T>(in.grad_out[place[kGradOut] + e * in.grad_out_step]) *
              convert_to<T>(in.out[place[kOut] + e * in.out_step]);
    }
    mean = block_sum(mean);
    const T lse = in.lse[place[kLse]];
    const bool hidden = lse == -std::numeric_limits<T>::infinity();
    T *const products = in.products + place[kProducts], *const grads = in.grad_products + place[kProducts];
    E *const weights = reinterpret_cast<E*>(products), *const results = reinterpret_cast<E*>(grads);
    struct Result {
      T weight, grad;
    };
    const auto compute = [&](int64_t j) {
      const T weight = hidden ? T(0) : exp(scores(products[j], row, j, place[kMask]) - lse);
      return Result{weight, weight * (grads[j] - mean) * scores.scale};
    };
    replace_row<E>(scores.keys, compute, [&](int64_t j, const Result& result) {
      weights[j] = convert_to<E>(result.weight);
      results[j] = convert_to<E>(result.grad);
    });
  }
}

/// A view [..., rows, columns] as one of [..., rows], of the first column.
View rows_of(const View& view) { return dimensions(view, 0, view.shape.dim() - 1); }

/// A block for each row, with a thread for each key up to 256.
Grid grid_of_rows(int64_t rows, int64_t keys) {
  constexpr int64_t kMostWarps = 8;
  const int64_t warps = std::clamp<int64_t>(divide_up(keys, kWarp), 1, kMostWarps);
  return {dim3(static_cast<unsigned>(std::min(rows, blocks_of_device(32)))),
          dim3(kWarp * static_cast<unsigned>(warps))};
}

}  // namespace

View weights_in(const View& products, DType dtype) {
  View result = products;
  result.dtype = dtype;
  const auto ratio = static_cast<int64_t>(size_of(products.dtype) / size_of(dtype));
  for (int d = 0; d < products.shape.dim() - 1; ++d) result.strides[d] *= ratio;
  return result;
}

void weigh(const View& products, const View& lse, const AttentionOperands& in, int64_t first_query) {
  const View rows = rows_of(products), lse_rows = rows_of(lse), mask_rows = rows_of(in.mask);
  const Walk<3> walk({&rows, &lse_rows, &mask_rows});
  if (walk.count == 0) return;
  dispatch_floating(in.query.dtype, [&]<class E>(E) {
    using T = Compute<E>;
    const Scores<T> scores(in, first_query);
    launch(weigh_rows<E>, grid_of_rows(walk.count, scores.keys), products.as<T>(), walk, lse.as<T>(), scores);
  });
}

void weigh_grad(const View& products, const View& grad_products, const View& lse, const View& grad_out,
                const View& out, const AttentionOperands& in, int64_t first_query) {
  const View rows = rows_of(products), lse_rows = rows_of(lse), mask_rows = rows_of(in.mask),
             grad_rows = rows_of(grad_out), out_rows = rows_of(out);
  const Walk<5> walk({&rows, &lse_rows, &mask_rows, &grad_rows, &out_rows});
  if (walk.count == 0) return;
  const int last = out.shape.dim() - 1;
  dispatch_floating(in.query.dtype, [&]<class E>(E) {
    using T = Compute<E>;
    const Scores<T> scores(in, first_query);
    const GradOperands<E> operands{products.as<T>(),       grad_products.as<T>(), lse.as<T>(),
                                   grad_out.as<E>(),       out.as<E>(),           out.shape[last],
                                   grad_out.strides[last], out.strides[last]};
    launch(weigh_grad_rows<E>, grid_of_rows(walk.count, scores.keys), operands, walk, scores);
  });
}

}  // namespace mezzo::cuda
