#include "tensor/tensor.h"

#include <utility>

#include "tensor/backend.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

const TensorImpl& checked(const std::shared_ptr<TensorImpl>& impl) {
  if (!impl) fail("tensor", "is undefined", {}, "a default-constructed Tensor stands for \"none\"");
  return *impl;
}

}  // namespace

Tensor::Tensor(Scalar number) : Tensor(full({}, number, {.dtype = number.dtype()})) {
  impl_->is_number = true;
}

const Shape& Tensor::shape() const { return checked(impl_).shape; }
const Shape& Tensor::strides() const { return checked(impl_).strides; }
DType Tensor::dtype() const { return checked(impl_).dtype; }
const Device& Tensor::device() const { return checked(impl_).storage->device(); }
int64_t Tensor::size(int dim) const { return shape()[wrap_dim("size", dim, *this)]; }
uint32_t Tensor::version() const { return checked(impl_).storage->version(); }
void Tensor::bump_version() const {
  const std::shared_ptr<Storage>& storage = checked(impl_).storage;
  storage->bump_version();
  if (!is_capturing(device())) return;
  // Each replay will write it again.
  backend(device()).at_replay(device().index, [written = std::weak_ptr(storage)] {
    if (const auto alive = written.lock()) alive->bump_version();
  });
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::channels_last && dim() != 4) return false;
  const Shape expected =
      format == MemoryFormat::channels_last ? channels_last_strides(shape()) : contiguous_strides(shape());
  for (int d = 0; d < dim(); ++d) {
    if (shape()[d] == 0) return true;
    if (shape()[d] != 1 && strides()[d] != expected[d]) return false;
  }
  return true;
}

View Tensor::view_of_memory() const {
  const TensorImpl& impl = checked(impl_);
  return {impl.data(), impl.dtype, impl.shape, impl.strides};
}

void* Tensor::data_as(DType dtype) const {
  if (!in_host_memory(device())) fail("data", "the tensor is not in the CPU's memory", {{"tensor", *this}});
  if (dtype != this->dtype()) {
    fail("data", text("asked for ", name_of(dtype), " but the tensor holds ", name_of(this->dtype())),
         {{"tensor", *this}}, "convert it with to(dtype)");
  }
  return view_of_memory().data;
}

Scalar Tensor::item_as_scalar() const {
  if (numel() != 1) fail("item", text("needs one element but there are ", numel()), {{"tensor", *this}});
  const Tensor host = in_host_memory(device()) ? *this : detach().to(Device());
  return dispatch(dtype(), [&]<class T>(T) -> Scalar {
    const T value = *host.data<T>();
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      return static_cast<float>(value);
    else
      return value;
  });
}

void copy_elements(const Tensor& out, const Tensor& in) {
  const bool near =
      in.device() == out.device() || (in_host_memory(in.device()) && in_host_memory(out.device()));
  if (near) return kernels(out.device()).copy(out.view_of_memory(), in.view_of_memory());
  // Bytes move between arrays of one dtype and layout; what is not one is made so on its own side.
  const bool as_array = is_dense(out.shape(), out.strides());
  const Shape strides = as_array ? out.strides() : contiguous_strides(out.shape());
  Tensor from = in;
  if (in.dtype() != out.dtype() || in.strides() != strides) {
    from = empty_strided(out.shape(), strides, out.dtype(), in.device());
    kernels(in.device()).copy(from.view_of_memory(), in.view_of_memory());
  }
  const Tensor to = as_array ? out : empty_strided(out.shape(), strides, out.dtype(), out.device());
  const Device& far = in_host_memory(out.device()) ? in.device() : out.device();
  backend(far).copy(to.view_of_memory().data, to.device(), from.view_of_memory().data, from.device(),
                    static_cast<size_t>(to.numel()) * size_of(to.dtype()));
  if (!as_array) kernels(out.device()).copy(out.view_of_memory(), to.view_of_memory());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor values = empty(shape(), {.dtype = dtype_of<T>});
  copy_elements(values, *this);
  const T* data = values.data<T>();
  return std::vector<T>(data, data + numel());
}

template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;

View view_or_none(const Tensor& x) { return x.defined() ? x.view_of_memory() : View{}; }

MemoryFormat format_of(const Tensor& x) {
  const bool last = x.is_contiguous(channels_last) && x.strides() != contiguous_strides(x.shape());
  return last ? channels_last : contiguous_format;
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string shape = to_string(tensor.shape());
  std::erase(shape, ' ');
  return text(shape, ' ', name_of(tensor.dtype()), ' ', to_string(tensor.device()));
}

int wrap_dim(std::string_view op, int64_t dim, const Tensor& x) {
  const int dims = x.dim();
  const int64_t bound = std::max(dims, 1);  // a 0-d tensor takes 0 and -1, as in PyTorch
  if (dim < -bound || dim >= bound) {
    fail(op, text("dimension ", dim, " is outside [", -bound, ", ", bound - 1, "]"), {{"input", x}});
  }
  return static_cast<int>(dim < 0 ? dim + bound : dim);
}

}  // namespace mezzo
