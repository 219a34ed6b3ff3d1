#include "tensor/cpu/copy.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/runs.h"
#include "tensor/cpu/stream.h"
#include "tensor/cpu/vec.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {

namespace {

constexpr int64_t kGrain = 32768;

template <class T>
T* at(const View& view, int64_t offset) {
  return static_cast<T*>(view.data) + offset;
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

/// A run between different dtypes, through T; in one step where one side is an array of that.
template <class T>
void convert_run(const View& to, int64_t out, int64_t out_stride, const View& from, int64_t in,
                 int64_t in_stride, int64_t n) {
  if (T* whole = memory_run<T>(to, out, out_stride, n))
    return load_run(whole, address(from, in), from.dtype, in_stride, n);
  alignas(64) T buffer[kChunk];
  for (int64_t m; n > 0; n -= m, in += m * in_stride, out += m * out_stride) {
    m = std::min(kChunk, n);
    const T* values = read_run(from, in, in_stride, m, buffer);
    store_run(address(to, out), to.dtype, out_stride, values, m);
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

constexpr int64_t kSide = 64;  // elements of a square's side: at least a cache line, and two stay in L1

/// A square of elements that have as many bits as a T, in lanes of registers, which turn it.
template <class T>
class Square {
  using Lane = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

 public:
  /// rows[k][l] for k < m and l < n, whose rows are `step` apart.
  void read(const T* rows, int64_t step, int64_t m, int64_t n) {
    for (int64_t k = 0; k < m; ++k)
#pragma omp simd
      for (int64_t l = 0; l < n; ++l) lanes_[k * kSide + l] = to_lane(rows[k * step + l]);
  }
  /// What has been read, while the square that will be next is brought towards the cache.
  void turn(int64_t m, int64_t n, const T* next, int64_t step) {
    using Real = std::conditional_t<sizeof(T) == 8, double, float>;
    using Packet = typename Vec<Real>::Packet;
    constexpr int kLanes = Vec<Real>::size;
    static_assert(kSide % kLanes == 0);
    for (int64_t l = 0; l < n; l += kLanes) {
      for (int64_t k = 0; k < m; k += kLanes) {
        ei::PacketBlock<Packet, kLanes> block;
        for (int r = 0; r < kLanes; ++r) {
          __builtin_prefetch(next + (k + r) * step + l, 0, 2);
          block.packet[r] = ei::ploadu<Packet>(reinterpret_cast<const Real*>(lanes_ + (k + r) * kSide + l));
        }
        ei::ptranspose(block);
        for (int r = 0; r < kLanes; ++r)
          ei::pstoreu(reinterpret_cast<Real*>(turned_ + (l + r) * kSide + k), block.packet[r]);
      }
    }
  }
  /// rows[l][k]; `streams`: past the caches.
  void write(T* rows, int64_t step, int64_t m, int64_t n, bool streams) const {
    for (int64_t l = 0; l < n; ++l) {
      T row[kSide];
      T* const to = streams ? row : rows + l * step;
#pragma omp simd
      for (int64_t k = 0; k < m; ++k) to[k] = from_lane(turned_[l * kSide + k]);
      if (streams) stream(rows + l * step, row, static_cast<size_t>(m) * sizeof(T));
    }
  }

 private:
  static Lane to_lane(T value) {
    if constexpr (sizeof(T) == sizeof(Lane))
      return std::bit_cast<Lane>(value);
    else
      return value;
  }
  static T from_lane(Lane lane) {
    if constexpr (sizeof(T) == sizeof(Lane))
      return std::bit_cast<T>(lane);
    else
      return static_cast<T>(lane);
  }

  alignas(64) Lane lanes_[kSide * kSide] = {}, turned_[kSide * kSide];
};

/// A transposition, square by square: rows of a square are read whole, turned and written whole. Run by run,
/// each element would wait for a cache line of its own, and the lines of one run push each other out of the
/// cache where strides are powers of two.
template <class T>
void move_squares(T* out, const T* in, const StridedLoop& loop, int across, bool streams) {
  const int inner = loop.dims() - 1;
  const int64_t in_step = loop.stride(inner, 1), out_step = loop.stride(across, 0);
  const int64_t per_row = (loop.size(inner) + kSide - 1) / kSide,
                rows = (loop.size(across) + kSide - 1) / kSide;
  const int64_t squares = loop.size() / loop.size(inner) / loop.size(across) * rows * per_row;
  parallel_for(squares, kGrain / (kSide * kSide), [&](int64_t begin, int64_t end) {
    Square<T> square;
    for (int64_t s = begin; s < end; ++s) {
      const int64_t i = s % per_row * kSide, j = s / per_row % rows * kSide;
      T* to = out + i + j * out_step;
      const T* from = in + i * in_step + j;
      int64_t rest = s / per_row / rows;
      for (int d = inner; d-- > 0;) {
        if (d == across) continue;
        to += rest % loop.size(d) * loop.stride(d, 0);
        from += rest % loop.size(d) * loop.stride(d, 1);
        rest /= loop.size(d);
      }
      const int64_t m = std::min(kSide, loop.size(inner) - i), n = std::min(kSide, loop.size(across) - j);
      square.read(from, in_step, m, n);
      square.turn(m, n, from + kSide * in_step, in_step);
      square.write(to, out_step, m, n, streams);
    }
    if (streams) finish_streams();
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
    const auto move = [&]<class T>(T) {
      move_squares(out.as<T>(), in.as<T>(), loop, across, is_streamed(out));
    };
    switch (size_of(out.dtype)) {
      case 8:
        return move(double{});
      case 4:
        return move(float{});
      case 2:
        return move(uint16_t{});
      default:
        return move(uint8_t{});
    }
  }
  for_all_runs(loop, [&](const StridedLoop::Offsets& offsets, int64_t n) {
    const int64_t out_stride = loop.stride(0), in_stride = loop.stride(1);
    if (out.dtype == in.dtype) {
      dispatch(out.dtype, [&]<class T>(T) {
        move_run(at<T>(out, offsets[0]), out_stride, at<T>(in, offsets[1]), in_stride, n);
      });
    } else {
      dispatch_compute(in.dtype, [&]<class T>(T) {
        convert_run<T>(out, offsets[0], out_stride, in, offsets[1], in_stride, n);
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
