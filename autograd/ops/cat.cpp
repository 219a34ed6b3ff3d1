// Joining along a dimension, and its counterpart: cat, embed.
#include <algorithm>

#include "autograd/call.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct Cat {
  static constexpr OpId id = OpId::cat;
  int dim;
  std::vector<int64_t> sizes;  ///< of the tensors along dim

  void check(Inputs in) const {
    if (in.empty()) fail("cat", "there are no tensors to join");
    const int d = wrap_dim("cat", dim, in[0]);
    if (in[0].dim() == 0) fail("cat", "0-d tensors cannot be joined", {{"first", in[0]}}, "use stack");
    for (const Tensor& x : in) {
      Shape same = x.shape();
      if (same.dim() == in[0].dim()) same[d] = in[0].shape()[d];
      if (same != in[0].shape()) {
        fail("cat", text("sizes must agree but in dimension ", d), {{"first", in[0]}, {"other", x}});
      }
    }
  }
  Tensor forward(Inputs in, Saver&) const {
    const int d = wrap_dim("cat", dim, in[0]);
    Shape shape = in[0].shape();
    shape[d] = 0;
    for (const Tensor& x : in) shape[d] += x.shape()[d];
    const Tensor out =
        empty(shape, {.dtype = promote(in), .device = in[0].device(), .format = format_of(in[0])});
    int64_t at = 0;
    for (const Tensor& x : in) {
      kernels(out.device()).copy(narrow(out, d, at, x.shape()[d]).view_of_memory(), x.view_of_memory());
      at += x.shape()[d];
    }
    return out;
  }
  Tensors backward(Node& node, Inputs g) const {
    Tensors grads;
    int64_t at = 0;
    for (size_t k = 0; k < node.edges.size(); ++k) {
      grads.push_back(node.needs(k) ? narrow(g[0], dim, at, sizes[k]) : Tensor());
      at += sizes[k];
    }
    return grads;
  }
};

struct Embed {
  static constexpr OpId id = OpId::embed;
  int dim;
  int64_t start, size, step;

  /// One past the last position that is filled.
  int64_t end(int64_t length) const { return length > 0 ? start + (length - 1) * step + 1 : start; }
  void check(Inputs in) const {
    const int d = wrap_dim("embed", dim, in[0]);
    if (in[0].dim() == 0 || start < 0 || step < 1 || end(in[0].shape()[d]) > size) {
      fail("embed", text("the input does not fit at ", start, " in size ", size, " of dimension ", dim),
           {{"input", in[0]}});
    }
  }
  Tensor forward(Inputs in, Saver&) const {
    const Tensor& x = in[0];
    const int d = wrap_dim("embed", dim, x);
    Shape shape = x.shape();
    shape[d] = size;
    const Tensor out = zeros(shape, {.dtype = x.dtype(), .device = x.device(), .format = format_of(x)});
    kernels(x.device())
        .copy(slice(out, d, start, end(x.shape()[d]), step).view_of_memory(), x.view_of_memory());
    return out;
  }
  Tensors backward(Node& node, Inputs g) const {
    const Shape inner = node.input_info(0).shape;
    return {slice(g[0], dim, start, end(inner[dim < 0 ? dim + inner.dim() : dim]), step)};
  }
};

}  // namespace ops

Tensor cat(Inputs tensors, int dim) {
  std::vector<int64_t> sizes;
  for (const Tensor& x : tensors)
    sizes.push_back(x.dim() ? x.size(std::clamp(dim, -x.dim(), x.dim() - 1)) : 0);
  return call(ops::Cat{dim, sizes}, tensors);
}

Tensor embed(const Tensor& x, int dim, int64_t start, int64_t size, int64_t step) {
  return call(ops::Embed{dim, start, size, step}, x);
}

Tensor stack(Inputs tensors, int dim) {
  if (tensors.empty()) fail("stack", "there are no tensors to join");
  const int d = dim < 0 ? dim + tensors[0].dim() + 1 : dim;
  Tensors rows;
  for (const Tensor& x : tensors) {
    if (x.shape() != tensors[0].shape()) {
      fail("stack", "shapes must be equal", {{"first", tensors[0]}, {"other", x}});
    }
    rows.push_back(x.unsqueeze(d));
  }
  return cat(rows, d);
}

template <>
std::vector<Sample> samples<OpId::cat>() {
  const auto along = [](int dim) { return [dim](Inputs in) { return Tensors{cat(in, dim)}; }; };
  return {{"three", {uniform_sample({2, 3}), uniform_sample({1, 3}), uniform_sample({4, 3})}, along(0)},
          {"channels", {uniform_sample({2, 3, 2, 2}), uniform_sample({2, 1, 2, 2})}, along(1)},
          {"last, one empty", {uniform_sample({2, 3}), uniform_sample({2, 0})}, along(-1)},
          {"stack of 0-d", {uniform_sample({}), uniform_sample({})}, [](Inputs in) {
             return Tensors{stack(in)};
           }}};
}

template <>
std::vector<Sample> samples<OpId::embed>() {
  const auto at = [](int dim, int64_t start, int64_t size, int64_t step = 1) {
    return [=](Inputs in) { return Tensors{embed(in[0], dim, start, size, step)}; };
  };
  return {{"middle", {uniform_sample({3, 2})}, at(0, 1, 6)},
          {"every second", {uniform_sample({2, 3})}, at(1, 0, 6, 2)},
          {"last of 4-d", {uniform_sample({2, 3, 2, 2})}, at(-1, 0, 3)},
          {"nothing", {uniform_sample({0, 2})}, at(0, 1, 3)}};
}

}  // namespace mezzo
