// Stream capture and graphs: a graph is the list of what a stream would have run.
#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/runtime.h"

using namespace emulator;

/// What the toolkit's handles point to.
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace emulator {

namespace {

constinit thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

/// Calls `visit` with each capture and its stream.
template <class Visit>
void each_capture(Visit visit) {
  each_stream([&](Stream& stream) {
    if (stream.capture) visit(*stream.capture, stream);
  });
}

bool respected(const Capture& capture) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed || capture.mode == cudaStreamCaptureModeRelaxed)
    return false;
  if (capture.owner == std::this_thread::get_id()) return true;
  return mode_of_thread == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

cudaError_t add_to_capture(Capture& capture, Work work) {
  if (!capture.valid) return cudaErrorStreamCaptureInvalidated;
  capture.work.push_back(std::move(work));
  return cudaSuccess;
}

bool forbidden_by_capture() {
  const std::lock_guard lock(runtime_mutex());
  bool forbidden = false;
  each_capture([&](Capture& capture, const Stream&) {
    if (!respected(capture)) return;
    capture.valid = false;
    forbidden = true;
  });
  return forbidden;
}

bool blocking_capture_on(int device) {
  bool found = false;
  each_capture([&](const Capture&, const Stream& stream) {
    found = found || (stream.device == device && stream.blocking);
  });
  return found;
}

bool capture_on(int device) {
  bool found = false;
  each_capture([&](const Capture&, const Stream& stream) { found = found || stream.device == device; });
  return found;
}

void invalidate_captures_on(int device) {
  each_capture([&](Capture& capture, const Stream& stream) {
    if (stream.device == device) capture.valid = false;
  });
}

cudaStreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
}

}  // namespace emulator

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(runtime_mutex());
  static unsigned long long captures = 0;
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  if (stream->is_default)
    return refuse(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
  if (stream->capture) return refuse(cudaErrorIllegalState, "the stream is being captured already");
  stream->capture = std::make_shared<Capture>();
  stream->capture->id = ++captures;
  stream->capture->mode = mode;
  stream->capture->owner = std::this_thread::get_id();
  return result();
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(runtime_mutex());
  *graph = nullptr;
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  if (!stream->capture) return refuse(cudaErrorIllegalState, "the stream is not being captured");
  if (stream->capture->mode != cudaStreamCaptureModeRelaxed &&
      stream->capture->owner != std::this_thread::get_id()) {
    return refuse(cudaErrorStreamCaptureWrongThread, "another thread began this capture");
  }
  const auto capture = std::exchange(stream->capture, nullptr);
  if (!capture->valid) return result(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(capture->work)};
  return result();
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  *status = status_of(*stream);
  return result();
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return result();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  return result();
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return result(); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  for (const Work& work : executable->work) {
    if (const cudaError_t code = append(stream, work)) return code;
  }
  return result();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return result();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return result();
}

}  // extern "C"
