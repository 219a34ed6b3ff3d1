// Gradients together: zeros, and limiting by their norm, where each block finds the part of one chunk in it,
// one block adds up the parts in a fixed order, and a last launch scales. All gradients are read twice and
// written once; the factor stays on the device.
#include <cmath>
#include <span>

#include "cuda/block.cuh"
#include "cuda/kernel_families.h"
#include "cuda/multi_tensor.cuh"

namespace mezzo::cuda {
namespace {

/// What an element adds to the norm: |x|^p, or for infinity itself, to be the largest.
enum class Power { square, any, largest };

/// That of an element, and how parts add up.
template <Power power>
struct Part {
  double p;

  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (power == Power::square) return x * x;
    if constexpr (power == Power::any) return std::pow(std::abs(x), static_cast<T>(p));
    return std::abs(x);
  }
  template <class T>
  static __device__ T merge(T a, T b) {
    return power == Power::largest ? Larger()(a, b) : a + b;
  }
  template <class T>
  static __device__ T merge_block(T value) {
    return block_reduce(value, [](T a, T b) { return merge(a, b); });
  }
};

/// parts[b]: of the chunk of block b.
template <Power power>
__global__ void __launch_bounds__(kTableThreads)
    parts_of_all(const Table<FloatingTensor> table, const Part<power> part, double* parts) {
  const Chunk chunk = chunk_of_block(table);
  const FloatingTensor& tensor = table.items[chunk.item];
  with_floating(tensor.dtype, [&]<class E>(E) {
    using T = Compute<E>;
    T sum = 0;
    for_chunk<Pack<E>::size>(chunk, [&]<int length>(int64_t i, std::integral_constant<int, length>) {
      T x[length];
      load_pack<E>(x, tensor.data, {}, i);
      for (const T value : x) sum = part.merge(sum, part(value));
    });
    sum = part.merge_block(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = static_cast<double>(sum);
  });
}

/// The same of one tensor of any layout.
template <class E, Power power>
__global__ void __launch_bounds__(kTableThreads)
    parts_of_one(const Walk<1> walk, const E* data, const Part<power> part, double* parts) {
  using T = Compute<E>;
  T sum = 0;
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[1];
    walk.places(i, place);
    sum = part.merge(sum, part(convert_to<T>(data[place[0]])));
  }
  sum = part.merge_block(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = static_cast<double>(sum);
}

/// The norm, from the parts of all blocks.
template <Power power>
__global__ void __launch_bounds__(kTableThreads)
    total_of_parts(const double* parts, int64_t count, const Part<power> part, void* total, DType dtype) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum = part.merge(sum, parts[i]);
  sum = part.merge_block(sum);
  if (threadIdx.x != 0) return;
  if constexpr (power == Power::square) sum = std::sqrt(sum);
  if constexpr (power == Power::any) sum = std::pow(sum, 1 / part.p);
  store(total, dtype, 0, sum);
}

/// The norm by a power that the kernels are compiled for.
template <Power power>
void norm_by(const View& total, std::span<const View> tensors, double p) {
  const Part<power> part{p};
  int64_t most = 1;  // blocks: one for each chunk in a table, or those of a launch of its own
  for (const View& tensor : tensors) {
    constexpr int64_t kChunk = Table<FloatingTensor>::kChunk;
    most += std::max<int64_t>(divide_up(tensor.numel(), kChunk),
                              grid_for(tensor.numel(), kTableThreads).blocks.x);
  }
  const Scratch parts(static_cast<size_t>(most) * sizeof(double));
  int64_t count = 0;
  const auto launch_all = [&](const Table<FloatingTensor>& table) {
    launch(parts_of_all<power>, table.grid(), table, part, parts.as<double>() + count);
    count += table.chunks;
  };
  const auto launch_one = [&]<class E>(const Walk<1>& walk, const E* data) {
    const Grid grid = grid_for(walk.count, kTableThreads);
    launch(parts_of_one<E, power>, grid, walk, data, part, parts.as<double>() + count);
    count += grid.blocks.x;
  };
  for_tensors(tensors, launch_all, launch_one);
  const Grid one{dim3(1), dim3(kTableThreads)};
  launch(total_of_parts<power>, one, parts.as<double>(), count, part, total.data, total.dtype);
}

void norm(const View& total, std::span<const View> tensors, double p) {
  if (p == 2) return norm_by<Power::square>(total, tensors, p);
  if (std::isinf(p)) return norm_by<Power::largest>(total, tensors, p);
  norm_by<Power::any>(total, tensors, p);
}

// --- scaling

/// max_norm / (total + 1e-6): in double for float64 alone, which is slow on most cards.
__device__ inline double factor_of(const void* total, DType dtype, double max_norm) {
  if (dtype == DType::float64) return max_norm / (load<double>(total, dtype, 0) + 1e-6);
  return static_cast<double>(static_cast<float>(max_norm) / (load<float>(total, dtype, 0) + 1e-6f));
}

/// Reads and writes a chunk once, or nothing where the norm is small enough.
__global__ void __launch_bounds__(kTableThreads)
    clip_all(const Table<FloatingTensor> table, const void* total, DType total_dtype, double max_norm) {
  const double factor = factor_of(total, total_dtype, max_norm);
  if (factor >= 1) return;
  const Chunk chunk = chunk_of_block(table);
  const FloatingTensor& tensor = table.items[chunk.item];
  with_floating(tensor.dtype, [&]<class E>(E) {
    using T = Compute<E>;
    for_chunk<Pack<E>::size>(chunk, [&]<int length>(int64_t i, std::integral_constant<int, length>) {
      T x[length];
      load_pack<E>(x, tensor.data, {}, i);
      for (T& value : x) value *= static_cast<T>(factor);
      store_pack<E>(tensor.data, {}, i, x);
    });
  });
}

/// The same of one tensor of any layout.
template <class E>
__global__ void clip_one(const Walk<1> walk, E* data, const void* total, DType total_dtype, double max_norm) {
  const double factor = factor_of(total, total_dtype, max_norm);
  if (factor >= 1) return;
  using T = Compute<E>;
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[1];
    walk.places(i, place);
    data[place[0]] = convert_to<E>(convert_to<T>(data[place[0]]) * static_cast<T>(factor));
  }
}

void clip(std::span<const View> tensors, const View& total, double max_norm) {
  const auto launch_all = [&](const Table<FloatingTensor>& table) {
    launch(clip_all, table.grid(), table, total.data, total.dtype, max_norm);
  };
  const auto launch_one = [&]<class E>(const Walk<1>& walk, E* data) {
    launch(clip_one<E>, grid_for(walk.count), walk, data, total.data, total.dtype, max_norm);
  };
  for_tensors(tensors, launch_all, launch_one);
}

// --- zeros

__global__ void __launch_bounds__(kTableThreads) zero_all(const Table<FloatingTensor> table) {
  const Chunk chunk = chunk_of_block(table);
  const FloatingTensor& tensor = table.items[chunk.item];
  with_floating(tensor.dtype, [&]<class E>(E) {
    for_chunk<Pack<E>::size>(chunk, [&]<int length>(int64_t i, std::integral_constant<int, length>) {
      const Compute<E> zeros[length] = {};
      store_pack<E>(tensor.data, {}, i, zeros);
    });
  });
}

/// One tensor of any layout.
template <class E>
__global__ void zero_one(const Walk<1> walk, E* data) {
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[1];
    walk.places(i, place);
    data[place[0]] = convert_to<E>(0.0f);
  }
}

void zero(std::span<const View> tensors) {
  for_tensors(
      tensors, [](const Table<FloatingTensor>& table) { launch(zero_all, table.grid(), table); },
      []<class E>(const Walk<1>& walk, E* data) { launch(zero_one<E>, grid_for(walk.count), walk, data); });
}

}  // namespace

void add_clip(Kernels& table) {
  table.norm = norm;
  table.clip = clip;
  table.zero = zero;
}

}  // namespace mezzo::cuda
