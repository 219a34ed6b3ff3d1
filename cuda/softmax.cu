// Softmax along one dimension, and its gradient: which kernel of softmax.cuh, and how threads are dealt to
// lines.
#include "cuda/softmax.cuh"

#include <array>

#include "cuda/kernel_families.h"

namespace mezzo::cuda {
namespace {

/// The lines of views of one shape along dimension dim.
template <int n>
Lines<n> lines_along(const std::array<const View*, n>& views, int dim) {
  std::array<View, n> firsts;
  std::array<const View*, n> pointers;
  for (size_t v = 0; v < n; ++v) {
    firsts[v] = *views[v];
    if (firsts[v].shape.dim() > 0) firsts[v].shape[dim] = 1;
    pointers[v] = &firsts[v];
  }
  Lines<n> lines{.starts = Walk<n>(pointers),
                 .length = 1,
                 .steps = {},
                 .data = {},
                 .dtypes = {},
                 .team = {},
                 .groups = 0};
  for (size_t v = 0; v < n; ++v) {
    const View& view = *views[v];
    if (view.shape.dim() > 0) lines.length = view.shape[dim], lines.steps[v] = view.strides[dim];
    lines.data[v] = view.data;
    lines.dtypes[v] = view.dtype;
  }
  return lines;
}

/// Whether all operands can be read and written in packs of `size` elements along the lines.
template <int n>
bool have_packs(const Lines<n>& lines, int size) {
  bool whole = lines.length % size == 0;
  for (int v = 0; v < n; ++v) {
    whole &= lines.steps[v] == 1 && is_aligned(lines.data[v]) && starts_packs(lines.starts, v, size);
  }
  return whole;
}

/// Deals threads, at most `most` of a block, to lines that are read in packs of `size`. Returns whether a
/// team's registers hold a line.
template <int n>
bool deal(Lines<n>& lines, int size, unsigned most) {
  constexpr unsigned kThreads = 256;
  const int64_t count = lines.starts.count;
  const bool abreast = smallest_stride(lines.starts, 1) < lines.steps[1];
  unsigned members = power_of_2_from(divide_up(lines.length, kKept), most), beside = 1;
  if (abreast) {
    beside = power_of_2_from(count, kWarp);
    members = std::min(members, most / beside);
  } else {
    members = std::max(members, power_of_2_from(lines.length / size, 8));  // whole sectors
  }
  beside = std::max(beside, kThreads / std::min(members, kThreads));
  lines.team = {members, beside, abreast};
  lines.groups = divide_up(count, beside);
  return lines.length <= int64_t{members} * kKept;
}

/// Runs one of two kernels, by whether registers hold a line.
template <class T, int n>
void run(void (*in_registers)(Lines<n>, bool), void (*in_two_reads)(Lines<n>, bool), Lines<n> lines, int size,
         bool log) {
  const bool fits = deal(lines, size, kMostThreads<T>);
  const int64_t blocks = std::min<int64_t>(lines.groups, std::numeric_limits<int32_t>::max());
  const Grid grid{dim3(static_cast<unsigned>(blocks)), dim3(lines.team.members * lines.team.lines)};
  launch(fits ? in_registers : in_two_reads, grid, lines, log);
}

template <class T, class Out, class In, int size>
void forward(const Lines<2>& lines, bool log) {
  run<T>(softmax_in_registers<T, Out, In, size>, softmax_in_two_reads<T, Out, In, size>, lines, size, log);
}

template <class Out, class In>
void forward(const Lines<2>& lines, bool log) {
  constexpr int size = Pack<In>::size;
  if (have_packs(lines, size))
    forward<float, Out, In, size>(lines, log);
  else
    forward<float, Out, In, 1>(lines, log);
}

/// Kernels for the dtypes where speed matters: all the same, or as under autocast 16 bits in and 32 out.
void softmax(const View& out, const View& in, int dim, bool log) {
  if (out.numel() == 0) return;
  const Lines<2> lines = lines_along<2>({&out, &in}, dim);
  dispatch(in.dtype, [&]<class In>(In) {
    if constexpr (std::is_same_v<In, float> || is_16_bit<In>) {
      if (out.dtype == in.dtype) return forward<In, In>(lines, log);
    }
    if constexpr (is_16_bit<In>) {
      if (out.dtype == DType::float32) return forward<float, In>(lines, log);
    }
    using T = std::conditional_t<std::is_same_v<In, double>, double, float>;
    forward<T, void, void, 1>(lines, log);
  });
}

template <class T, class E, int size>
void backward(const Lines<3>& lines, bool log) {
  run<T>(softmax_grad_in_registers<T, E, size>, softmax_grad_in_two_reads<T, E, size>, lines, size, log);
}

void softmax_grad(const View& grad_in, const View& g, const View& y, int dim, bool log) {
  if (grad_in.numel() == 0) return;
  const Lines<3> lines = lines_along<3>({&grad_in, &g, &y}, dim);
  dispatch(y.dtype, [&]<class E>(E) {
    if constexpr (std::is_same_v<E, float> || is_16_bit<E>) {
      if (g.dtype == y.dtype && grad_in.dtype == y.dtype) {
        constexpr int size = Pack<E>::size;
        return have_packs(lines, size) ? backward<float, E, size>(lines, log)
                                       : backward<float, E, 1>(lines, log);
      }
    }
    using T = std::conditional_t<std::is_same_v<E, double>, double, float>;
    backward<T, void, 1>(lines, log);
  });
}

}  // namespace

void add_softmax(Kernels& table) {
  table.softmax = softmax;
  table.softmax_grad = softmax_grad;
}

}  // namespace mezzo::cuda
