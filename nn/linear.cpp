#include "nn/linear.h"

#include "autograd/ops.h"
#include "nn/init.h"

namespace mezzo::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options) {
  if (in_features < 1 || out_features < 1) {
    fail("Linear", text("needs at least 1 feature, not ", in_features, " in and ", out_features, " out"));
  }
  weight = add_parameter("weight", empty({out_features, in_features}));
  bias = add_parameter("bias", options.bias ? empty({out_features}) : Tensor());
  init::default_(weight, bias);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

std::string Linear::extra() const {
  return text("in_features=", weight.size(1), ", out_features=", weight.size(0),
              ", bias=", bias.defined() ? "True" : "False");
}

}  // namespace mezzo::nn
