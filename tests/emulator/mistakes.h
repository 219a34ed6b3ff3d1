// Kernels that are wrong on purpose, most with a correct twin.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace mistakes {

struct Table {
  float* data;
};

constexpr unsigned kBlock = 256;

/// Each block writes its part of x backwards; without `wait` threads read what others may not have written.
void reverse_blocks(const float* x, float* y, unsigned blocks, bool wait, cudaStream_t stream);
/// Reads a neighbour's value within the warp.
void rotate_warps(const float* x, float* y, bool wait, cudaStream_t stream);
/// y[0..n) = 1, from threads as many as blocks have; `extra` elements too many.
void fill(float* y, std::size_t n, std::size_t extra, cudaStream_t stream);
/// *sum = the last of x that an index of more than n reaches.
void read_past(const float* x, std::size_t n, float* sum, cudaStream_t stream);
/// Writes at thread + shift into shared memory for as many threads as it has elements.
void static_shared(float* y, unsigned shift, cudaStream_t stream);
void dynamic_shared(float* y, unsigned shift, cudaStream_t stream);
void half_written_shared(float* y, cudaStream_t stream);
void too_much_shared(float* y, cudaStream_t stream);
void early_return(float* y, cudaStream_t stream);
void two_barriers(float* y, cudaStream_t stream);
void two_shuffles(float* y, cudaStream_t stream);
void foreign_mask(float* y, cudaStream_t stream);
void misaligned(const float* x, float* y, cudaStream_t stream);
/// y[0] += 1 in every block.
void count_blocks(float* y, bool atomic, cudaStream_t stream);
/// Sums in shared memory by atomicAdd, which thread 0 then reads.
void count_threads(float* y, bool wait, cudaStream_t stream);
/// y[i] = value for n threads of one block.
void set(float* y, float value, unsigned n, cudaStream_t stream);
void set_by_table(Table table, cudaStream_t stream);
/// Neighbouring bytes, each from another thread: correct.
void set_bytes(unsigned char* y, cudaStream_t stream);
void deep_recursion(float* y, cudaStream_t stream);

}  // namespace mistakes
