// Random numbers: the same Philox draws as on every device (tensor/random_values.h).
#include <optional>

#include "cuda/copy.h"
#include "cuda/element.cuh"
#include "cuda/kernel_families.h"
#include "cuda/views.h"
#include "tensor/random_values.h"

namespace mezzo::cuda {

namespace {

/// Uniform numbers take their draws one by one, normal ones in pairs.
template <class T>
__device__ void numbers_of(const Uniform<T>& uniform, const std::array<Draw<T>, kDrawsPerBlock<T>>& draws,
                           T (&numbers)[kDrawsPerBlock<T>]) {
  for (int k = 0; k < kDrawsPerBlock<T>; ++k) numbers[k] = uniform(draws[static_cast<size_t>(k)]);
}
template <class T>
__device__ void numbers_of(const Normal<T>& normal, const std::array<Draw<T>, kDrawsPerBlock<T>>& draws,
                           T (&numbers)[kDrawsPerBlock<T>]) {
  for (int k = 0; k < kDrawsPerBlock<T>; k += 2) {
    const auto pair = normal(draws[static_cast<size_t>(k)], draws[static_cast<size_t>(k + 1)]);
    numbers[k] = pair[0];
    numbers[k + 1] = pair[1];
  }
}

/// A thread fills the elements of one block of the stream at a time.
template <class E, class T, class Distribution>
__global__ void __launch_bounds__(256)
    draw(int64_t count, E* out, PhiloxState state, const __grid_constant__ Distribution distribution) {
  constexpr int64_t n = kDrawsPerBlock<T>;
  if (state.origin) state = {state.origin[0], state.origin[1] + state.offset};
  for (int64_t block = first_item(); block * n < count; block += grid_stride()) {
    T numbers[n];
    numbers_of(distribution, draws_of_block<T>(state, block), numbers);
    for (int64_t k = 0; k < n && block * n + k < count; ++k) out[block * n + k] = convert_to<E>(numbers[k]);
  }
}

/// Elements are counted in row-major order: views that lie otherwise get theirs from an array.
template <class Make>
void fill(const View& out, PhiloxState state, Make make) {
  const int64_t count = out.numel();
  if (count == 0) return;
  std::optional<ScratchTensor> moved;
  const bool direct = has_strides(out, contiguous_strides(out.shape));
  const View& array = direct ? out : moved.emplace(out.dtype, out.shape).view();
  dispatch_floating(out.dtype, [&]<class E>(E) {
    using T = Compute<E>;
    const auto distribution = make(T{});
    launch(draw<E, T, decltype(distribution)>, grid_for(count / kDrawsPerBlock<T> + 1), count, array.as<E>(),
           state, distribution);
  });
  if (!direct) copy(out, array);
}

void uniform(const View& out, PhiloxState state, double low, double high) {
  fill(out, state, [&]<class T>(T) { return Uniform<T>(out.dtype, low, high); });
}

void normal(const View& out, PhiloxState state, double mean, double std) {
  fill(out, state, [&]<class T>(T) { return Normal<T>(mean, std); });
}

}  // namespace

void add_random(Kernels& table) {
  table.uniform = &uniform;
  table.normal = &normal;
}

}  // namespace mezzo::cuda
