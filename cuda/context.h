// What a thread works with on a device: a stream, and handles of the libraries that are bound to it.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace mezzo::cuda {

/// What the work for a device depends on.
struct Card {
  int capability = 0;  ///< ten times the major part of its compute capability plus the minor one
  int multiprocessors = 0;
};
/// The CUDA devices of this machine; with none, `absence` says why. Looked for once.
struct Devices {
  std::vector<Card> cards;
  std::string absence;
};
const Devices& devices();

/// Page-locked memory through which a thread's copies between CPU and device go: only from there are they
/// asynchronous and at full speed. Two halves, so that one is filled while the other is on its way.
class Staging {
 public:
  static constexpr size_t kBytes = size_t{2} << 20;  ///< of one half: some 0.1 ms of a bus

  ~Staging();
  /// A half that no copy uses any more.
  void* next();
  /// The half that `next` gave last is used by work on `stream` that has been asked for by now.
  void used_by(cudaStream_t stream);

 private:
  std::array<void*, 2> halves_{};
  std::array<cudaEvent_t, 2> events_{};
  size_t current_ = 0;
};

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
  /// Null stands for the main one. Returns what was set before; no handle stays bound to that, since it may
  /// be gone, and another stream under its name, when the handle is used next.
  cudaStream_t exchange_stream(cudaStream_t stream) {
    blas_stream_ = dnn_stream_ = nullptr;
    return std::exchange(stream_, stream);
  }
  /// Bound to the stream.
  cublasHandle_t blas();
  cudnnHandle_t dnn();
  Staging& staging() { return staging_; }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  Staging staging_;
  void* workspace_ = nullptr;                                  ///< cuBLAS's
  cudaStream_t blas_stream_ = nullptr, dnn_stream_ = nullptr;  ///< that the handles are bound to
};

/// That of the calling thread on the device that it works on, 0 to begin with.
Context& context();
/// The device that the calling thread works on.
inline const Card& card() { return devices().cards[static_cast<size_t>(context().device())]; }
/// Makes `device` the one that the calling thread works on. A program that calls cudaSetDevice besides has to
/// set it back before it calls mezzo.
void select(int device);
/// Selects a device while it lives, and then the one before, also where the first has failed.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int outer_;
};

/// The stream of a device that all threads share.
cudaStream_t main_stream(int device);
/// Another one, shared too, on which data comes from the CPU while the device works.
cudaStream_t upload_stream(int device);

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
  explicit Scratch(size_t bytes) : Scratch(bytes, context().stream()) {}
  Scratch(size_t bytes, cudaStream_t stream);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  int device_;
  void* data_;
};

/// After each launch: reports its errors, and in the debug setting MEZZO_CUDA_SYNCHRONIZE=1 waits for the
/// kernel, unless it is captured, so that what goes wrong in it is reported by the op that launched it.
void finish_launch(cudaError_t status, cudaStream_t stream);

}  // namespace mezzo::cuda
