// Operands in the layout that a library takes.
#pragma once

#include <cstdint>

#include "cuda/context.h"
#include "cuda/copy.h"
#include "tensor/kernels.h"

namespace mezzo::cuda {

/// True if `view` has `strides`, leaving out dimensions of size 1, whose strides mean nothing.
inline bool has_strides(const View& view, const Shape& strides) {
  for (int d = 0; d < view.shape.dim(); ++d) {
    if (view.shape[d] != 1 && view.strides[d] != strides[d]) return false;
  }
  return true;
}

/// A view with the strides of a dense layout and memory that begins at a multiple of 16 bytes: the original
/// if it is that, else scratch memory. One that is not given stays so.
class Staged {
 public:
  Staged(const View& original, const Shape& strides)
      : original_(original),
        moved_(original.given() && !(has_strides(original, strides) && begins_aligned(original))),
        scratch_(moved_ ? static_cast<size_t>(original.numel()) * size_of(original.dtype) : 0),
        view_{moved_ ? scratch_.data() : original.data, original.dtype, original.shape, strides} {}

  const View& view() const { return view_; }
  /// Before the library reads it.
  void load() const {
    if (moved_) copy(view_, original_);
  }
  /// After the library has written it.
  void store() const {
    if (moved_) copy(original_, view_);
  }

 private:
  static bool begins_aligned(const View& view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; }

  View original_;
  bool moved_;
  Scratch scratch_;
  View view_;
};

}  // namespace mezzo::cuda
