// Loss scaling: gradients are unscaled and looked at in one pass, many tensors in one launch, and the scale
// is updated on the device, so that the host waits for nothing.
#include <cmath>
#include <span>

#include "cuda/kernel_families.h"
#include "cuda/multi_tensor.cuh"

namespace mezzo::cuda {
namespace {

/// Whether g * factor is no finite number of type E.
template <class E, class T>
__device__ bool overflows(T product) {
  constexpr auto limit = static_cast<T>(largest_of(dtype_of<E>));
  return !(std::abs(product) <= limit);
}

/// Reads a chunk once, and writes it once if `write`. Whether a product is not finite.
template <class E>
__device__ bool unscale_chunk(const FloatingTensor& gradient, const Chunk& chunk, float scale_inverse,
                              bool write) {
  using T = Compute<E>;
  const T factor = static_cast<T>(scale_inverse);
  bool bad = false;
  for_chunk<Pack<E>::size>(chunk, [&]<int length>(int64_t i, std::integral_constant<int, length>) {
    T g[length];
    load_pack<E>(g, gradient.data, {}, i);
    for (T& value : g) {
      value *= factor;
      bad |= overflows<E>(value);
    }
    if (write) store_pack<E>(gradient.data, {}, i, g);
  });
  return bad;
}

/// found_inf = 1 if one of the block's threads found one. All must call.
__device__ inline void report(bool bad, float* found_inf) {
  if (__syncthreads_or(bad) != 0 && threadIdx.x == 0) atomicExch(found_inf, 1.0f);
}

/// Many dense gradients, a chunk for each block.
__global__ void __launch_bounds__(kTableThreads)
    unscale_all(const Table<FloatingTensor> table, const float* scale, float* found_inf, bool write) {
  const Chunk chunk = chunk_of_block(table);
  const FloatingTensor& gradient = table.items[chunk.item];
  const float factor = inverse_of(scale);
  write = write && factor != 1;
  bool bad = false;
  with_floating(gradient.dtype, [&]<class E>(E) { bad = unscale_chunk<E>(gradient, chunk, factor, write); });
  report(bad, found_inf);
}

/// One gradient of any layout.
template <class E>
__global__ void unscale_one(const Walk<1> walk, E* data, const float* scale, float* found_inf, bool write) {
  using T = Compute<E>;
  const T factor = static_cast<T>(inverse_of(scale));
  bool bad = false;
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[1];
    walk.places(i, place);
    const T product = convert_to<T>(data[place[0]]) * factor;
    bad |= overflows<E>(product);
    if (write && factor != 1) data[place[0]] = convert_to<E>(product);
  }
  report(bad, found_inf);
}

void unscale(std::span<const View> grads, const View& scale, const View& found_inf, bool write) {
  const auto launch_all = [&](const Table<FloatingTensor>& table) {
    launch(unscale_all, table.grid(), table, scale.as<float>(), found_inf.as<float>(), write);
  };
  const auto launch_one = [&]<class E>(const Walk<1>& walk, E* data) {
    launch(unscale_one<E>, grid_for(walk.count), walk, data, scale.as<float>(), found_inf.as<float>(), write);
  };
  for_tensors(grads, launch_all, launch_one);
}

/// By one thread; the rule is in tensor/scale_rule.h.
__global__ void next_scale(float* scale, int32_t* tracker, const float* found_inf, const ScaleRule rule) {
  if (threadIdx.x != 0) return;
  const ScaleState updated = next({*scale, *tracker}, *found_inf != 0, rule);
  *scale = updated.scale;
  *tracker = updated.tracker;
}

void update_scale(const View& scale, const View& tracker, const View& found_inf, const ScaleRule& rule) {
  const Grid one{dim3(1), dim3(kWarp)};
  launch(next_scale, one, scale.as<float>(), tracker.as<int32_t>(), found_inf.as<float>(), rule);
}

}  // namespace

void add_loss_scaling(Kernels& table) {
  table.unscale = unscale;
  table.update_scale = update_scale;
}

}  // namespace mezzo::cuda
