// Copies, conversions, fills and counts.
#include "cuda/copy.h"

#include <array>

#include "cuda/check.h"
#include "cuda/kernel_families.h"
#include "cuda/pack.cuh"

namespace mezzo::cuda {

namespace {

/// Where Half and BFloat16 are converted in float, others in their own type.
template <class T>
__global__ void __launch_bounds__(256) copy_strided(const __grid_constant__ Walk<2> walk, void* out,
                                                    DType out_dtype, const void* in, DType in_dtype) {
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[2];
    walk.places(i, place);
    store(out, out_dtype, place[0], load<T>(in, in_dtype, place[1]));
  }
}

/// Arrays of the floating types, by 16 bytes of the wider one.
template <class Out, class In>
__global__ void __launch_bounds__(256) convert_packed(int64_t count, Out* out, const In* in) {
  constexpr int n = 16 / (sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In));
  using From = Pack<In, n>;
  using To = Pack<Out, n>;
  const int64_t packs = count / n;
  for (int64_t i = first_item(); i < packs; i += grid_stride()) {
    const From from = reinterpret_cast<const From*>(in)[i];
    To to;
    for (int e = 0; e < n; ++e) to.elements[e] = convert_to<Out>(convert_to<Compute<In>>(from.elements[e]));
    reinterpret_cast<To*>(out)[i] = to;
  }
  for (int64_t i = packs * n + first_item(); i < count; i += grid_stride())
    out[i] = convert_to<Out>(convert_to<Compute<In>>(in[i]));
}

constexpr int kTile = 32, kTileRows = 8;

/// A matrix that `in` has by columns, in tiles that are read along its memory and written along out's;
/// batches of them by blockIdx.z. Elements are moved as `Bits` of their size.
template <class Bits>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_tiles(int64_t rows, int64_t columns, Bits* out, int64_t out_row, const Bits* in,
                    int64_t in_column, const __grid_constant__ Walk<2> batches) {
  SHARED(Bits, tile, [kTile][kTile + 1]);  // one more, so that a column of it lies in different banks
  const int64_t tiles_across = divide_up(columns, kTile), tiles_down = divide_up(rows, kTile);
  const int64_t tiles = tiles_across * tiles_down * batches.count;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    int64_t base[2];
    batches.places(t / (tiles_across * tiles_down), base);
    const int64_t within = t % (tiles_across * tiles_down);
    const int64_t row = within / tiles_across * kTile, column = within % tiles_across * kTile;
    for (int k = y; k < kTile; k += kTileRows) {
      if (row + x < rows && column + k < columns)
        tile[k][x] = in[base[1] + row + x + (column + k) * in_column];
    }
    __syncthreads();
    for (int k = y; k < kTile; k += kTileRows) {
      if (row + k < rows && column + x < columns)
        out[base[0] + (row + k) * out_row + column + x] = tile[x][k];
    }
    __syncthreads();  // before the next tile is put there
  }
}

/// out[i] = first + i * step in row-major order.
template <class T>
__global__ void __launch_bounds__(256)
    fill_strided(const __grid_constant__ Walk<1> walk, void* out, DType dtype, T first, T step) {
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[1];
    walk.places(i, place);
    store(out, dtype, place[0], static_cast<T>(first + static_cast<T>(i) * step));
  }
}

/// Calls f(Out{}, In{}) for two different floating types other than float64; false for others.
template <class F>
bool for_narrow_floats(DType out, DType in, F f) {
  const auto narrow = [](DType dtype) { return is_floating(dtype) && dtype != float64; };
  if (out == in || !narrow(out) || !narrow(in)) return false;
  dispatch(out, [&]<class Out>(Out) {
    dispatch(in, [&]<class In>(In) {
      if constexpr (sizeof(Out) <= 4 && sizeof(In) <= 4 && is_floating(dtype_of<Out>) &&
                    is_floating(dtype_of<In>))
        f(Out{}, In{});
    });
  });
  return true;
}

/// The dimension along which `in` is dense, if that is not the innermost of the walk's; else -1.
int transposed_dim(const Walk<2>& walk) {
  const int inner = walk.dims - 1;
  if (walk.dims < 2 || walk.strides[inner][0] != 1 || walk.strides[inner][1] == 1) return -1;
  for (int d = inner - 1; d >= 0; --d) {
    if (walk.strides[d][1] == 1) return d;
  }
  return -1;
}

/// Dimension `dim` and the innermost make the matrices, all others the batch.
template <class Bits>
void transpose(const View& out, const View& in, const Walk<2>& walk, int dim) {
  const int inner = walk.dims - 1;
  Walk<2> batches = walk;
  batches.dims = 0;
  batches.count = 1;
  for (int d = 0; d < inner; ++d) {
    if (d == dim) continue;
    batches.sizes[batches.dims] = walk.sizes[d];
    for (int v = 0; v < 2; ++v) batches.strides[batches.dims][v] = walk.strides[d][v];
    batches.count *= walk.sizes[d];
    ++batches.dims;
  }
  const int64_t rows = walk.sizes[dim], columns = walk.sizes[inner];
  const int64_t tiles = divide_up(rows, kTile) * divide_up(columns, kTile) * batches.count;
  Grid grid = grid_for(tiles, 1);
  grid.threads = dim3(kTile, kTileRows);
  launch(transpose_tiles<Bits>, grid, rows, columns, out.as<Bits>(), walk.strides[dim][0], in.as<Bits>(),
         walk.strides[inner][1], batches);
}

/// out[i] = first + i * step in row-major order, for 1-d views and for step 0.
void fill_with(const View& out, Scalar first, Scalar step) {
  if (out.numel() == 0) return;
  const Walk<1> walk({&out});
  if (first.dtype() == float64 || step.dtype() == float64) {
    launch(fill_strided<double>, grid_for(walk.count), walk, out.data, out.dtype, first.to<double>(),
           step.to<double>());
  } else {
    launch(fill_strided<int64_t>, grid_for(walk.count), walk, out.data, out.dtype, first.to<int64_t>(),
           step.to<int64_t>());
  }
}

}  // namespace

void fill(const View& out, Scalar value) { fill_with(out, value, 0); }

void copy(const View& out, const View& in) {
  if (out.numel() == 0) return;
  const Walk<2> walk({&out, &in});
  const bool same = out.dtype == in.dtype;
  if (walk.is_linear()) {
    if (same) {
      check(cudaMemcpyAsync(out.data, in.data, static_cast<size_t>(walk.count) * size_of(out.dtype),
                            cudaMemcpyDeviceToDevice, context().stream()),
            "a copy");
      return;
    }
    if (is_aligned(out.data) && is_aligned(in.data) &&
        for_narrow_floats(out.dtype, in.dtype, [&]<class Out, class In>(Out, In) {
          constexpr int64_t n = 16 / std::max(sizeof(Out), sizeof(In));
          launch(convert_packed<Out, In>, grid_for(walk.count / n), walk.count, out.as<Out>(), in.as<In>());
        }))
      return;
  } else if (const int dim = transposed_dim(walk); same && dim >= 0) {
    return dispatch_bits(out.dtype, [&]<class Bits>(Bits) { transpose<Bits>(out, in, walk, dim); });
  }
  dispatch(compute_type(in.dtype), [&]<class T>(T) {
    if constexpr (!is_16_bit<T>)
      launch(copy_strided<T>, grid_for(walk.count), walk, out.data, out.dtype, in.data, in.dtype);
  });
}

void add_copy(Kernels& table) {
  table.copy = &copy;
  table.fill = &fill;
  table.arange = &fill_with;
}

}  // namespace mezzo::cuda
