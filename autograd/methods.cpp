// Tensor's differentiable methods: each is the free function of its name, or a view with friendlier
// arguments.
#include "autograd/ops.h"
#include "tensor/index.h"

namespace mezzo {

Tensor Tensor::to(DType dtype) const { return mezzo::to(*this, dtype, device()); }
Tensor Tensor::to(const Device& device) const { return mezzo::to(*this, dtype(), device); }
Tensor Tensor::half() const { return to(float16); }
Tensor Tensor::bfloat16() const { return to(DType::bfloat16); }
Tensor Tensor::to(MemoryFormat format) const { return contiguous(format); }
Tensor Tensor::clone() const { return mezzo::clone(*this); }
Tensor Tensor::contiguous(MemoryFormat format) const {
  if (!is_contiguous(format)) return mezzo::clone(*this, format);
  if (format == contiguous_format || strides() == channels_last_strides(shape())) return *this;
  // With one channel, or one pixel, both formats are the same memory. The strides are to tell which is meant:
  // layers choose their output's format by them.
  return mezzo::permute(mezzo::view(*this, {size(0), size(2), size(3), size(1)}), {0, 3, 1, 2});
}

Tensor Tensor::reshape(const Shape& shape) const { return mezzo::reshape(*this, shape); }
Tensor Tensor::view(const Shape& shape) const { return mezzo::view(*this, shape); }
Tensor Tensor::permute(const Shape& dims) const { return mezzo::permute(*this, dims); }
Tensor Tensor::expand(const Shape& shape) const { return mezzo::expand(*this, shape); }
Tensor Tensor::slice(int dim, int64_t start, int64_t end, int64_t step) const {
  return mezzo::slice(*this, dim, start, end, step);
}
Tensor Tensor::narrow(int dim, int64_t start, int64_t length) const {
  return mezzo::narrow(*this, dim, start, length);
}

Tensor Tensor::transpose(int a, int b) const { return mezzo::transpose(*this, a, b); }
Tensor Tensor::t() const { return mezzo::t(*this); }
Tensor Tensor::squeeze() const { return mezzo::squeeze(*this); }
Tensor Tensor::squeeze(int dim) const { return mezzo::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int dim) const { return mezzo::unsqueeze(*this, dim); }
Tensor Tensor::flatten(int start, int end) const { return mezzo::flatten(*this, start, end); }
Tensor Tensor::select(int dim, int64_t index) const { return mezzo::select(*this, dim, index); }
Tensor Tensor::repeat(const Shape& repeats) const { return mezzo::repeat(*this, repeats); }

Tensor Tensor::add(const Tensor& b) const { return mezzo::add(*this, b); }
Tensor Tensor::sub(const Tensor& b) const { return mezzo::sub(*this, b); }
Tensor Tensor::mul(const Tensor& b) const { return mezzo::mul(*this, b); }
Tensor Tensor::div(const Tensor& b) const { return mezzo::div(*this, b); }
Tensor Tensor::floor_divide(const Tensor& b) const { return mezzo::floor_divide(*this, b); }
Tensor Tensor::remainder(const Tensor& b) const { return mezzo::remainder(*this, b); }
Tensor Tensor::fmod(const Tensor& b) const { return mezzo::fmod(*this, b); }
Tensor Tensor::maximum(const Tensor& b) const { return mezzo::maximum(*this, b); }
Tensor Tensor::minimum(const Tensor& b) const { return mezzo::minimum(*this, b); }
Tensor Tensor::pow(const Tensor& b) const { return mezzo::pow(*this, b); }
Tensor Tensor::clamp(const Tensor& low, const Tensor& high) const { return mezzo::clamp(*this, low, high); }
Tensor Tensor::lerp(const Tensor& b, const Tensor& weight) const { return mezzo::lerp(*this, b, weight); }
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  return mezzo::masked_fill(*this, mask, value);
}
Tensor Tensor::neg() const { return mezzo::neg(*this); }
Tensor Tensor::abs() const { return mezzo::abs(*this); }
Tensor Tensor::square() const { return mezzo::square(*this); }
Tensor Tensor::exp() const { return mezzo::exp(*this); }
Tensor Tensor::log() const { return mezzo::log(*this); }
Tensor Tensor::sqrt() const { return mezzo::sqrt(*this); }
Tensor Tensor::sin() const { return mezzo::sin(*this); }
Tensor Tensor::cos() const { return mezzo::cos(*this); }
Tensor Tensor::tanh() const { return mezzo::tanh(*this); }
Tensor Tensor::sigmoid() const { return mezzo::sigmoid(*this); }
Tensor Tensor::log_sigmoid() const { return mezzo::log_sigmoid(*this); }
Tensor Tensor::relu() const { return mezzo::relu(*this); }
Tensor Tensor::sign() const { return mezzo::sign(*this); }
Tensor Tensor::floor() const { return mezzo::floor(*this); }
Tensor Tensor::ceil() const { return mezzo::ceil(*this); }
Tensor Tensor::round() const { return mezzo::round(*this); }
Tensor Tensor::trunc() const { return mezzo::trunc(*this); }
Tensor Tensor::expm1() const { return mezzo::expm1(*this); }
Tensor Tensor::log1p() const { return mezzo::log1p(*this); }
Tensor Tensor::log2() const { return mezzo::log2(*this); }
Tensor Tensor::rsqrt() const { return mezzo::rsqrt(*this); }
Tensor Tensor::reciprocal() const { return mezzo::reciprocal(*this); }
Tensor Tensor::erf() const { return mezzo::erf(*this); }
Tensor Tensor::isnan() const { return mezzo::isnan(*this); }
Tensor Tensor::isinf() const { return mezzo::isinf(*this); }
Tensor Tensor::isfinite() const { return mezzo::isfinite(*this); }
Tensor Tensor::eq(const Tensor& b) const { return mezzo::eq(*this, b); }
Tensor Tensor::ne(const Tensor& b) const { return mezzo::ne(*this, b); }
Tensor Tensor::lt(const Tensor& b) const { return mezzo::lt(*this, b); }
Tensor Tensor::le(const Tensor& b) const { return mezzo::le(*this, b); }
Tensor Tensor::gt(const Tensor& b) const { return mezzo::gt(*this, b); }
Tensor Tensor::ge(const Tensor& b) const { return mezzo::ge(*this, b); }
Tensor Tensor::logical_and(const Tensor& b) const { return mezzo::logical_and(*this, b); }
Tensor Tensor::logical_or(const Tensor& b) const { return mezzo::logical_or(*this, b); }
Tensor Tensor::logical_xor(const Tensor& b) const { return mezzo::logical_xor(*this, b); }
Tensor Tensor::logical_not() const { return mezzo::logical_not(*this); }

Tensor Tensor::sum(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return mezzo::sum(*this, dims, keepdim, dtype);
}
Tensor Tensor::mean(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return mezzo::mean(*this, dims, keepdim, dtype);
}
Tensor Tensor::amax(const Dims& dims, bool keepdim) const { return mezzo::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Dims& dims, bool keepdim) const { return mezzo::amin(*this, dims, keepdim); }
Tensor Tensor::any(const Dims& dims, bool keepdim) const { return mezzo::any(*this, dims, keepdim); }
Tensor Tensor::all(const Dims& dims, bool keepdim) const { return mezzo::all(*this, dims, keepdim); }
Tensor Tensor::prod(const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return mezzo::prod(*this, dims, keepdim, dtype);
}
Tensor Tensor::var(const Dims& dims, int64_t correction, bool keepdim) const {
  return mezzo::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, int64_t correction, bool keepdim) const {
  return mezzo::std(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return mezzo::norm(*this, p, dims, keepdim, dtype);
}
Tensor Tensor::argmax(const Dims& dim, bool keepdim) const { return mezzo::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin(const Dims& dim, bool keepdim) const { return mezzo::argmin(*this, dim, keepdim); }
Tensor Tensor::max() const { return mezzo::max(*this); }
Tensor Tensor::min() const { return mezzo::min(*this); }
ValuesAndIndices Tensor::max(int dim, bool keepdim) const { return mezzo::max(*this, dim, keepdim); }
ValuesAndIndices Tensor::min(int dim, bool keepdim) const { return mezzo::min(*this, dim, keepdim); }
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const {
  return mezzo::logsumexp(*this, dims, keepdim);
}
Tensor Tensor::softmax(int dim, std::optional<DType> dtype) const {
  return mezzo::softmax(*this, dim, dtype);
}
Tensor Tensor::log_softmax(int dim, std::optional<DType> dtype) const {
  return mezzo::log_softmax(*this, dim, dtype);
}
Tensor Tensor::gather(int dim, const Tensor& index) const { return mezzo::gather(*this, dim, index); }
Tensor Tensor::scatter(int dim, const Tensor& index, const Tensor& source) const {
  return mezzo::scatter(*this, dim, index, source);
}
Tensor Tensor::scatter_add(int dim, const Tensor& index, const Tensor& source) const {
  return mezzo::scatter_add(*this, dim, index, source);
}
Tensor Tensor::index_select(int dim, const Tensor& index) const {
  return mezzo::index_select(*this, dim, index);
}
Tensor Tensor::matmul(const Tensor& b) const { return mezzo::matmul(*this, b); }
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, double beta, double alpha) const {
  return mezzo::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::nonzero() const { return mezzo::nonzero(*this); }
Indexed Tensor::operator[](int64_t position) const { return Indexed(select(0, position)); }

}  // namespace mezzo
