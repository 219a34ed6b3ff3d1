// Layer normalisation: a block takes row after row. It reads a row two or three times, but once from memory:
// by then the row is in the cache, as long as it is not of megabytes. What columns add up to stays with the
// block until its last row; a second kernel adds up the blocks.
#include "cuda/block.cuh"
#include "cuda/channel_sums.cuh"
#include "cuda/kernel_families.h"
#include "cuda/rows.cuh"

namespace mezzo::cuda {
namespace {

// --- forward

enum Forward : int { kInput, kOut, kMean, kRstd, kWeight, kBias };

/// mean, rstd = 1 / sqrt(mean of (x - mean)^2 + eps), out = (x - mean) * rstd * weight + bias of each row.
template <class A>
__global__ void normalise(Rows<2, 2> views, typename A::T eps) {
  using T = typename A::T;
  const T n = static_cast<T>(views.columns.count);
  for (int64_t r = blockIdx.x; r < views.rows.count; r += gridDim.x) {
    int64_t row[4];
    views.rows.places(r, row);
    T sum = 0, squares = 0;
    views.for_packs<A>([&](int64_t, const auto& place) {
      T x[A::width];
      views.read<A>(x, kInput, row[kInput] + place[kInput]);
      for (int i = 0; i < A::width; ++i) sum += x[i];
    });
    const T mean = block_sum(sum) / n;
    views.for_packs<A>([&](int64_t, const auto& place) {
      T x[A::width];
      views.read<A>(x, kInput, row[kInput] + place[kInput]);
      for (int i = 0; i < A::width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    });
    const T rstd = 1 / sqrt(block_sum(squares) / n + eps);
    views.for_packs<A>([&](int64_t, const auto& place) {
      T x[A::width], weight[A::width], bias[A::width];
      views.read<A>(x, kInput, row[kInput] + place[kInput]);
      views.read_parameters<A>(weight, kWeight, place, 1);
      views.read_parameters<A>(bias, kBias, place, 0);
      for (int i = 0; i < A::width; ++i) x[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
      views.write<A>(x, kOut, row[kOut] + place[kOut]);
    });
    if (threadIdx.x != 0) continue;
    store(views.data[kMean], views.dtypes[kMean], row[kMean], mean);
    store(views.data[kRstd], views.dtypes[kRstd], row[kRstd], rstd);
  }
}

/// The number of dimensions of a row: those of a parameter, or that leave as many rows as there are means.
int row_dims(const View& input, const View& mean, const View& parameter) {
  if (parameter.given()) return parameter.shape.dim();
  int outer = 0;
  for (int64_t rows = 1; rows != mean.numel(); ++outer) rows *= input.shape[outer];
  return input.shape.dim() - outer;
}

void layer_norm(const View& out, const View& mean, const View& rstd, const View& input, const View& weight,
                const View& bias, double eps) {
  if (mean.numel() == 0) return;
  const Rows<2, 2> views({input, out, mean, rstd, weight, bias},
                         row_dims(input, mean, weight.given() ? weight : bias));
  views.with_access([&]<class A>(A) {
    const Grid grid{dim3(static_cast<unsigned>(std::min(views.rows.count, blocks_of_device(32)))),
                    dim3(views.threads())};
    launch(normalise<A>, grid, views, eps);
  });
}

// --- backward

enum Backward : int { kX, kG, kGradInput, kXMean, kXRstd, kGWeight, kGradWeight, kGradBias };
using GradViews = Rows<3, 3>;

/// grad_input = rstd * (u - mean of u - xhat * mean of u * xhat) of each row, u = g * weight; and the block's
/// sums for each column, which are kept in `partial` or in shared memory until all rows are done.
///
/// Sums of neighbouring columns stand apart, those of neighbouring threads side by side: banks do not
/// conflict.
template <class A>
__global__ void find_gradients(GradViews views, GradientSums<typename A::T>* partial, bool shared) {
  using T = typename A::T;
  const int64_t columns = views.columns.count, packs = columns / A::width;
  DYN_SHARED(GradientSums<T>, in_block);
  GradientSums<T>* const result = partial + blockIdx.x * columns;
  GradientSums<T>* const sums = shared ? in_block : result;
  views.for_packs<A>([&](int64_t pack, const auto&) {
    for (int i = 0; i < A::width; ++i) sums[i * packs + pack] = {};
  });

  for (int64_t r = blockIdx.x; r < views.rows.count; r += gridDim.x) {
    int64_t row[5];
    views.rows.places(r, row);
    const T mean = views.get<T>(kXMean, row), rstd = views.get<T>(kXRstd, row);
    GradientSums<T> of_row{};
    views.for_packs<A>([&](int64_t pack, const auto& place) {
      T x[A::width], g[A::width], weight[A::width];
      views.read<A>(x, kX, row[kX] + place[kX]);
      views.read<A>(g, kG, row[kG] + place[kG]);
      views.read_parameters<A>(weight, kGWeight, place, 1);
      for (int i = 0; i < A::width; ++i) {
        const T xhat = (x[i] - mean) * rstd, u = g[i] * weight[i];
        of_row.merge({u, u * xhat});
        sums[i * packs + pack].merge({g[i], g[i] * xhat});
      }
    });
    const T n = static_cast<T>(columns), base = block_sum(of_row.g) / n,
            slope = block_sum(of_row.products) / n;
    views.for_packs<A>([&](int64_t, const auto& place) {
      T x[A::width], g[A::width], weight[A::width];
      views.read<A>(x, kX, row[kX] + place[kX]);
      views.read<A>(g, kG, row[kG] + place[kG]);
      views.read_parameters<A>(weight, kGWeight, place, 1);
      for (int i = 0; i < A::width; ++i)
        x[i] = rstd * (g[i] * weight[i] - base - (x[i] - mean) * rstd * slope);
      views.write<A>(x, kGradInput, row[kGradInput] + place[kGradInput]);
    });
  }
  if (!shared) return;
  views.for_packs<A>([&](int64_t pack, const auto&) {
    for (int i = 0; i < A::width; ++i) result[i * packs + pack] = sums[i * packs + pack];
  });
}

/// The gradients of weight and bias from the sums of all blocks.
template <class A>
struct StoreColumn {
  GradViews views;

  __device__ void operator()(int64_t i, const GradientSums<typename A::T>& sums) const {
    const int64_t packs = views.columns.count / A::width;
    int64_t place[6];
    views.columns.places(i % packs * A::width + i / packs, place);
    store(views.data[kGradWeight], views.dtypes[kGradWeight], place[kGradWeight - 2], sums.products);
    store(views.data[kGradBias], views.dtypes[kGradBias], place[kGradBias - 2], sums.g);
  }
};

void layer_norm_grad(const View& grad_input, const View& grad_weight, const View& grad_bias,
                     const View& grad_out, const View& input, const View& mean, const View& rstd,
                     const View& weight) {
  if (grad_weight.numel() == 0) return;
  const GradViews views({input, grad_out, grad_input, mean, rstd, weight, grad_weight, grad_bias},
                        grad_weight.shape.dim());
  views.with_access([&]<class A>(A) {
    // Few enough for the sums of all to be a part of what is read.
    constexpr int64_t kLeastRows = 4, kSharedBytes = 48 * 1024 - 1024;
    const auto blocks =
        static_cast<unsigned>(std::clamp<int64_t>(views.rows.count / kLeastRows, 1, blocks_of_device(6)));
    const Partial<GradientSums<typename A::T>> partial(blocks, views.columns.count);
    const size_t bytes = static_cast<size_t>(views.columns.count) * sizeof(GradientSums<typename A::T>);
    const bool shared = bytes <= kSharedBytes;
    launch(find_gradients<A>, {dim3(blocks), dim3(views.threads()), shared ? bytes : 0}, views,
           partial.data(), shared);
    partial.merge(StoreColumn<A>{views});
  });
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = layer_norm;
  table.layer_norm_grad = layer_norm_grad;
}

}  // namespace mezzo::cuda
