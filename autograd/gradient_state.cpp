// The part of Tensor that speaks of gradients: flags, grad, detach.
#include "autograd/node.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

bool Tensor::requires_grad() const { return defined() && (impl_->requires_grad || impl_->grad_fn); }
bool Tensor::is_leaf() const { return !defined() || !impl_->grad_fn; }

const std::shared_ptr<Node>& Tensor::grad_fn() const {
  static const std::shared_ptr<Node> none;
  return defined() ? impl_->grad_fn : none;
}

const Tensor& Tensor::grad() const {
  static const Tensor none;
  return defined() ? impl_->grad : none;
}

Tensor& Tensor::requires_grad_(bool requires_grad) {
  if (requires_grad && !is_floating(dtype())) {
    fail("requires_grad_", text("only floating tensors can require grad, not ", name_of(dtype())),
         {{"tensor", *this}});
  }
  if (!requires_grad && !is_leaf()) {
    fail("requires_grad_", "only a leaf can stop requiring grad", {{"tensor", *this}}, "use detach()");
  }
  if (is_leaf()) impl_->requires_grad = requires_grad;
  return *this;
}

void Tensor::set_grad(const Tensor& grad) {
  if (grad.defined() && (grad.shape() != shape() || grad.dtype() != dtype() || grad.device() != device())) {
    fail("set_grad", "a gradient has its tensor's shape, dtype and device",
         {{"tensor", *this}, {"gradient", grad}});
  }
  impl_->grad = grad;
}

void Tensor::retain_grad() {
  if (!requires_grad()) fail("retain_grad", "the tensor does not require grad", {{"tensor", *this}});
  if (is_leaf()) return;  // leaves keep theirs anyway
  impl_->grad_fn->outputs[static_cast<size_t>(impl_->output_index)].retains = impl_;
}

HookHandle Tensor::register_hook(TensorHook hook) {
  if (!requires_grad()) fail("register_hook", "the tensor does not require grad", {{"tensor", *this}});
  if (is_leaf()) return impl_->hooks.add(std::move(hook));
  return impl_->grad_fn->outputs[static_cast<size_t>(impl_->output_index)].hooks.add(std::move(hook));
}

Tensor Tensor::detach() const {
  const View view = view_of_memory();
  return make_view(impl_->storage, impl_->offset, view.shape, view.strides, view.dtype);
}

void Tensor::set_data(const Tensor& data) {
  if (data.shape() != shape()) fail("set_data", "shapes must be equal", {{"tensor", *this}, {"data", data}});
  if (!is_leaf()) fail("set_data", "the tensor has a history that belongs to its data", {{"tensor", *this}});
  if (requires_grad() && !is_floating(data.dtype())) {
    fail("set_data", "a tensor that requires grad needs floating data", {{"tensor", *this}, {"data", data}});
  }
  impl_->storage = data.impl()->storage;
  impl_->offset = data.impl()->offset;
  impl_->strides = data.impl()->strides;
  impl_->dtype = data.impl()->dtype;
  impl_->cast = nullptr;
}

std::string_view history_name(const Tensor& tensor) {
  return tensor.grad_fn() ? tensor.grad_fn()->name() : std::string_view();
}

}  // namespace mezzo
