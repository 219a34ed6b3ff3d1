// Layers and losses against PyTorch's numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/random.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

TEST_CASE("golden: conv2d and its gradients") {
  const Golden golden("conv2d");
  const std::string end = ".geometry";
  int cases = 0;
  for (const std::string& key : golden.keys()) {
    if (!key.ends_with(end)) continue;
    const auto g = golden.tensor(key).to_vector<int64_t>();
    const ConvGeometry geometry{
        .stride = {g[0], g[1]}, .padding = {g[2], g[3]}, .dilation = {g[4], g[5]}, .groups = g[6]};
    check_case(golden, key.substr(0, key.size() - end.size()), [&](const Tensors& x) {
      return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), geometry);
    });
    ++cases;
  }
  CHECK(cases >= 16);
}

TEST_CASE("golden: Conv2d with padding \"same\"") {
  const Golden golden("conv2d");
  int cases = 0;
  for (const std::string& key : golden.keys("same")) {
    const std::string name = key.substr(0, key.find('.'));
    if (key != name + ".same") continue;
    const auto options = golden.tensor(key).to_vector<int64_t>();
    check_case(golden, name, [&](const Tensors& x) {
      nn::Conv2d layer(x[0].size(1), x[1].size(0), {x[1].size(2), x[1].size(3)},
                       {.padding = "same", .dilation = {options[0], options[1]}, .groups = options[2]});
      layer.weight = x[1];
      layer.bias = x[2];
      return layer(x[0]);
    });
    ++cases;
  }
  CHECK(cases == 4);
}

TEST_CASE("golden: max_pool2d and its gradients, in both layouts") {
  const Golden golden("max_pool2d");
  const std::string end = ".geometry";
  int cases = 0;
  for (const std::string& key : golden.keys()) {
    if (!key.ends_with(end)) continue;
    const auto g = golden.tensor(key).to_vector<int64_t>();
    for (const MemoryFormat format : {contiguous_format, channels_last}) {
      check_case(golden, key.substr(0, key.size() - end.size()), [&](const Tensors& x) {
        return max_pool2d(x[0].to(format), {g[0], g[1]},
                          {.stride = Size2(g[2], g[3]),
                           .padding = {g[4], g[5]},
                           .dilation = {g[6], g[7]},
                           .ceil_mode = g[8] != 0});
      });
    }
    ++cases;
  }
  CHECK(cases == 14);
}

TEST_CASE("golden: embedding and its gradients") {
  const Golden golden("embedding");
  int padded = 0;
  for (const char* name :
       {"list", "sequences", "one", "none", "padding", "padding_first", "padding_from_the_end"}) {
    const std::string key = text(name, ".padding_idx");
    std::optional<int64_t> padding_idx;
    if (golden.has(key)) padding_idx = golden.tensor(key).item<int64_t>();
    padded += padding_idx.has_value();
    for (const DType dtype : {int64, int32}) {
      check_case(golden, name,
                 [&](const Tensors& x) { return embedding(x[0], x[1].to(dtype), padding_idx); });
    }
  }
  CHECK(padded == 3);
}

TEST_CASE("golden: layer_norm and its gradients") {
  const Golden golden("layer_norm");
  const std::string end = ".normalized_shape";
  int cases = 0;
  for (const std::string& key : golden.keys()) {
    if (!key.ends_with(end)) continue;
    const std::string name = key.substr(0, key.size() - end.size());
    const Shape normalized(golden.tensor(key).to_vector<int64_t>());
    const auto eps = golden.tensor(name + ".eps").item<double>();
    check_case(golden, name, [&](const Tensors& x) {
      return layer_norm(x[0], normalized, x.size() > 1 ? x[1] : Tensor(), x.size() > 2 ? x[2] : Tensor(),
                        eps);
    });
    ++cases;
  }
  CHECK(cases == 9);
}

TEST_CASE("golden: scaled_dot_product_attention and its gradients") {
  const Golden golden("attention");
  const std::string end = ".is_causal";
  int cases = 0;
  for (const std::string& key : golden.keys()) {
    if (!key.ends_with(end)) continue;
    const std::string name = key.substr(0, key.size() - end.size());
    AttentionOptions options{.is_causal = golden.tensor(key).item<bool>()};
    if (const auto scale = golden.tensor(name + ".scale").item<double>(); !std::isnan(scale))
      options.scale = scale;
    check_case(golden, name, [&](const Tensors& x) {
      return scaled_dot_product_attention(x[0], x[1], x[2], x.size() > 3 ? x[3] : Tensor(), options);
    });
    ++cases;
  }
  CHECK(cases == 15);
}

TEST_CASE("golden: mse_loss and its gradients") {
  const Golden golden("mse");
  const std::map<std::string, LossReduction> reductions{
      {"mean", LossReduction::mean}, {"sum", LossReduction::sum}, {"none", LossReduction::none}};
  for (const auto& [name, reduction] : reductions) {
    for (const char* shape : {"same", "image", "broadcast", "scalar"}) {
      check_case(golden, name + "." + shape,
                 [r = reduction](const Tensors& x) { return mse_loss(x[0], x[1], r); });
    }
  }
}

namespace {

nn::BatchNormOptions options_of(const nlohmann::json& table) {
  nn::BatchNormOptions options{.affine = table.at("affine"),
                               .track_running_stats = table.at("track_running_stats")};
  options.momentum.reset();
  if (!table.at("momentum").is_null()) options.momentum = table.at("momentum").get<double>();
  return options;
}

/// Three steps of training and one of evaluation; `prefix` is CASE.DTYPE. of the golden file.
void check_batch_norm(const Golden& golden, const std::string& prefix, nn::BatchNorm layer, DType dtype) {
  CAPTURE(prefix);
  layer.to(dtype).to(test_device());
  const double tolerance = golden_tolerance(dtype);
  const auto stored = [&](const std::string& name) { return golden.tensor(prefix + name).to(test_device()); };
  for (auto& [name, parameter] : layer.named_parameters()) {
    const NoGradGuard guard;
    Tensor(parameter).copy_(stored(name));
  }
  const Tensor x = stored("x").requires_grad_(), grad_out = stored("grad_out");
  for (int step = 0; step < 4; ++step) {
    CAPTURE(step);
    layer.train(step < 3);
    layer.zero_grad();
    const Tensor out = layer(x[step]);
    out.backward(grad_out[step].clone());
    CHECK(close(out, stored("out")[step], tolerance));
    for (const auto& named : layer.named_parameters()) {
      CAPTURE(named.first);
      CHECK(close(named.second.grad(), stored("grad_" + named.first)[step], tolerance));
    }
    for (const auto& named : layer.named_buffers()) {
      CAPTURE(named.first);
      const Tensor& buffer = named.second;
      CHECK(close(buffer, stored(named.first)[step], buffer.dtype() == int64 ? 0 : tolerance));
    }
  }
  CHECK(close(x.grad(), stored("grad_x"), tolerance));
}

}  // namespace

TEST_CASE("golden: BatchNorm1d and BatchNorm2d in training and evaluation") {
  const Golden golden("batch_norm");
  const auto cases = nlohmann::json::parse(golden.metadata("cases"));
  CHECK(cases.size() == 10);
  for (const auto& [name, table] : cases.items()) {
    const nn::BatchNormOptions options = options_of(table);
    for (const DType dtype : {float32, float64}) {
      const std::string prefix = text(name, '.', name_of(dtype), '.');
      const bool images = golden.tensor(prefix + "x").dim() == 5;
      const nn::BatchNorm layer =
          images ? nn::BatchNorm(nn::BatchNorm2d(3, options)) : nn::BatchNorm1d(3, options);
      CHECK(layer.named_parameters().size() == (options.affine ? 2 : 0));
      CHECK(layer.named_buffers().size() == (options.track_running_stats ? 3 : 0));
      check_batch_norm(golden, prefix, layer, dtype);
    }
  }
}

namespace {

/// Largest |weight| and |bias| of many layers, which must lie in `bound` and come near it.
template <class Layer>
void check_bound(const std::function<Layer()>& make, double bound) {
  double weight = 0, bias = 0;
  for (int i = 0; i < 300; ++i) {
    const Layer layer = make();
    weight = std::max(weight, layer.weight.detach().abs().amax().template item<double>());
    bias = std::max(bias, layer.bias.detach().abs().amax().template item<double>());
  }
  for (const double largest : {weight, bias}) {
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest > 0.97 * bound);
  }
}

}  // namespace

TEST_CASE("golden: bounds of initial weights and biases") {
  manual_seed(5);
  const Golden golden("init");
  const auto bounds_of = [&](const std::string& kind) {
    return golden.tensor(kind + ".bounds").to_vector<double>();
  };
  const auto shape_of = [&](const std::string& kind, size_t i) {
    return golden.tensor(kind + ".shapes")[static_cast<int64_t>(i)].to_vector<int64_t>();
  };
  const auto linear = bounds_of("linear"), conv2d = bounds_of("conv2d");
  REQUIRE(linear.size() == 5);
  for (size_t i = 0; i < linear.size(); ++i) {
    CAPTURE(i);
    const auto s = shape_of("linear", i);
    check_bound<nn::Linear>([&] { return nn::Linear(s[0], s[1]); }, linear[i]);
  }
  REQUIRE(conv2d.size() == 5);
  for (size_t i = 0; i < conv2d.size(); ++i) {
    CAPTURE(i);
    const auto s = shape_of("conv2d", i);
    check_bound<nn::Conv2d>(
        [&] {
          return nn::Conv2d(s[0], s[1], {s[2], s[3]}, {.groups = s[4]});
        },
        conv2d[i]);
  }
}
