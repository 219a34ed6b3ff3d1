// Products of integer matrices: a block has a tile of the result and walks along K in tiles of both operands.
#include "cuda/matmul_integer.h"

#include <type_traits>

#include "cuda/loop.cuh"
#include "cuda/views.h"

namespace mezzo::cuda {
namespace {

constexpr int kTile = 16;

/// A matrix of each operand as an argument of a kernel: the batch says where it begins.
struct Matrix {
  int64_t row, column;  ///< strides

  explicit Matrix(const View& view)
      : row(view.strides[view.strides.dim() - 2]), column(view.strides[view.strides.dim() - 1]) {}
};

/// out [M, N] = a [M, K] b [K, N] + bias for each of the batches.
struct Product {
  int64_t M, N, K;
  Matrix out, a, b;
  int64_t bias_stride;
  Walk<3> batches;
};

/// Each element of a and b is read once for kTile columns or rows of the result. Sums are taken without a
/// sign, so that those that overflow wrap.
template <class T>
__global__ void multiply(T* out, const T* a, const T* b, const T* bias, Product p) {
  using U = std::make_unsigned_t<T>;
  SHARED(U, left, [kTile][kTile + 1]);
  SHARED(U, right, [kTile][kTile + 1]);
  const int64_t tiles_down = divide_up(p.M, kTile), tiles_across = divide_up(p.N, kTile);
  const int64_t tiles = tiles_down * tiles_across * p.batches.count;
  const unsigned x = threadIdx.x, y = threadIdx.y;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int64_t place[3];
    p.batches.places(tile / (tiles_down * tiles_across), place);
    const int64_t m = tile / tiles_across % tiles_down * kTile + y, n = tile % tiles_across * kTile + x;
    U sum = bias != nullptr && n < p.N ? static_cast<U>(bias[n * p.bias_stride]) : U(0);
    for (int64_t k = 0; k < p.K; k += kTile) {
      left[y][x] =
          m < p.M && k + x < p.K ? static_cast<U>(a[place[1] + m * p.a.row + (k + x) * p.a.column]) : U(0);
      right[y][x] =
          n < p.N && k + y < p.K ? static_cast<U>(b[place[2] + (k + y) * p.b.row + n * p.b.column]) : U(0);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTile; ++i) sum = static_cast<U>(sum + left[y][i] * right[i][x]);
      __syncthreads();
    }
    if (m < p.M && n < p.N) out[place[0] + m * p.out.row + n * p.out.column] = static_cast<T>(sum);
  }
}

template <class T>
void multiply_as(const View& out, const View& a, const View& b, const View& bias) {
  const View out_batches = batches_of(out), a_batches = batches_of(a), b_batches = batches_of(b);
  const int last = out.shape.dim() - 1;
  const Product product{out.shape[last - 1],
                        out.shape[last],
                        a.shape[last],
                        Matrix(out),
                        Matrix(a),
                        Matrix(b),
                        bias.given() ? bias.strides[0] : 0,
                        Walk<3>({&out_batches, &a_batches, &b_batches})};
  Grid grid = grid_for(out.numel(), kTile * kTile);
  grid.threads = dim3(kTile, kTile);
  launch(multiply<T>, grid, out.as<T>(), a.as<const T>(), b.as<const T>(), bias.as<const T>(), product);
}

}  // namespace

void matmul_integer(const View& out, const View& a, const View& b, const View& bias) {
  if (out.numel() == 0) return;
  dispatch(out.dtype, [&]<class T>(T) {
    if constexpr (is_integral(dtype_of<T>)) multiply_as<T>(out, a, b, bias);
  });
}

}  // namespace mezzo::cuda
