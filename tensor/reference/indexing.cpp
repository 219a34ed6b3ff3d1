// Elements by position: for each element of index, one that is read or added to.
#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"

namespace mezzo::reference {
namespace {

/// Position in memory of element [.., index[.., i, ..], ..] of `view`, for element k = [.., i, ..] of index.
int64_t indexed_offset(const View& view, const View& index, int64_t k, int dim) {
  View others{view.data, view.dtype, index.shape, view.strides};
  others.strides[dim] = 0;
  return offset_of(others, k) + load<int64_t>(index, offset_of(index, k)) * view.strides[dim];
}

void gather(const View& out, const View& in, const View& index, int dim) {
  dispatch(out.dtype, [&]<class T>(T) {
    for (int64_t k = 0; k < out.numel(); ++k) {
      out.as<T>()[offset_of(out, k)] = in.as<T>()[indexed_offset(in, index, k, dim)];
    }
  });
}

void scatter(const View& out, const View& index, const View& source, int dim) {
  dispatch(out.dtype, [&]<class T>(T) {
    for (int64_t k = 0; k < source.numel(); ++k) {
      out.as<T>()[indexed_offset(out, index, k, dim)] = source.as<T>()[offset_of(source, k)];
    }
  });
}

void scatter_add(const View& out, const View& index, const View& source, int dim) {
  dispatch(out.dtype, [&]<class T>(T) {
    if constexpr (std::is_arithmetic_v<T>) {
      for (int64_t k = 0; k < source.numel(); ++k) {
        T& sum = out.as<T>()[indexed_offset(out, index, k, dim)];
        sum = static_cast<T>(sum + load<T>(source, offset_of(source, k)));
      }
    }
  });
}

}  // namespace

void add_indexing(Kernels& table) {
  table.gather = gather;
  table.scatter = scatter;
  table.scatter_add = scatter_add;
}

}  // namespace mezzo::reference
