// Losses of a choice between classes: nll_loss, cross_entropy. Everything between the input and the loss is
// in float32 for 16-bit inputs, log_softmax included: rounded there, a loss would move in steps of 0.25
// at 36.
#include <cmath>

#include "autograd/ops/along.h"
#include "autograd/ops/check.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/loss.h"
#include "autograd/samples.h"
#include "tensor/backend.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

namespace {

/// The dimension of the classes: [N, C, ...] or [C].
int class_dim(const Tensor& x) { return x.dim() > 1 ? 1 : 0; }

/// [C] as a shape that broadcasts over x's classes.
Tensor over_classes(const Tensor& weight, const Tensor& x) { return along(weight, class_dim(x), x.dim()); }

/// Targets as int64, where a uint8 cannot pass for a negative ignore_index, and whether each counts.
struct Targets {
  Tensor valid, classes;  ///< class 0 where it does not count

  Targets(const Tensor& target, int64_t ignore_index) {
    const Tensor all = target.to(int64);
    valid = ne(all, ignore_index);
    classes = where(valid, all, 0);
  }
};

void check_input(std::string_view op, const Tensor& x, const Tensor& target, const Tensor& weight) {
  if (x.dim() == 0) fail(op, "input must be [N, C, ...] or [C] but has no dimensions", {{"input", x}});
  check_floating(op, {{"input", x}});
  if (!weight.defined()) return;
  if (!is_floating(weight.dtype())) fail(op, "needs a floating dtype", {{"weight", weight}});
  const int64_t classes = x.size(class_dim(x));
  if (weight.shape() != Shape{classes}) {
    fail(op, text("weight must have one element for each of ", classes, " classes"),
         {{"input", x}, {"target", target}, {"weight", weight}});
  }
}

/// `remedy`: what to do about another dtype.
void check_classes(std::string_view op, const Tensor& x, const Tensor& target, int64_t ignore_index,
                   std::string_view remedy = "class indices: to(int64)") {
  if (target.dtype() != int64 && target.dtype() != uint8) {
    fail(op, text("target must be int64 or uint8, not ", name_of(target.dtype())),
         {{"input", x}, {"target", target}}, remedy);
  }
  Shape places = x.shape();
  places.erase(class_dim(x));
  if (target.shape() != places) {
    fail(op, text("input needs a target of shape ", to_string(places)), {{"input", x}, {"target", target}});
  }
  if (is_capturing(target.device())) return;
  const Targets targets(target, ignore_index);
  if (any(targets.valid).item<bool>()) {
    check_range(op, "target", targets.classes, x.size(class_dim(x)), {{"input", x}, {"target", target}});
  }
}

/// sum(losses) / total; of nothing NaN, and yet the gradient is 0.
Tensor weighted_mean(const Tensor& losses, const Tensor& total) {
  const Tensor empty = eq(total, 0);
  return where(empty, std::nan(""), div(sum(losses), where(empty, 1, total)));
}

/// The loss of log-probabilities for classes as targets.
Tensor class_loss(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                  const CrossEntropyOptions& options) {
  const int dim = class_dim(log_p);
  const auto [valid, classes] = Targets(target, options.ignore_index);
  Tensor losses = neg(gather(log_p, dim, classes.unsqueeze(dim)).squeeze(dim)),
         counts = valid.to(log_p.dtype());
  if (weight.defined()) {
    const Tensor weights = reshape(index_select(weight, 0, classes.flatten()), classes.shape());
    losses = mul(losses, weights);
    counts = where(valid, weights, 0);
  }
  if (options.label_smoothing > 0) {
    const Tensor all = neg(sum(weight.defined() ? mul(log_p, over_classes(weight, log_p)) : log_p, dim));
    losses = add(mul(losses, 1 - options.label_smoothing),
                 mul(all, options.label_smoothing / static_cast<double>(log_p.size(dim))));
  }
  losses = where(valid, losses, 0);
  return options.reduction == LossReduction::mean ? weighted_mean(losses, sum(counts))
                                                  : reduce(losses, options.reduction);
}

/// The same for probabilities. The mean is over places, whatever the weights.
Tensor probability_loss(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                        const CrossEntropyOptions& options) {
  const int dim = class_dim(log_p);
  Tensor p = target;
  if (options.label_smoothing > 0) {
    p = add(mul(p, 1 - options.label_smoothing),
            options.label_smoothing / static_cast<double>(log_p.size(dim)));
  }
  if (weight.defined()) p = mul(p, over_classes(weight, log_p));
  return reduce(neg(sum(mul(log_p, p), dim)), options.reduction);
}

/// x in the type that arithmetic runs in; classes as they are.
Tensor widened(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) ? x.to(compute_type(x.dtype())) : x;
}

}  // namespace

struct NllLoss : Composed<NllLoss> {
  static constexpr OpId id = OpId::nll_loss;
  NllLossOptions options;

  explicit NllLoss(const NllLossOptions& options) : options(options) {}

  void check(Inputs in) const {
    check_input("nll_loss", in[0], in[1], in[2]);
    check_classes("nll_loss", in[0], in[1], options.ignore_index);
  }
  Tensor compose(Inputs in) const {
    return class_loss(widened(in[0]), in[1], widened(in[2]),
                      {.reduction = options.reduction, .ignore_index = options.ignore_index})
        .to(in[0].dtype());
  }
};

struct CrossEntropy : Composed<CrossEntropy> {
  static constexpr OpId id = OpId::cross_entropy;
  CrossEntropyOptions options;

  explicit CrossEntropy(const CrossEntropyOptions& options) : options(options) {}

  static bool takes_probabilities(const Tensor& x, const Tensor& target) {
    return target.shape() == x.shape();
  }
  void check(Inputs in) const {
    const Tensor &x = in[0], &target = in[1];
    check_input("cross_entropy", x, target, in[2]);
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
      fail("cross_entropy", text("label_smoothing = ", options.label_smoothing, " is outside [0, 1]"));
    }
    if (!takes_probabilities(x, target)) {
      return check_classes("cross_entropy", x, target, options.ignore_index,
                           "class indices: to(int64); probabilities: the shape of the input");
    }
    if (!is_floating(target.dtype())) {
      fail("cross_entropy", "a target of the input's shape holds probabilities and must be floating",
           {{"input", x}, {"target", target}});
    }
    if (options.ignore_index >= 0) {
      fail("cross_entropy",
           text("ignore_index = ", options.ignore_index,
                " means nothing where the target holds probabilities"),
           {{"input", x}, {"target", target}});
    }
  }
  Tensor compose(Inputs in) const {
    const Tensor log_p = log_softmax(in[0], class_dim(in[0]), compute_type(in[0].dtype()));
    const auto loss = takes_probabilities(in[0], in[1]) ? probability_loss : class_loss;
    return loss(log_p, widened(in[1]), widened(in[2]), options).to(in[0].dtype());
  }
};

}  // namespace ops

Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight, const NllLossOptions& options) {
  return call(ops::NllLoss(options), x, target, weight);
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                     const CrossEntropyOptions& options) {
  return call(ops::CrossEntropy(options), x, target, weight);
}

namespace {

/// Classes 0, 1, 2 and now and then -100.
Tensor class_sample(const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(i % 5 == 3 ? -100.0 : static_cast<double>(i * 2 % 3));
  return tensor(values, shape, {.dtype = int64});
}

Tensor weight_sample() { return uniform_sample({3}, 0.5, 2); }

/// Samples that the losses share: `f` takes input, target, weight and the reduction.
std::vector<Sample> class_samples(Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, LossReduction)) {
  const auto by = [f](LossReduction reduction) {
    return [=](Inputs in) { return Tensors{f(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), reduction)}; };
  };
  const auto x = [](const Shape& shape) { return uniform_sample(shape, -2, 0); };
  return {{"mean", {x({7, 3}), class_sample({7})}, by(LossReduction::mean)},
          {"sum, weights", {x({7, 3}), class_sample({7}), weight_sample()}, by(LossReduction::sum)},
          {"images", {x({2, 3, 4, 5}), class_sample({2, 4, 5}), weight_sample()}, by(LossReduction::none)},
          {"no batch", {x({3}), class_sample({})}, by(LossReduction::sum)},
          {"empty", {x({0, 3}), class_sample({0})}, by(LossReduction::sum)}};
}

}  // namespace

template <>
std::vector<Sample> samples<OpId::nll_loss>() {
  return class_samples(
      [](const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction) {
        return nll_loss(x, target, weight, {.reduction = reduction});
      });
}

template <>
std::vector<Sample> samples<OpId::cross_entropy>() {
  std::vector<Sample> all =
      class_samples([](const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction reduction) {
        return cross_entropy(x, target, weight, {.reduction = reduction});
      });
  const auto smoothed = [](Inputs in) {
    return Tensors{cross_entropy(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), {.label_smoothing = 0.1})};
  };
  all.push_back({"smoothed", {uniform_sample({7, 3}), class_sample({7})}, smoothed});
  all.push_back({"probabilities", {uniform_sample({4, 3, 2}), uniform_sample({4, 3, 2}, 0, 1)}, smoothed});
  all.push_back({"probabilities, images",
                 {uniform_sample({2, 3, 4, 5}), uniform_sample({2, 3, 4, 5}, 0, 1), weight_sample()},
                 smoothed});
  return all;
}

}  // namespace mezzo
