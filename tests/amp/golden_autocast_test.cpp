// What autocast makes of every op, for both tables and dtypes: the dtypes of PyTorch's results.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "amp/autocast.h"
#include "autograd/samples.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;
using nlohmann::json;

namespace {

using Call = std::function<Tensor(const Tensors&)>;

Tensor index(const Tensor& x) { return zeros({3, 3}, {.dtype = int64, .device = x.device()}); }
Tensor labels(const Tensor& x) { return zeros({3}, {.dtype = int64, .device = x.device()}); }

/// The calls of tests/golden/autocast.py that are not just the op on matrices.
const std::map<std::string, Call> kCalls{
    {"where", [](const Tensors& x) { return where(index(x[0]) == 0, x[0], x[1]); }},
    {"clamp_min", [](const Tensors& x) { return clamp(x[0], 0.5); }},
    {"clamp_max", [](const Tensors& x) { return clamp(x[0], {}, 0.5); }},
    {"clone", [](const Tensors& x) { return x[0].clone(); }},
    {"view", [](const Tensors& x) { return x[0].view({9}); }},
    {"permute",
     [](const Tensors& x) {
       return x[0].permute({1, 0});
     }},
    {"expand",
     [](const Tensors& x) {
       return x[0].expand({2, 3, 3});
     }},
    {"slice", [](const Tensors& x) { return x[0].slice(0, 1); }},
    {"split",
     [](const Tensors& x) {
       return split(x[0], {1, 2})[0];
     }},
    {"cat", [](const Tensors& x) { return cat(x); }},
    {"stack", [](const Tensors& x) { return stack(x); }},
    {"gather", [](const Tensors& x) { return gather(x[0], 0, index(x[0])); }},
    {"scatter", [](const Tensors& x) { return scatter(x[0], 0, index(x[0]), x[1]); }},
    {"scatter_add", [](const Tensors& x) { return scatter_add(x[0], 0, index(x[0]), x[1]); }},
    {"index_select", [](const Tensors& x) { return index_select(x[0], 0, labels(x[0])); }},
    {"sum", [](const Tensors& x) { return sum(x[0]); }},
    {"mean", [](const Tensors& x) { return mean(x[0]); }},
    {"prod", [](const Tensors& x) { return prod(x[0]); }},
    {"var", [](const Tensors& x) { return var(x[0]); }},
    {"std", [](const Tensors& x) { return x[0].std(); }},
    {"norm", [](const Tensors& x) { return norm(x[0]); }},
    {"amax", [](const Tensors& x) { return amax(x[0]); }},
    {"amin", [](const Tensors& x) { return amin(x[0]); }},
    {"any", [](const Tensors& x) { return any(x[0]); }},
    {"all", [](const Tensors& x) { return all(x[0]); }},
    {"argmax", [](const Tensors& x) { return argmax(x[0]); }},
    {"argmin", [](const Tensors& x) { return argmin(x[0]); }},
    {"logsumexp", [](const Tensors& x) { return logsumexp(x[0], 1); }},
    {"softmax", [](const Tensors& x) { return softmax(x[0], 1); }},
    {"log_softmax", [](const Tensors& x) { return log_softmax(x[0], 1); }},
    {"sum_low", [](const Tensors& x) { return sum(x[0], {}, false, bfloat16); }},
    {"softmax_low", [](const Tensors& x) { return softmax(x[0], 1, bfloat16); }},
    {"matmul", [](const Tensors& x) { return matmul(x[0], x[1]); }},
    {"matmul_vector", [](const Tensors& x) { return matmul(x[0], x[1].select(0, 0)); }},
    {"addmm", [](const Tensors& x) { return addmm(x[0], x[1], x[2]); }},
    {"linear", [](const Tensors& x) { return linear(x[0], x[1], x[2].select(0, 0)); }},
    {"linear_no_bias", [](const Tensors& x) { return linear(x[0], x[1]); }},
    {"conv2d",
     [](const Tensors& x) {
       return conv2d(x[0].view({1, 1, 3, 3}), x[1].view({1, 1, 3, 3}), x[2].narrow(0, 0, 1).select(1, 0));
     }},
    {"batch_norm", [](const Tensors& x) { return batch_norm(x[0], {}, {}, {}, {}); }},
    {"l1_loss", [](const Tensors& x) { return l1_loss(x[0], x[1]); }},
    {"mse_loss", [](const Tensors& x) { return mse_loss(x[0], x[1]); }},
    {"nll_loss", [](const Tensors& x) { return nll_loss(x[0], labels(x[0])); }},
    {"nll_loss_weighted", [](const Tensors& x) { return nll_loss(x[0], labels(x[0]), x[1].select(0, 0)); }},
    {"cross_entropy", [](const Tensors& x) { return cross_entropy(x[0], labels(x[0])); }},
    {"cross_entropy_probabilities", [](const Tensors& x) { return cross_entropy(x[0], x[1]); }},
    {"binary_cross_entropy", [](const Tensors& x) { return binary_cross_entropy(x[0], x[1]); }},
    {"binary_cross_entropy_with_logits",
     [](const Tensors& x) { return binary_cross_entropy_with_logits(x[0], x[1]); }},
    {"max_pool2d",
     [](const Tensors& x) {
       return max_pool2d(x[0].view({1, 1, 3, 3}), 2);
     }},
    {"embedding", [](const Tensors& x) { return embedding(x[0], labels(x[0])); }},
    {"layer_norm", [](const Tensors& x) { return layer_norm(x[0], {3}); }},
    {"scaled_dot_product_attention",
     [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }},
    {"scaled_dot_product_attention_biased",
     [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); }},
};

const std::set<std::string> kProducts{"matmul",
                                      "matmul_vector",
                                      "addmm",
                                      "linear",
                                      "linear_no_bias",
                                      "conv2d",
                                      "scaled_dot_product_attention",
                                      "scaled_dot_product_attention_biased"};

std::optional<OpId> row_named(std::string_view name) {
  for (size_t k = 0; k < kOps; ++k) {
    if (info(static_cast<OpId>(k)).name == name) return static_cast<OpId>(k);
  }
  return std::nullopt;
}

Call call_of(const std::string& op) {
  if (const auto found = kCalls.find(op); found != kCalls.end()) return found->second;
  const auto id = row_named(op);
  REQUIRE(id);
  return [run = samples_of(*id)[0].run](const Tensors& x) { return run(x)[0]; };
}

std::string result_dtype(const Call& call, const Tensors& inputs) {
  try {
    return std::string(name_of(call(inputs).dtype()));
  } catch (const Error&) {
    return "error";
  }
}

}  // namespace

TEST_CASE("golden: dtypes of results under autocast, every op of both tables") {
  std::ifstream file(golden_path("autocast.json"));
  const json rows = json::parse(file).at("rows");
  REQUIRE(rows.size() > 2000);
  std::set<std::string> seen;
  for (const json& row : rows) {
    const std::string op = row[0];
    const std::string device = row[1];
    CAPTURE(row.dump());
    seen.insert(op);
    Tensors inputs;
    for (const std::string dtype : row[3]) {
      inputs.push_back(full({3, 3}, 0.5, {.dtype = parse_dtype(dtype), .device = test_device()}));
    }
    const amp::Autocast autocast(test_device(), parse_dtype(row[2].get<std::string>()), true,
                                 device == "cuda" ? amp::cuda_table : amp::cpu_table);
    // Other here: lerp promotes, as every pointwise op; float64 logits have a float64 loss whatever the
    // target.
    if (op == "lerp" && row[4] == "error") continue;
    if (op == "binary_cross_entropy_with_logits" && row[3][0] == "float64") continue;
    // Products that mix float64 with others throw in both, but fake tensors do not notice: see
    // autocast_test.cpp.
    if (row[3][0] == "float64" && kProducts.contains(op)) continue;
    CHECK(result_dtype(call_of(op), inputs) == row[4].get<std::string>());
  }
  // What backwards run, and what names a dtype itself: nothing to cast, so no policy but keep.
  const std::set<std::string> ours{"slope",
                                   "to",
                                   "embed",
                                   "softmax_grad",
                                   "max_pool2d_grad",
                                   "batch_norm_grad",
                                   "layer_norm_grad",
                                   "conv2d_input_grad",
                                   "conv2d_weight_grad"};
  // What nn makes of several layers: tests/nn/fusion_test.cpp.
  const std::set<std::string> fused{"batch_norm_relu", "conv1x1_stats", "linear_relu", "gelu_linear"};
  for (size_t k = 0; k < kOps; ++k) {
    const std::string op(info(static_cast<OpId>(k)).name);
    CAPTURE(op);
    CHECK(seen.contains(op) != (ours.contains(op) || fused.contains(op)));
    if (!ours.contains(op)) continue;
    CHECK(amp::cpu_table[static_cast<OpId>(k)] == amp::Policy::keep);
    CHECK(amp::cuda_table[static_cast<OpId>(k)] == amp::Policy::keep);
  }
}
