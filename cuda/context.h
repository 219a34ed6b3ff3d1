// What a thread works with on a device: a stream, and handles of the libraries that are bound to it.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>

namespace mezzo::cuda {

/// A thread's side of one device. Handles are made at their first use and not shared between threads.
class Context {
 public:
  explicit Context(int device) : device_(device) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device() const { return device_; }
  /// The stream that kernels of this thread go to: the device's main one, which all threads share, so that
  /// tensors can pass between them as they do on a CPU; or that of the innermost StreamGuard.
  cudaStream_t stream();
  void set_stream(cudaStream_t stream) { stream_ = stream; }
  /// Bound to the stream.
  cublasHandle_t blas();
  cudnnHandle_t dnn();

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  void* workspace_ = nullptr;                                  ///< cuBLAS's
  cudaStream_t blas_stream_ = nullptr, dnn_stream_ = nullptr;  ///< that the handles are bound to
};

/// That of the calling thread on the device that it works on, 0 to begin with.
Context& context();
/// Makes `device` the one that the calling thread works on.
void select(int device);

/// Puts another stream under the calling thread's kernels while it lives.
class StreamGuard {
 public:
  explicit StreamGuard(cudaStream_t stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Context& context_;
  cudaStream_t outer_;
};

/// Memory of a kernel call that needs some beside its views, from the caching allocator: free again, for
/// later work of the same stream, as soon as the call has been put on it.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

/// After each launch: reports its errors, and in the debug setting MEZZO_CUDA_SYNCHRONIZE=1 waits for the
/// kernel, so that what goes wrong in it is reported by the op that launched it.
void finish_launch(cudaError_t status, cudaStream_t stream);

}  // namespace mezzo::cuda
