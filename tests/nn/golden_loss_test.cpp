// Losses against PyTorch's numbers, with every option.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>

#include "autograd/ops.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

using Loss = std::function<Tensor(const std::string& name, const Tensors& inputs, LossReduction reduction)>;

const Golden& golden() {
  static const Golden file("losses");
  return file;
}

/// Runs every stored case of one loss: LOSS.REDUCTION.CASE, or LOSS.CASE.REDUCTION and more.
void check_cases(const std::string& loss, int expected_cases, const Loss& function) {
  const std::string_view end = ".float64.out";
  const std::map<std::string, LossReduction> reductions{
      {"mean", LossReduction::mean}, {"sum", LossReduction::sum}, {"none", LossReduction::none}};
  int cases = 0;
  for (const std::string& key : golden().keys(loss + ".")) {
    if (!key.ends_with(end)) continue;
    const std::string name = key.substr(0, key.size() - end.size());
    for (const auto& [word, reduction] : reductions) {
      if ((name + ".").find("." + word + ".") == std::string::npos) continue;
      check_case(golden(), name, [&, r = reduction](const Tensors& x) { return function(name, x, r); });
      ++cases;
    }
  }
  CHECK(cases == expected_cases);
}

Tensor optional(const Tensors& x, size_t i) { return i < x.size() ? x[i] : Tensor(); }

/// Equal, but for a rounding of 1.
void check_value(double actual, double expected) {
  if (std::isfinite(expected))
    CHECK(std::abs(actual - expected) <= 1e-7 + 1e-6 * std::abs(expected));
  else
    CHECK((actual == expected || (std::isnan(actual) && std::isnan(expected))));
}

/// Losses and gradients where formulas are extreme, each value by itself.
void check_special(const std::string& loss,
                   Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, LossReduction)) {
  const auto stored = [&](const std::string& name) { return golden().tensor("special." + loss + name); };
  const Tensor x = stored(".in").to(test_device()).requires_grad_(),
               y = function(x, stored(".target").to(test_device()), {}, LossReduction::none);
  y.sum().backward();
  for (size_t i = 0; i < values(x).size(); ++i) {
    CAPTURE(loss);
    CAPTURE(values(x)[i]);
    check_value(values(y)[i], values(stored(".out"))[i]);
    check_value(values(x.grad())[i], values(stored(".grad"))[i]);
  }
}

}  // namespace

TEST_CASE("golden: l1_loss and its gradients") {
  check_cases("l1", 9, [](const std::string&, const Tensors& x, LossReduction reduction) {
    return l1_loss(x[0], x[1], reduction);
  });
}

TEST_CASE("golden: nll_loss and its gradients") {
  check_cases("nll", 36, [](const std::string& name, const Tensors& x, LossReduction reduction) {
    const auto ignore_index = golden().tensor(name + ".ignore_index").item<int64_t>();
    return nll_loss(x[0], x[1], optional(x, 2), {.reduction = reduction, .ignore_index = ignore_index});
  });
}

TEST_CASE("golden: cross_entropy and its gradients") {
  const Loss loss = [](const std::string& name, const Tensors& x, LossReduction reduction) {
    return cross_entropy(x[0], x[1], optional(x, 2),
                         {.reduction = reduction,
                          .ignore_index = golden().tensor(name + ".ignore_index").item<int64_t>(),
                          .label_smoothing = golden().tensor(name + ".label_smoothing").item<double>()});
  };
  check_cases("ce", 36, loss);
  check_cases("ce_smooth", 36, loss);
  check_cases("ce_probabilities", 18, loss);
  check_cases("ce_probabilities_smooth", 18, loss);
}

TEST_CASE("golden: binary_cross_entropy and its gradients") {
  check_cases("bce", 9, [](const std::string&, const Tensors& x, LossReduction reduction) {
    return binary_cross_entropy(x[0], x[1], optional(x, 2), reduction);
  });
  check_special("bce", &binary_cross_entropy);
}

TEST_CASE("golden: binary_cross_entropy_with_logits and its gradients") {
  check_cases("bce_logits", 12, [](const std::string& name, const Tensors& x, LossReduction reduction) {
    const bool only_positive = name.ends_with(".pos_weight");
    return binary_cross_entropy_with_logits(x[0], x[1], only_positive ? Tensor() : optional(x, 2),
                                            only_positive ? x[2] : optional(x, 3), reduction);
  });
  check_special("bce_logits",
                [](const Tensor& x, const Tensor& target, const Tensor& weight, LossReduction r) {
                  return binary_cross_entropy_with_logits(x, target, weight, {}, r);
                });
}
