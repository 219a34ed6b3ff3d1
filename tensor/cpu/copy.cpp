#include "tensor/cpu/copy.h"

#include <cstring>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {

namespace {

constexpr int64_t kGrain = 32768;

template <class T>
T* at(const View& view, int64_t offset) {
  return static_cast<T*>(view.data) + offset;
}

std::byte* bytes_at(const View& view, int64_t offset) {
  return at<std::byte>(view, offset * static_cast<int64_t>(size_of(view.dtype)));
}

/// A run between elements of one size, whose bits move as they are.
template <class Bits>
void move_run(Bits* out, int64_t out_stride, const Bits* in, int64_t in_stride, int64_t n) {
  if (out_stride == 1 && in_stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(n) * sizeof(Bits));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i * out_stride] = in[i * in_stride];
  }
}

/// A run between different dtypes, through the wider of their compute types.
template <class T>
void convert_run(std::byte* out, const View& to, int64_t out_stride, const std::byte* in, const View& from,
                 int64_t in_stride, int64_t n) {
  alignas(64) T buffer[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t m = std::min(kChunk, n - i);
    load_run(buffer, in + i * in_stride * static_cast<int64_t>(size_of(from.dtype)), from.dtype, in_stride,
             m);
    store_run(out + i * out_stride * static_cast<int64_t>(size_of(to.dtype)), to.dtype, out_stride, buffer,
              m);
  }
}

/// The type that values pass through: the source's own, so that nothing is lost before the one rounding.
template <class F>
void dispatch_compute(DType dtype, F f) {
  dispatch(compute_type(dtype), [&]<class T>(T value) {
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) f(value);
  });
}

template <class F>
void for_all_runs(const StridedLoop& loop, F f) {
  parallel_for(loop.size(), kGrain, [&](int64_t begin, int64_t end) { loop.for_runs(begin, end, f); });
}

/// The dimension along which the second view is contiguous where the first, along the innermost one, is; -1
/// if that is the same one, or there is none.
int transposed_dim(const StridedLoop& loop) {
  const int inner = loop.dims() - 1;
  if (loop.size() == 0 || loop.stride(0) != 1 || loop.stride(1) <= 1) return -1;
  for (int d = inner; d-- > 0;) {
    if (loop.stride(d, 1) == 1) return d;
  }
  return -1;
}

/// A transposition, square by square: rows of a square are read whole, turned in a buffer and written whole.
/// Run by run, each element would wait for a cache line of its own, and the lines of one run push each other
/// out of the cache where strides are powers of two.
template <class T>
void move_squares(T* out, const T* in, const StridedLoop& loop, int across) {
  constexpr int64_t side = 64;  // elements: at least a cache line, and a square stays in L1
  const int inner = loop.dims() - 1;
  const int64_t in_step = loop.stride(inner, 1), out_step = loop.stride(across, 0);
  const int64_t per_row = (loop.size(inner) + side - 1) / side, rows = (loop.size(across) + side - 1) / side;
  const int64_t squares = loop.size() / loop.size(inner) / loop.size(across) * rows * per_row;
  parallel_for(squares, kGrain / (side * side), [&](int64_t begin, int64_t end) {
    T square[side * side];
    for (int64_t s = begin; s < end; ++s) {
      const int64_t i = s % per_row * side, j = s / per_row % rows * side;
      T* to = out + i + j * out_step;
      const T* from = in + i * in_step + j;
      int64_t rest = s / per_row / rows;
      for (int d = inner; d-- > 0;) {
        if (d == across) continue;
        to += rest % loop.size(d) * loop.stride(d, 0);
        from += rest % loop.size(d) * loop.stride(d, 1);
        rest /= loop.size(d);
      }
      const int64_t m = std::min(side, loop.size(inner) - i), n = std::min(side, loop.size(across) - j);
      for (int64_t k = 0; k < m; ++k) std::copy_n(from + k * in_step, n, square + k * side);
      for (int64_t l = 0; l < n; ++l) {
        for (int64_t k = 0; k < m; ++k) to[l * out_step + k] = square[k * side + l];
      }
    }
  });
}

void fill(const View& out, Scalar value) {
  dispatch(out.dtype, [&]<class T>(T) {
    const T element = value.to<T>();
    const View* view = &out;
    const StridedLoop loop({&view, 1});
    for_all_runs(loop, [&](const StridedLoop::Offsets& offsets, int64_t n) {
      T* to = at<T>(out, offsets[0]);
      for (int64_t i = 0; i < n; ++i) to[i * loop.stride(0)] = element;
    });
  });
}

void arange(const View& out, Scalar start, Scalar step) {
  dispatch(out.dtype, [&]<class T>(T) {
    const bool integers = start.dtype() != float64 && step.dtype() != float64;
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      const Scalar value = integers ? Scalar(start.to<int64_t>() + i * step.to<int64_t>())
                                    : Scalar(start.to<double>() + static_cast<double>(i) * step.to<double>());
      *at<T>(out, i * out.strides[0]) = value.to<T>();
    }
  });
}

}  // namespace

void copy(const View& out, const View& in) {
  const std::array<const View*, 2> views{&out, &in};
  const StridedLoop loop(views);
  if (const int across = transposed_dim(loop); across >= 0 && out.dtype == in.dtype) {
    return dispatch(out.dtype, [&]<class T>(T) { move_squares(out.as<T>(), in.as<T>(), loop, across); });
  }
  for_all_runs(loop, [&](const StridedLoop::Offsets& offsets, int64_t n) {
    const int64_t out_stride = loop.stride(0), in_stride = loop.stride(1);
    if (out.dtype == in.dtype) {
      dispatch(out.dtype, [&]<class T>(T) {
        move_run(at<T>(out, offsets[0]), out_stride, at<T>(in, offsets[1]), in_stride, n);
      });
    } else {
      dispatch_compute(in.dtype, [&]<class T>(T) {
        convert_run<T>(bytes_at(out, offsets[0]), out, out_stride, bytes_at(in, offsets[1]), in, in_stride,
                       n);
      });
    }
  });
}

void add_copy(Kernels& table) {
  table.copy = &copy;
  table.fill = &fill;
  table.arange = &arange;
}

}  // namespace mezzo::cpu
