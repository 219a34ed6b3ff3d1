// The families of reference kernels; each fills its entries of the table.
#pragma once

#include "tensor/kernels.h"

namespace mezzo::reference {

void add_pointwise(Kernels& table);   // pointwise.cpp: pointwise, copy, fill, arange, random
void add_reduce(Kernels& table);      // reduce.cpp
void add_softmax(Kernels& table);     // softmax.cpp
void add_indexing(Kernels& table);    // indexing.cpp: gather, scatter_add
void add_products(Kernels& table);    // products.cpp: matmul, conv2d
void add_attention(Kernels& table);   // attention.cpp
void add_pool(Kernels& table);        // pool.cpp: max_pool2d
void add_batch_norm(Kernels& table);  // batch_norm.cpp
void add_conv1x1(Kernels& table);
void add_layer_norm(Kernels& table);  // layer_norm.cpp
void add_optimizers(Kernels& table);  // optimizers.cpp
void add_clip(Kernels& table);        // clip.cpp: norm, clip, zero

}  // namespace mezzo::reference
