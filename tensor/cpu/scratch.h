// Memory that a kernel needs while it runs, and operands moved into it.
#pragma once

#include <cstddef>

#include "tensor/cpu/copy.h"
#include "tensor/storage.h"

namespace mezzo::cpu {

/// A block from the allocator under Storage, given back at the end of the scope.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : data_(bytes ? memory::allocate(bytes, {}) : nullptr), bytes_(bytes) {}
  ~Scratch() {
    if (data_) memory::release(data_, bytes_, {});
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  size_t bytes_;
};

/// True if `view` has `strides`, leaving out dimensions of size 1, whose strides mean nothing.
inline bool has_strides(const View& view, const Shape& strides) {
  for (int d = 0; d < view.shape.dim(); ++d) {
    if (view.shape[d] != 1 && view.strides[d] != strides[d]) return false;
  }
  return true;
}

/// A view of the dtype and strides that a library takes: over the memory of the original where that has them,
/// else over scratch memory for every element of its shape. A view that is not given stays so.
class Staged {
 public:
  const View& view() const { return view_; }

 protected:
  Staged(const View& original, DType dtype, const Shape& strides)
      : moved_(original.given() && (original.dtype != dtype || !has_strides(original, strides))),
        scratch_(moved_ ? static_cast<size_t>(original.numel()) * size_of(dtype) : 0),
        view_{moved_ ? scratch_.as<void>() : original.data, dtype, original.shape, strides} {}

  bool moved_;

 private:
  Scratch scratch_;
  View view_;
};

/// An operand. Strides with gaps or zeros must be its own, and so must then the dtype.
class StagedInput : public Staged {
 public:
  StagedInput(const View& original, DType dtype, const Shape& strides) : Staged(original, dtype, strides) {
    if (moved_) copy(view(), original);
  }
};

/// A result, written back by finish().
class StagedOutput : public Staged {
 public:
  StagedOutput(const View& original, DType dtype, const Shape& strides)
      : Staged(original, dtype, strides), original_(original) {}

  void finish() const {
    if (moved_) copy(original_, view());
  }

 private:
  View original_;
};

}  // namespace mezzo::cpu
