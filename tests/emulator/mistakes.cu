// `// at: name` marks the line that a message about the mistake of that name must tell.
#include "tests/emulator/mistakes.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace mistakes {

namespace {

__device__ std::size_t global_index() { return blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; }

__global__ void reverse_blocks_kernel(const float* x, float* y, bool wait) {
  SHARED(float, tile, [kBlock]);
  tile[threadIdx.x] = x[global_index()];  // at: missing_barrier_write
  if (wait) __syncthreads();
  y[global_index()] = tile[blockDim.x - 1 - threadIdx.x];  // at: missing_barrier_read
}

__global__ void rotate_warps_kernel(const float* x, float* y, bool wait) {
  SHARED(float, tile, [kBlock]);
  tile[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncwarp();
  const unsigned lane = threadIdx.x % 32;
  y[threadIdx.x] = tile[threadIdx.x - lane + (lane + 1) % 32];  // at: missing_syncwarp
}

__global__ void fill_kernel(float* y, std::size_t end) {
  const std::size_t i = global_index();
  if (i < end) y[i] = 1.f;  // at: write_past_end
}

__global__ void read_past_kernel(const float* x, std::size_t n, float* sum) {
  *sum = x[n];  // at: read_past_end
}

__global__ void static_shared_kernel(float* y, unsigned shift) {
  SHARED(float, tile, [64]);
  tile[threadIdx.x + shift] = 1.f;  // at: past_static_shared
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void dynamic_shared_kernel(float* y, unsigned shift) {
  DYN_SHARED(float, tile);
  tile[threadIdx.x + shift] = 1.f;  // at: past_dynamic_shared
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void half_written_shared_kernel(float* y) {
  SHARED(float, tile, [64]);
  if (threadIdx.x < 32) tile[threadIdx.x] = 1.f;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void too_much_shared_kernel(float* y) {
  SHARED(float, tile, [64 * 1024]);  // at: too_much_static_shared
  tile[threadIdx.x] = 1.f;
  y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void early_return_kernel(float* y) {
  if (threadIdx.x >= 40) return;
  __syncthreads();  // at: early_return
  y[threadIdx.x] = 1.f;
}

__global__ void two_barriers_kernel(float* y) {
  if (threadIdx.x % 2) {
    __syncthreads();  // at: two_barriers
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1.f;
}

__global__ void two_shuffles_kernel(float* y) {
  float value = 1.f;
  if (threadIdx.x % 32 < 16) {
    value = __shfl_down_sync(0xffffffffu, value, 1);  // at: two_shuffles
  } else {
    value = __shfl_down_sync(0xffffffffu, value, 2);
  }
  y[threadIdx.x] = value;
}

__global__ void foreign_mask_kernel(float* y) {
  y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.f, 0);  // at: foreign_mask
}

__global__ void misaligned_kernel(const float* x, float* y) {
  const float4 value = *reinterpret_cast<const float4*>(x + 1);  // at: misaligned
  *reinterpret_cast<float4*>(y) = make_float4(value.x + 1.f, value.y, value.z, value.w);
}

__global__ void count_blocks_kernel(float* y, bool atomic) {
  if (atomic) {
    atomicAdd(y, 1.f);
  } else {
    y[0] = y[0] + 1.f;  // at: block_race
  }
}

__global__ void count_threads_kernel(float* y, bool wait) {
  SHARED(float, count);
  if (threadIdx.x == 0) count = 0.f;
  __syncthreads();
  atomicAdd(&count, 1.f);  // at: atomic_then_plain
  if (wait) __syncthreads();
  if (threadIdx.x == 0) y[0] = count;
}

__global__ void set_kernel(float* y, float value) { y[threadIdx.x] = value; }

__global__ void set_by_table_kernel(Table table) {
  table.data[threadIdx.x] = 1.f;  // at: pointer_in_struct
}

__global__ void set_bytes_kernel(unsigned char* y) {
  y[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
}

__device__ float recurse(const float* x, int depth) {
  volatile float room[256];
  room[depth % 256] = x[0];
  return depth == 0 ? room[0] : recurse(x, depth - 1) + room[depth % 256];
}

__global__ void deep_recursion_kernel(float* y) { y[1] = recurse(y, 100000); }

/// Launches on `stream`, or says why not and ends the program.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, std::size_t shared_bytes,
            cudaStream_t stream, Arguments... arguments) {
  const cudaError_t code = emulator::launch(kernel, blocks, threads, shared_bytes, stream, arguments...);
  if (code == cudaSuccess) return;
  std::printf("error code: %s\n", cudaGetErrorName(code));
  std::exit(1);
}

}  // namespace

void reverse_blocks(const float* x, float* y, unsigned blocks, bool wait, cudaStream_t stream) {
  launch(reverse_blocks_kernel, blocks, kBlock, 0, stream, x, y, wait);
}
void rotate_warps(const float* x, float* y, bool wait, cudaStream_t stream) {
  launch(rotate_warps_kernel, 1, kBlock, 0, stream, x, y, wait);
}
void fill(float* y, std::size_t n, std::size_t extra, cudaStream_t stream) {
  launch(fill_kernel, static_cast<unsigned>((n + extra + kBlock - 1) / kBlock), kBlock, 0, stream, y,
         n + extra);
}
void read_past(const float* x, std::size_t n, float* sum, cudaStream_t stream) {
  launch(read_past_kernel, 1, 1, 0, stream, x, n, sum);
}
void static_shared(float* y, unsigned shift, cudaStream_t stream) {
  launch(static_shared_kernel, 1, 64, 0, stream, y, shift);
}
void dynamic_shared(float* y, unsigned shift, cudaStream_t stream) {
  launch(dynamic_shared_kernel, 1, 64, 64 * sizeof(float), stream, y, shift);
}
void half_written_shared(float* y, cudaStream_t stream) {
  launch(half_written_shared_kernel, 1, 64, 0, stream, y);
}
void too_much_shared(float* y, cudaStream_t stream) { launch(too_much_shared_kernel, 1, 64, 0, stream, y); }
void early_return(float* y, cudaStream_t stream) { launch(early_return_kernel, 1, 64, 0, stream, y); }
void two_barriers(float* y, cudaStream_t stream) { launch(two_barriers_kernel, 1, 64, 0, stream, y); }
void two_shuffles(float* y, cudaStream_t stream) { launch(two_shuffles_kernel, 1, 64, 0, stream, y); }
void foreign_mask(float* y, cudaStream_t stream) { launch(foreign_mask_kernel, 1, 32, 0, stream, y); }
void misaligned(const float* x, float* y, cudaStream_t stream) {
  launch(misaligned_kernel, 1, 1, 0, stream, x, y);
}
void count_blocks(float* y, bool atomic, cudaStream_t stream) {
  launch(count_blocks_kernel, 64, 1, 0, stream, y, atomic);
}
void count_threads(float* y, bool wait, cudaStream_t stream) {
  launch(count_threads_kernel, 1, 64, 0, stream, y, wait);
}
void set(float* y, float value, unsigned n, cudaStream_t stream) {
  launch(set_kernel, 1, n, 0, stream, y, value);
}
void set_by_table(Table table, cudaStream_t stream) { launch(set_by_table_kernel, 1, 4, 0, stream, table); }
void set_bytes(unsigned char* y, cudaStream_t stream) { launch(set_bytes_kernel, 1, 64, 0, stream, y); }
void deep_recursion(float* y, cudaStream_t stream) { launch(deep_recursion_kernel, 1, 1, 0, stream, y); }

}  // namespace mistakes
