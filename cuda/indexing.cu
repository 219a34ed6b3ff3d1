// Elements by position: gather, a thread for each element of the result; scatter and scatter_add by the
// kernels in scatter.cuh.
#include <limits>

#include "cuda/kernel_families.h"
#include "cuda/scatter.cuh"

namespace mezzo::cuda {
namespace {

/// `view` as kernels walk it beside index: only its position along dim is still to come.
View beside(const View& view, const Shape& shape, int dim) {
  View result{view.data, view.dtype, shape, view.strides};
  result.strides[dim] = 0;
  return result;
}

// --- gather: reads index and the elements, writes the result, once each

/// A thread for each pack of the result; `step` is in's along the dimension.
template <class E, int size>
__global__ void gather_packs(const Walk<3> walk, int64_t step, E* out, const E* in, const int64_t* index) {
  for (int64_t i = first_item(); i < walk.count; i += grid_stride()) {
    int64_t place[3];
    walk.places(i, place);
    *reinterpret_cast<Pack<E, size>*>(out + place[0]) =
        *reinterpret_cast<const Pack<E, size>*>(in + place[1] + index[place[2]] * step);
  }
}

/// In packs of 16 bytes where one position serves a whole pack: rows of a table.
template <class E>
void gather_as(const View& out, const View& in, const View& index, int dim) {
  const View source = beside(in, out.shape, dim);
  Walk<3> walk({&out, &source, &index});
  const int64_t step = in.strides[dim];
  constexpr int size = Pack<E>::size;
  const auto run = [&](auto kernel) {
    launch(kernel, grid_for(walk.count), walk, step, out.as<E>(), in.as<E>(), index.as<int64_t>());
  };
  if (has_packs(walk, 0, size) && has_packs(walk, 1, size) && walk.strides[walk.dims - 1][2] == 0 &&
      step % size == 0 && is_aligned(out.data) && is_aligned(in.data)) {
    walk_packs(walk, size);
    run(gather_packs<E, size>);
  } else {
    run(gather_packs<E, 1>);
  }
}

void gather(const View& out, const View& in, const View& index, int dim) {
  if (out.numel() == 0) return;
  dispatch_bits(out.dtype, [&]<class E>(E) { gather_as<E>(out, in, index, dim); });
}

// --- scatter

/// A view of one element along each dimension that `leaves(d)` does not name.
template <class F>
View only(const View& view, F&& leaves) {
  View result = view;
  for (int d = 0; d < view.shape.dim(); ++d) {
    if (!leaves(d)) result.shape[d] = 1;
  }
  return result;
}

/// By sorted positions, a piece of each list after the other.
template <class Put, class T, class S>
void scatter_few_lines(const View& out, const View& index, const View& source, int dim,
                       const ScatterSteps& step) {
  const auto in_list = [&](int d) { return d != dim && index.strides[d] != 0; };
  const auto in_columns = [&](int d) { return d != dim && index.strides[d] == 0; };
  const View to = beside(out, source.shape, dim);
  const View list_index = only(index, in_list), list_source = only(source, in_list),
             list_to = only(to, in_list);
  const View column_source = only(source, in_columns), column_to = only(to, in_columns);
  SortedScatter s{.lists = Walk<3>({&list_index, &list_source, &list_to}),
                  .columns = Walk<2>({&column_source, &column_to}),
                  .step = step,
                  .length = source.shape[dim],
                  .order = nullptr,
                  .positions = nullptr};
  const int64_t elements = s.lists.count * s.length;
  const Scratch scratch(static_cast<size_t>(2 * elements) * sizeof(int32_t));
  s.order = scratch.as<int32_t>();
  s.positions = s.order + elements;
  const int64_t groups = s.lists.count * divide_up(s.length, kWarp);
  launch(sort_positions, grid_for(groups * kSortThreads, kSortThreads), s, index.as<int64_t>());
  for (int64_t piece = 0; piece < s.length; piece += s.piece_size) {
    const int64_t length = std::min<int64_t>(s.piece_size, s.length - piece);
    launch(scatter_sorted<Put, T, S>, grid_for(s.lists.count * length * s.columns.count), s, piece, length,
           source.as<S>(), out.as<T>());
  }
}

/// Chooses between the two ways of scatter.cuh.
template <class Put, class T, class S>
void scatter_as(const View& out, const View& index, const View& source, int dim) {
  constexpr int64_t kShort = 32, kManyLines = 32768;
  const ScatterSteps step{source.strides[dim], index.strides[dim], out.strides[dim]};
  const int64_t length = source.shape[dim], count = source.numel() / length;
  if (length > kShort && count < kManyLines && out.shape[dim] < std::numeric_limits<int32_t>::max())
    return scatter_few_lines<Put, T, S>(out, index, source, dim, step);
  const auto beside_dim = [&](int d) { return d != dim; };
  const View to = only(beside(out, source.shape, dim), beside_dim);
  const View from = only(source, beside_dim), positions = only(index, beside_dim);
  const Walk<3> lines({&from, &positions, &to});
  launch(scatter_lines<Put, T, S>, grid_for(lines.count), lines, length, step, source.as<S>(),
         index.as<int64_t>(), out.as<T>());
}

void scatter(const View& out, const View& index, const View& source, int dim) {
  if (source.numel() == 0) return;
  dispatch_bits(out.dtype, [&]<class E>(E) { scatter_as<Replace, E, E>(out, index, source, dim); });
}

void scatter_add(const View& out, const View& index, const View& source, int dim) {
  if (source.numel() == 0) return;
  dispatch(source.dtype, [&]<class S>(S) { scatter_as<AddTo, Compute<S>, S>(out, index, source, dim); });
}

}  // namespace

void add_indexing(Kernels& table) {
  table.gather = gather;
  table.scatter = scatter;
  table.scatter_add = scatter_add;
}

}  // namespace mezzo::cuda
