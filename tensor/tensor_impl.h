// What a Tensor handle points to. For the library's own files.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace mezzo {

struct WeightCast;  // weight_cast.cpp

struct TensorImpl {
  TensorImpl(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, const Shape& strides,
             DType dtype)
      : storage(std::move(storage)), offset(offset), shape(shape), strides(strides), dtype(dtype) {}

  /// Address of the first element.
  void* data() const {
    return static_cast<std::byte*>(storage->data()) + offset * static_cast<int64_t>(size_of(dtype));
  }

  std::shared_ptr<Storage> storage;
  int64_t offset;  ///< of the first element, in elements
  Shape shape, strides;
  DType dtype;
  bool is_number = false;  ///< made from a C++ number: gives way in type promotion

  bool requires_grad = false;     ///< of a leaf; a tensor with a grad_fn requires grad anyway
  bool is_view = false;           ///< made by a view op: shares memory with the tensor that it was made from
  uint32_t rebases = 0;           ///< of a view: storage->rebases() when it was made
  std::shared_ptr<Node> grad_fn;  ///< the op that made it, while recording
  int output_index = 0;           ///< which output of grad_fn it is
  Tensor grad;
  Hooks<TensorHook> hooks;                 ///< of a leaf; those of another tensor hang on its grad_fn
  std::shared_ptr<const WeightCast> cast;  ///< the last that autocast asked for: weight_cast.h
};

/// A tensor over part of `storage`. The caller has checked that strides stay inside.
Tensor make_view(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape, const Shape& strides,
                 DType dtype);
/// A new tensor with the given strides (dense, in any order of dimensions).
Tensor empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Device& device);
/// out = in, of one shape, converted to out's dtype, between any devices; for two that are not the CPU's
/// memory, of one backend.
void copy_elements(const Tensor& out, const Tensor& in);
/// Bytes for `shape`; throws Error for negative sizes and on overflow.
size_t checked_bytes(std::string_view op, const Shape& shape, DType dtype);
/// `dim` counted from the end if negative; throws Error if outside [-dims, dims).
int wrap_dim(std::string_view op, int64_t dim, const Tensor& x);

/// Whether nobody else holds x or its memory: an op may then put its result there.
inline bool is_sole_owner(const Tensor& x) {
  return x.handle().use_count() == 1 && x.impl()->storage.use_count() == 1;
}

/// Name of the op that made the tensor, "" for a leaf. Defined in autograd/, which knows ops.
std::string_view history_name(const Tensor& tensor);

/// x's memory as kernels see it; for an undefined tensor a View that is not given.
View view_or_none(const Tensor& x);

/// The memory format of an activation: channels_last for a 4-d tensor in it. With one channel both formats
/// are the same memory, and the strides still tell.
MemoryFormat format_of(const Tensor& x);

/// dtype of an op on these operands, by PyTorch's rule: tensors, then 0-d tensors, then numbers; a lower
/// class counts only if its kind (bool < integer < floating) is higher. Undefined tensors are passed over.
DType promote(std::span<const Tensor> operands);
/// Smallest dtype that holds both, within one class.
DType promote(DType a, DType b);

}  // namespace mezzo
