#include "tensor/cuda_settings.h"

#include <atomic>

namespace mezzo::cuda {

namespace {
std::atomic<bool> tf32_matmul = false, tf32_convolution = true;
}

void allow_tf32_matmul(bool allow) { tf32_matmul = allow; }
void allow_tf32_convolution(bool allow) { tf32_convolution = allow; }
bool tf32_matmul_allowed() { return tf32_matmul; }
bool tf32_convolution_allowed() { return tf32_convolution; }

}  // namespace mezzo::cuda
