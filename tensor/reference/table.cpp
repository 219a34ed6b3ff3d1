#include "tensor/reference/kernel_families.h"

namespace mezzo {

Kernels make_reference_kernels() {
  Kernels table;
  reference::add_pointwise(table);
  reference::add_reduce(table);
  reference::add_softmax(table);
  reference::add_indexing(table);
  reference::add_products(table);
  reference::add_attention(table);
  reference::add_pool(table);
  reference::add_batch_norm(table);
  reference::add_conv1x1(table);
  reference::add_layer_norm(table);
  reference::add_optimizers(table);
  reference::add_clip(table);
  return table;
}

}  // namespace mezzo
