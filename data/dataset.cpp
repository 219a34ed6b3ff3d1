#include "data/dataset.h"

namespace mezzo::data {

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
