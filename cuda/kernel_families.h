// The families of CUDA kernels; each fills its entries of the table.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::cuda {

void add_pointwise(Kernels& table);             // pointwise.cu and the two below
void add_pointwise_slopes(Kernels& table);      // pointwise_slope.cu
void add_pointwise_curvatures(Kernels& table);  // pointwise_curvature.cu
void add_copy(Kernels& table);                  // copy.cu: copy, fill, arange
void add_random(Kernels& table);                // random.cu: uniform, normal
void add_reduce(Kernels& table);                // reduce.cu
void add_softmax(Kernels& table);               // softmax.cu
void add_indexing(Kernels& table);              // indexing.cu: gather, scatter, scatter_add
void add_matmul(Kernels& table);                // matmul.cpp, by cuBLAS: matmul, linear, linear_grad
void add_conv(Kernels& table);                  // conv.cpp, by cuDNN
void add_attention(Kernels& table);             // attention.cpp
void add_pool(Kernels& table);                  // pool.cu: max_pool2d
void add_batch_norm(Kernels& table);            // batch_norm.cu, with and without relu, and the one below
void add_batch_norm_grad(Kernels& table);       // batch_norm_grad.cu
void add_layer_norm(Kernels& table);            // layer_norm.cu
void add_conv1x1(Kernels& table);               // conv1x1.cpp
void add_optimizers(Kernels& table);            // optimizers.cu: adam, sgd, and the one below
void add_loss_scaling(Kernels& table);          // loss_scaling.cu: unscale, update_scale
void add_clip(Kernels& table);                  // clip.cu: norm, clip, zero

}  // namespace mezzo::cuda
