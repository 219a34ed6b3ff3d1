#include "tensor/cpu/copy.h"

#include <cstring>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/strided_loop.h"

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
void for_all_runs(std::initializer_list<const View*> views, F f) {
  const StridedLoop loop({views.begin(), views.size()});
  parallel_for(loop.size(), kGrain, [&](int64_t begin, int64_t end) {
    loop.for_runs(begin, end, [&](const StridedLoop::Offsets& offsets, int64_t n) { f(loop, offsets, n); });
  });
}

void fill(const View& out, Scalar value) {
  dispatch(out.dtype, [&]<class T>(T) {
    const T element = value.to<T>();
    for_all_runs({&out}, [&](const StridedLoop& loop, const StridedLoop::Offsets& offsets, int64_t n) {
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
  for_all_runs({&out, &in}, [&](const StridedLoop& loop, const StridedLoop::Offsets& offsets, int64_t n) {
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
