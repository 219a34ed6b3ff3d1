// Embedding: a table of vectors, looked up by number.
#pragma once

#include <optional>
#include <string>

#include "nn/module.h"

namespace mezzo::nn {

struct EmbeddingOptions {
  std::optional<int64_t>
      padding_idx{};  ///< the row of padding, zeros at first, which gets no gradient; may count from the end
};

/// y[..., :] = weight[ids[...], :]: ids [...] of integers in [0, num_embeddings), weight [num_embeddings,
/// dim], y [..., dim]. The weight starts normal with mean 0 and variance 1.
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& ids) override;
  std::string extra() const override;

  Tensor weight;

 private:
  std::optional<int64_t> padding_idx_;
};

}  // namespace mezzo::nn
