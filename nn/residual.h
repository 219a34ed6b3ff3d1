// Residual: a body with a way around it.
#pragma once

#include <string>

#include "nn/sequential.h"

namespace mezzo::nn {

struct ResidualOptions {
  std::string body = "body";  ///< name of the body; "": its layers are children of the Residual itself
  std::string shortcut = "shortcut";
};

/// y = relu(body(x) + shortcut(x)); an empty shortcut is x itself. He et al., "Deep Residual Learning"
/// (2015).
class Residual : public Module {
 public:
  explicit Residual(Sequential body, Sequential shortcut = {}, const ResidualOptions& options = {});
  Tensor forward(const Tensor& x) override;

  Sequential body, shortcut;
};

}  // namespace mezzo::nn
