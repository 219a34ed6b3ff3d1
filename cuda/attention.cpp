// Attention as products by cuBLAS around kernels for the rows of scores. The scores of all queries and keys
// lie in scratch memory, as long as they are not too large: then they are made and used in pieces.
#include "cuda/attention.h"

#include <array>

#include "cuda/gemm.h"
#include "cuda/kernel_families.h"
#include "cuda/views.h"

namespace mezzo::cuda {
namespace {

/// Numbers [..., L, S] in the compute type, one for each query and key.
ScratchTensor products_of(const AttentionOperands& in) {
  Shape shape = in.query.shape;
  shape[shape.dim() - 1] = in.key.shape[shape.dim() - 2];
  return {compute_type(in.query.dtype), shape};
}

/// Elements [begin, begin + size) of dimension `dim`.
View part_of(const View& view, int dim, int64_t begin, int64_t size) {
  if (!view.given()) return view;
  View part = view;
  part.data = view.as<char>() + begin * view.strides[dim] * static_cast<int64_t>(size_of(view.dtype));
  part.shape[dim] = size;
  return part;
}

/// f(views, first query) for pieces of the batch, or of the queries where one matrix is too large, in order,
/// that have no more than 256 MiB of products each. The first `per_query` views have a row for each query,
/// and the first of all is the queries themselves; the others are the keys and what there is for each.
template <size_t per_query, size_t n, class F>
void in_pieces(const std::array<View, n>& views, F&& f, int64_t first_query = 0) {
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  const View &query = views[0], &key = views[per_query];
  const int query_dim = query.shape.dim() - 2;
  int64_t bytes = key.shape[query_dim] * static_cast<int64_t>(size_of(compute_type(query.dtype)));
  for (int d = 0; d <= query_dim; ++d) bytes *= query.shape[d];
  int dim = 0;
  while (dim < query_dim && query.shape[dim] == 1) ++dim;
  if (bytes <= kMostBytes || query.shape[dim] == 1) return f(views, first_query);

  const int64_t half = query.shape[dim] / 2;
  for (const int64_t begin : {int64_t{0}, half}) {
    std::array<View, n> piece = views;
    for (size_t v = 0; v < (dim == query_dim ? per_query : n); ++v)
      piece[v] = part_of(views[v], dim, begin, begin == 0 ? half : query.shape[dim] - half);
    in_pieces<per_query>(piece, f, first_query + (dim == query_dim ? begin : 0));
  }
}

void attention(const View& out, const View& lse, const AttentionOperands& all) {
  const auto run = [&](const std::array<View, 6>& views, int64_t first_query) {
    const auto& [query, mask, o, l, key, value] = views;
    const AttentionOperands in{query, key, value, mask, all.scale, all.is_causal};
    const ScratchTensor products = products_of(in);
    gemm(products.view(), query, transposed(key));
    weigh(products.view(), l, in, first_query);
    gemm(o, weights_in(products.view(), query.dtype), value);
  };
  in_pieces<4>(std::array{all.query, all.mask, out, lse, all.key, all.value}, run);
}

void attention_grad(const View& grad_query, const View& grad_key, const View& grad_value,
                    const View& grad_out, const View& out, const View& lse, const AttentionOperands& all) {
  const auto run = [&](const std::array<View, 10>& views, int64_t first_query) {
    const auto& [query, mask, o, l, g, grad_q, key, value, grad_k, grad_v] = views;
    const AttentionOperands in{query, key, value, mask, all.scale, all.is_causal};
    const ScratchTensor products = products_of(in), grad_products = products_of(in);
    gemm(products.view(), query, transposed(key));
    gemm(grad_products.view(), g, transposed(value));
    weigh_grad(products.view(), grad_products.view(), l, g, o, in, first_query);
    const View weights = weights_in(products.view(), query.dtype),
               grad_scores = weights_in(grad_products.view(), query.dtype);
    const bool add = first_query > 0;  // to what the queries in front gave
    gemm(grad_q, grad_scores, key);
    gemm(grad_k, transposed(grad_scores), query, add);
    gemm(grad_v, transposed(weights), g, add);
  };
  in_pieces<6>(std::array{all.query, all.mask, out, lse, grad_out, grad_query, all.key, all.value, grad_key,
                          grad_value},
               run);
}

}  // namespace

void add_attention(Kernels& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace mezzo::cuda
