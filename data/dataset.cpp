#include "data/dataset.h"

#include <algorithm>
#include <numeric>

namespace mezzo::data {

std::vector<Tensor> random_parts(int64_t size, const std::vector<int64_t>& lengths) {
  const auto total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (total != size || std::ranges::any_of(lengths, [](int64_t length) { return length < 0; }))
    fail("random_split", text("lengths must add up to the ", size, " examples, and none may be negative"));
  const Tensor order = randperm(size);
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    parts.push_back(order.narrow(0, start, length));
    start += length;
  }
  return parts;
}

int64_t common_length(std::span<const Tensor> tensors) {
  for (const Tensor& x : tensors) {
    if (!x.defined() || x.dim() == 0) fail("TensorDataset", "a tensor has no dimension 0", {{"tensor", x}});
    if (x.size(0) != tensors[0].size(0)) {
      fail("TensorDataset", text("lengths ", tensors[0].size(0), " and ", x.size(0), " differ"),
           {{"first", tensors[0]}, {"other", x}});
    }
  }
  return tensors[0].size(0);
}

}  // namespace mezzo::data
