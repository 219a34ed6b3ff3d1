#include "tensor/cpu/kernel_families.h"

namespace mezzo {

Kernels make_cpu_kernels() {
  Kernels table;
  cpu::add_pointwise(table);
  cpu::add_copy(table);
  cpu::add_random(table);
  cpu::add_reduce(table);
  cpu::add_softmax(table);
  cpu::add_indexing(table);
  cpu::add_matmul(table);
  cpu::add_conv(table);
  cpu::add_attention(table);
  cpu::add_pool(table);
  cpu::add_batch_norm(table);
  cpu::add_batch_norm_grad(table);
  cpu::add_linear(table);
  cpu::add_conv1x1(table);
  cpu::add_layer_norm(table);
  cpu::add_optimizers(table);
  cpu::add_clip(table);
  return table;
}

}  // namespace mezzo
