// Many tensors in one launch: a table of them is a parameter of the kernel, by value, so there is no copy to
// wait for and a captured graph holds it. Each block has a chunk of one tensor.
#pragma once

#include <span>

#include "cuda/pack.cuh"

namespace mezzo::cuda {

inline constexpr unsigned kTableThreads = 256;

/// An Item says where a tensor is, and has its `count` of elements.
template <class Item>
struct Table {
  static constexpr int64_t kChunk = 65536;  ///< elements
  /// Parameters of a kernel are 4 KiB at most, before CUDA 12.1; some are left for others.
  static constexpr int kCapacity = static_cast<int>((4096 - 256) / (sizeof(Item) + sizeof(int32_t)));

  Item items[kCapacity];
  int32_t first_chunks[kCapacity];  ///< the number of each item's first chunk
  int32_t size, chunks;

  bool is_full() const { return size == kCapacity; }
  void add(const Item& item) {
    items[size] = item;
    first_chunks[size++] = chunks;
    chunks += static_cast<int32_t>(divide_up(item.count, kChunk));
  }
  Grid grid() const { return {dim3(static_cast<unsigned>(chunks)), dim3(kTableThreads)}; }
};

/// The calling block's part of a tensor.
struct Chunk {
  int item;
  int64_t begin, end;
};

/// By bisection: all threads of the block read the same.
template <class Item>
__device__ Chunk chunk_of_block(const Table<Item>& table) {
  const auto chunk = static_cast<int32_t>(blockIdx.x);
  int low = 0, high = table.size;  // the item is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first_chunks[middle] <= chunk ? low : high) = middle;
  }
  const int64_t begin = (chunk - table.first_chunks[low]) * table.kChunk;
  return {low, begin, std::min(begin + table.kChunk, table.items[low].count)};
}

/// An Item for floating tensors of any dtypes, whose elements are neighbours.
struct FloatingTensor {
  void* data;
  int64_t count;
  DType dtype;
};

/// f(E{}) with the type of a floating dtype, in a kernel.
template <class F>
__device__ void with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64:
      return f(double{});
    case DType::float16:
      return f(Half{});
    case DType::bfloat16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

/// What gradients are multiplied by; a loss scale that is not given stands for 1.
__device__ inline float inverse_of(const float* scale) { return scale == nullptr ? 1.0f : inverse(*scale); }

/// f(i, constant) for the packs of `size` elements of a chunk that are the calling thread's, and then for the
/// single elements at its end: `constant` holds how many there are at i.
template <int size, class F>
__device__ void for_chunk(const Chunk& chunk, F&& f) {
  const int64_t whole = chunk.begin + (chunk.end - chunk.begin) / size * size, thread = threadIdx.x;
  for (int64_t i = chunk.begin + thread * size; i < whole; i += int64_t{blockDim.x} * size)
    f(i, std::integral_constant<int, size>());
#pragma unroll 1
  for (int64_t i = whole + thread; i < chunk.end; i += blockDim.x) f(i, std::integral_constant<int, 1>());
}

/// A table that is launched whenever it is full, and at the end.
template <class Item, class Launch>
class Batch {
 public:
  explicit Batch(Launch launch) : launch_(launch) {}
  void add(const Item& item) {
    if (table_.is_full()) flush();
    table_.add(item);
  }
  void flush() {
    if (table_.size > 0) launch_(table_);
    table_.size = table_.chunks = 0;
  }

 private:
  Launch launch_;
  Table<Item> table_{};
};

/// launch_all(table) for floating tensors that are dense and aligned, many at once, and launch_one(walk, E*)
/// for each of the others; for empty ones nothing.
template <class LaunchAll, class LaunchOne>
void for_tensors(std::span<const View> tensors, const LaunchAll& launch_all, const LaunchOne& launch_one) {
  Batch<FloatingTensor, const LaunchAll&> batch(launch_all);
  for (const View& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const Walk<1> walk({&tensor});
    if (walk.is_linear() && is_aligned(tensor.data))
      batch.add({tensor.data, tensor.numel(), tensor.dtype});
    else
      dispatch_floating(tensor.dtype, [&]<class E>(E) { launch_one(walk, tensor.as<E>()); });
  }
  batch.flush();
}

}  // namespace mezzo::cuda
