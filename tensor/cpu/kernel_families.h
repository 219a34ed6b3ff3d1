// The families of CPU kernels; each fills its entries of the table.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cpu {

void add_pointwise(Kernels& table);        // pointwise.cpp
void add_copy(Kernels& table);             // copy.cpp: copy, fill, arange
void add_random(Kernels& table);           // random.cpp: uniform, normal
void add_reduce(Kernels& table);           // reduce.cpp
void add_softmax(Kernels& table);          // softmax.cpp
void add_indexing(Kernels& table);         // indexing.cpp: gather, scatter_add
void add_matmul(Kernels& table);           // matmul.cpp
void add_conv(Kernels& table);             // conv.cpp
void add_batch_norm(Kernels& table);       // batch_norm.cpp
void add_batch_norm_grad(Kernels& table);  // batch_norm_grad.cpp
void add_attention(Kernels& table);        // attention.cpp
void add_pool(Kernels& table);             // pool.cpp: max_pool2d
void add_layer_norm(Kernels& table);       // layer_norm.cpp
void add_linear(Kernels& table);           // linear.cpp: linear, linear_grad
void add_conv1x1(Kernels& table);          // conv1x1.cpp: conv1x1_stats and its gradients
void add_optimizers(Kernels& table);       // optimizers.cpp: adam, sgd, unscale, update_scale
void add_clip(Kernels& table);             // clip.cpp: norm, clip, zero

}  // namespace mezzo::cpu
