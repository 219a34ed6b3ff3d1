// Random numbers: draws a chunk at a time, in parallel; what they become is tensor/random_values.h's affair.
#include "tensor/random_values.h"

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"

namespace mezzo::cpu {
namespace {

/// Stores elements [first, first + n), in row-major order of the view.
template <class T>
void store_elements(const View& out, const T* values, int64_t first, int64_t n) {
  const int last = out.shape.dim() - 1;
  const int64_t row = last < 0 ? 1 : out.shape[last], stride = last < 0 ? 1 : out.strides[last];
  while (n > 0) {
    const int64_t column = first % row, m = std::min(n, row - column);
    int64_t offset = column * stride, index = first / row;
    for (int d = last - 1; d >= 0; --d) {
      offset += index % out.shape[d] * out.strides[d];
      index /= out.shape[d];
    }
    store_run(address(out, offset), out.dtype, stride, values, m);
    values += m;
    first += m;
    n -= m;
  }
}

/// Fills `out` with what `make(draws, values)` makes of kChunk draws at a time.
template <class T, class Make>
void generate(const View& out, PhiloxState state, Make&& make) {
  static_assert(kChunk % kDrawsPerBlock<T> == 0);
  const View flat{out.data, out.dtype, {out.numel()}, {1}};
  const View& target = out.strides == contiguous_strides(out.shape) ? flat : out;
  parallel_for(out.numel(), 16 * kChunk, [&](int64_t begin, int64_t end) {
    constexpr int64_t per_block = kDrawsPerBlock<T>;
    Draw<T> draws[kChunk];
    T values[kChunk];
    for (int64_t first = begin; first < end; first += kChunk) {
      for (int64_t b = 0; b < kChunk / per_block; ++b) {
        const auto block = draws_of_block<T>(state, first / per_block + b);
        for (int64_t k = 0; k < per_block; ++k) draws[b * per_block + k] = block[static_cast<size_t>(k)];
      }
      make(draws, values);
      store_elements(target, values, first, std::min(kChunk, end - first));
    }
  });
}

template <class T>
void uniform_as(const View& out, PhiloxState state, double low, double high) {
  const Uniform<T> uniform(out.dtype, low, high);
  generate<T>(out, state, [&](const Draw<T>* draws, T* values) {
    for (int64_t i = 0; i < kChunk; ++i) values[i] = uniform(draws[i]);
  });
}

template <class T>
void normal_as(const View& out, PhiloxState state, double mean, double std) {
  const Normal<T> normal(mean, std);
  generate<T>(out, state, [&](const Draw<T>* draws, T* values) {
    for (int64_t i = 0; i < kChunk; i += 2) {
      const auto pair = normal(draws[i], draws[i + 1]);
      std::copy(pair.begin(), pair.end(), values + i);
    }
  });
}

void uniform(const View& out, PhiloxState state, double low, double high) {
  (out.dtype == DType::float64 ? uniform_as<double> : uniform_as<float>)(out, state, low, high);
}

void normal(const View& out, PhiloxState state, double mean, double std) {
  (out.dtype == DType::float64 ? normal_as<double> : normal_as<float>)(out, state, mean, std);
}

}  // namespace

void add_random(Kernels& table) {
  table.uniform = uniform;
  table.normal = normal;
}

}  // namespace mezzo::cpu
