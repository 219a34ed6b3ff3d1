#include "nn/embedding.h"

#include "autograd/ops.h"
#include "nn/init.h"

namespace mezzo::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options)
    : padding_idx_(options.padding_idx) {
  if (num_embeddings < 1 || embedding_dim < 1) {
    fail("Embedding", text("needs at least 1 row of 1 element, not ", num_embeddings, " of ", embedding_dim));
  }
  if (padding_idx_ && (*padding_idx_ < -num_embeddings || *padding_idx_ >= num_embeddings)) {
    fail("Embedding",
         text("padding_idx ", *padding_idx_, " is outside [", -num_embeddings, ", ", num_embeddings, ")"));
  }
  if (padding_idx_ && *padding_idx_ < 0) *padding_idx_ += num_embeddings;
  weight = add_parameter("weight", empty({num_embeddings, embedding_dim}));
  init::normal_(weight);
  if (padding_idx_) init::constant_(weight.select(0, *padding_idx_), 0);
}

Tensor Embedding::forward(const Tensor& ids) { return embedding(weight, ids, padding_idx_); }

std::string Embedding::extra() const {
  const std::string padding = padding_idx_ ? text(", padding_idx=", *padding_idx_) : "";
  return text(weight.size(0), ", ", weight.size(1), padding);
}

}  // namespace mezzo::nn
