// Linear: a fully connected layer.
#pragma once

#include "nn/module.h"

namespace mezzo::nn {

struct LinearOptions {
  bool bias = true;
};

/// y = x W^T + b: x [..., in], W [out, in], b [out]. W and b start uniform in +-1 / sqrt(in).
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

  Tensor weight, bias;
};

}  // namespace mezzo::nn
