// What attention does between its products, in one pass over the scores each.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

/// Products query key^T [..., L, S], dense, in the compute type, become weights: softmax of the scores,
/// rounded to the dtype of the query, each row at the beginning of its products' memory (`weights_in`).
/// first_query: how many queries there are in front, for a causal mask.
void weigh(const View& products, const View& lse, const AttentionOperands& operands, int64_t first_query);

/// The same from lse, which is known, and in the same manner products grad_out value^T become weights *
/// (products - sum of grad_out * out) * scale, the gradients of the products query key^T.
void weigh_grad(const View& products, const View& grad_products, const View& lse, const View& grad_out,
                const View& out, const AttentionOperands& operands, int64_t first_query);

/// The weights that lie in the memory of products.
View weights_in(const View& products, DType dtype);

}  // namespace mezzo::cuda
