// Calls whose form differs between CUDA 12 and 13.
#include <cuda_runtime_api.h>

#include <mutex>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/runtime.h"

using namespace emulator;

namespace {

cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  *status = status_of(*stream);
  if (id) *id = stream->capture ? stream->capture->id : 0;
  return result();
}

/// Of the graph that is being captured the emulator tells nothing.
cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                         cudaGraph_t* graph, const cudaGraphNode_t** dependencies, size_t* count) {
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (count) *count = 0;
  return capture_info(handle, status, id);
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  if (edges) *edges = nullptr;
  return capture_info(handle, status, id, graph, dependencies, count);
}
#else
// The header of CUDA 12 renames the first to cudaStreamGetCaptureInfo_v2.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, size_t* count) {
  return capture_info(handle, status, id, graph, dependencies, count);
}
#if CUDART_VERSION >= 12030
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                        size_t* count) {
  if (edges) *edges = nullptr;
  return capture_info(handle, status, id, graph, dependencies, count);
}
#endif
#endif

}  // extern "C"
