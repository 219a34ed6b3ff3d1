// Attention as products by cuBLAS around kernels for the rows of scores. The scores of all queries and keys
// lie in scratch memory, as long as they are not too large; then the batch goes through in pieces.
#include "cuda/attention.h"

#include <array>

#include "cuda/context.h"
#include "cuda/gemm.h"
#include "cuda/kernel_families.h"

namespace mezzo::cuda {
namespace {

/// A dense matrix [..., L, S] in the compute type, for each query and key.
class Products {
 public:
  explicit Products(const AttentionOperands& in)
      : shape_(shape_of(in)),
        memory_(static_cast<size_t>(shape_.numel()) * size_of(compute_type(in.query.dtype))),
        view_{memory_.data(), compute_type(in.query.dtype), shape_, contiguous_strides(shape_)} {}

  const View& view() const { return view_; }

 private:
  static Shape shape_of(const AttentionOperands& in) {
    Shape shape = in.query.shape;
    shape[shape.dim() - 1] = in.key.shape[shape.dim() - 2];
    return shape;
  }

  Shape shape_;
  Scratch memory_;
  View view_;
};

/// f(views) for pieces of the batch of which each has at most 256 MiB of products, or one matrix of them.
/// The first view is the query, the second the key.
template <size_t n, class F>
void in_pieces(const std::array<View, n>& views, F&& f) {
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  const Shape& shape = views[0].shape;
  const int batch_dims = shape.dim() - 2;
  int64_t bytes = static_cast<int64_t>(size_of(compute_type(views[0].dtype))) * views[1].shape[batch_dims];
  for (int d = 0; d <= batch_dims; ++d) bytes *= shape[d];
  int dim = 0;
  while (dim < batch_dims && shape[dim] == 1) ++dim;
  if (bytes <= kMostBytes || dim == batch_dims) return f(views);

  const int64_t half = shape[dim] / 2;
  for (const int64_t begin : {int64_t{0}, half}) {
    std::array<View, n> part = views;
    for (View& view : part) {
      if (!view.given()) continue;
      view.data = view.as<char>() + begin * view.strides[dim] * static_cast<int64_t>(size_of(view.dtype));
      view.shape[dim] = begin == 0 ? half : shape[dim] - half;
    }
    in_pieces(part, f);
  }
}

void attention(const View& out, const View& lse, const AttentionOperands& operands) {
  const AttentionOperands& o = operands;
  in_pieces(std::array{o.query, o.key, o.value, o.mask, out, lse}, [&](const std::array<View, 6>& v) {
    const AttentionOperands in{v[0], v[1], v[2], v[3], o.scale, o.is_causal};
    const Products products(in);
    gemm(products.view(), in.query, transposed(in.key));
    weigh(products.view(), v[5], in);
    gemm(v[4], weights_in(products.view(), in.query.dtype), in.value);
  });
}

void attention_grad(const View& grad_query, const View& grad_key, const View& grad_value,
                    const View& grad_out, const View& out, const View& lse,
                    const AttentionOperands& operands) {
  const AttentionOperands& o = operands;
  const std::array all{o.query, o.key, o.value, o.mask, grad_out, out, lse, grad_query, grad_key, grad_value};
  in_pieces(all, [&](const std::array<View, 10>& v) {
    const AttentionOperands in{v[0], v[1], v[2], v[3], o.scale, o.is_causal};
    const Products products(in), grad_products(in);
    gemm(products.view(), in.query, transposed(in.key));
    gemm(grad_products.view(), v[4], transposed(in.value));
    weigh_grad(products.view(), grad_products.view(), v[6], v[4], v[5], in);
    const View weights = weights_in(products.view(), in.query.dtype),
               grad_scores = weights_in(grad_products.view(), in.query.dtype);
    gemm(v[7], grad_scores, in.key);
    gemm(v[8], transposed(grad_scores), in.query);
    gemm(v[9], transposed(weights), v[4]);
  });
}

}  // namespace

void add_attention(Kernels& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace mezzo::cuda
