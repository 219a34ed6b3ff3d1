// A point in a stream's work, for other streams to wait for.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/check.h"

namespace mezzo::cuda {

class Event {
 public:
  /// After the work on `stream` that has been asked for by now.
  explicit Event(cudaStream_t stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    check(cudaEventRecord(event_, stream), "recording an event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Later work on `stream` comes after it. Waits on no CPU.
  void wait_on(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
  }
  /// Whether the work is done.
  bool is_over() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // an answer, but also kept as an error
    if (status != cudaErrorNotReady) check(status, "asking for an event");
    return false;
  }
  /// Waits, on the CPU.
  void synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace mezzo::cuda
