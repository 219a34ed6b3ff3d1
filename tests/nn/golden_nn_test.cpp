// Convolution and losses against PyTorch's numbers.
#include <doctest/doctest.h>

#include <map>

#include "autograd/ops.h"
#include "tests/golden.h"

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
