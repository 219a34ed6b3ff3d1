// BatchNorm1d and BatchNorm2d: normalisation by the statistics of each channel.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "autograd/ops.h"
#include "nn/module.h"

namespace mezzo::nn {

struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance
  std::optional<double> momentum =
      0.1;             ///< weight of a batch in the running statistics; none: their plain average
  bool affine = true;  ///< learn weight and bias
  bool track_running_stats = true;  ///< keep running statistics, for evaluation
};

/// y = (x - mean) / sqrt(var + eps) * weight + bias for each channel of x. In training mean and (biased) var
/// are the batch's and feed running_mean and, unbiased, running_var; in evaluation the running ones are used.
/// Ioffe and Szegedy, "Batch Normalization" (2015).
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string extra() const override;

  // --- for those who fuse the layer with others
  int64_t num_features() const { return num_features_; }
  double eps() const { return options_.eps; }
  /// Whether it normalises by the batch's statistics, as in training, and not by the running ones.
  bool uses_batch() const { return is_training() || !options_.track_running_stats; }
  /// Whether it takes x, as to shape, dtype and device.
  bool takes(const Tensor& x) const;
  /// relu(forward(x) + residual), where residual may be undefined, as one op.
  Tensor forward_relu(const Tensor& x, const Tensor& residual);
  /// Mean and variance to normalise by: the given ones of a batch with `values` in each channel, which feed
  /// the running ones, or those.
  std::array<Tensor, 2> statistics(const Tensor& mean, const Tensor& var, int64_t values);

  Tensor weight, bias;                                    ///< undefined if not affine
  Tensor running_mean, running_var, num_batches_tracked;  ///< undefined if not tracked

 protected:
  /// What the layer takes: between `least` and `most` dimensions, written out in `shape`.
  struct Input {
    int least, most;
    std::string_view shape;
  };
  BatchNorm(std::string_view name, const Input& input, int64_t num_features, const BatchNormOptions& options);

 private:
  Input input_;
  int64_t num_features_;
  BatchNormOptions options_;

  mezzo::BatchNormOptions call_options() const;
  /// After: a refused input changes nothing.
  void count_batch();
};

/// BatchNorm of rows [N, C], over N, or of sequences [N, C, L], over N and L.
struct BatchNorm1d : BatchNorm {
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", {2, 3, "[N, C] or [N, C, L]"}, num_features, options) {}
};

/// BatchNorm of images [N, C, H, W], over N, H and W.
struct BatchNorm2d : BatchNorm {
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", {4, 4, "[N, C, H, W]"}, num_features, options) {}
};

}  // namespace mezzo::nn
