// BatchNorm2d: normalisation by the statistics of each channel.
#pragma once

#include <optional>

#include "nn/module.h"

namespace mezzo::nn {

struct BatchNorm2dOptions {
  double eps = 1e-5;  ///< added to the variance
  std::optional<double> momentum =
      0.1;             ///< weight of a batch in the running statistics; none: their plain average
  bool affine = true;  ///< learn weight and bias
  bool track_running_stats = true;  ///< keep running statistics, for evaluation
};

/// y = (x - mean) / sqrt(var + eps) * weight + bias over N, H, W for each channel of x [N, C, H, W]. In
/// training mean and (biased) var are the batch's and feed running_mean and, unbiased, running_var; in
/// evaluation the running ones are used. Ioffe and Szegedy, "Batch Normalization" (2015).
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t num_features, const BatchNorm2dOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

  Tensor weight, bias;                                    ///< undefined if not affine
  Tensor running_mean, running_var, num_batches_tracked;  ///< undefined if not tracked

 private:
  int64_t num_features_;
  BatchNorm2dOptions options_;
};

}  // namespace mezzo::nn
