// Operands in the layout that a library takes.
#pragma once

#include <optional>

#include "cuda/copy.h"
#include "cuda/views.h"

namespace mezzo::cuda {

/// A view with the strides of a dense layout and memory that begins at a multiple of 16 bytes: the original
/// if it is that, else scratch memory. One that is not given stays so.
class Staged {
 public:
  Staged(const View& original, const Shape& strides)
      : original_(original), view_{original.data, original.dtype, original.shape, strides} {
    if (!original.given() || (has_strides(original, strides) && is_aligned(original.data))) return;
    view_ = moved_.emplace(original.dtype, original.shape, strides).view();
  }

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
  View original_;
  std::optional<ScratchTensor> moved_;
  View view_;
};

}  // namespace mezzo::cuda
