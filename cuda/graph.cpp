// Captures: a stream of its own takes down what a step asks for, and a graph is made of that.
#include "cuda/graph.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>
#include <vector>

#include "cuda/allocator.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "tensor/error.h"

namespace mezzo::cuda {

namespace {

std::atomic<uint64_t> last_number = 0;

/// A graph that can be launched, and the memory that it works in.
struct Recording {
  int device;
  uint64_t number;
  int pool = 0;
  cudaGraphExec_t graph = nullptr;
  std::vector<std::function<void()>> writes{};  ///< before each replay

  explicit Recording(int device) : device(device), number(++last_number) {}
  ~Recording() {
    if (graph) cudaGraphExecDestroy(graph);
    if (pool) allocator(device).drop_pool(pool);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

thread_local Recording* capturing = nullptr;

struct OwnStream {
  cudaStream_t handle = nullptr;
  OwnStream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "making a stream"); }
  ~OwnStream() { cudaStreamDestroy(handle); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
};

/// The capture of a stream of its own, from construction on, until it is finished or given up.
class Capture {
 public:
  explicit Capture(Recording& recording) : recording_(recording), guard_(stream_.handle) {
    allocator(recording.device).begin_capture(stream_.handle);
    capturing = &recording;
    begun_ = cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal);
  }
  ~Capture() {
    if (!capturing) return;
    if (const cudaGraph_t graph = end()) cudaGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void check_begun() const { check(begun_, "beginning a capture"); }

  void finish() {
    const cudaGraph_t graph = end();
    if (!graph) fail("cuda::Graph", "the step did what a capture does not allow");
    const cudaError_t status = cudaGraphInstantiate(&recording_.graph, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "making a graph");
  }

 private:
  /// Null if the capture has failed.
  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    if (begun_ == cudaSuccess && cudaStreamEndCapture(stream_.handle, &graph) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      graph = nullptr;
    }
    capturing = nullptr;
    recording_.pool = allocator(recording_.device).end_capture();
    return graph;
  }

  Recording& recording_;
  OwnStream stream_;
  StreamGuard guard_;
  cudaError_t begun_ = cudaSuccess;
};

}  // namespace

std::shared_ptr<void> record(int device, const std::function<void()>& step) {
  refuse_in_capture("another capture", "");
  select(device);
  static_cast<void>(context().blas());  // made before: they allocate
  static_cast<void>(context().dnn());
  auto recording = std::make_shared<Recording>(device);
  Capture capture(*recording);
  capture.check_begun();
  step();
  select(device);
  capture.finish();
  return recording;
}

void replay(int device, void* recording) {
  refuse_in_capture("a replay", "");
  select(device);
  const Recording& known = *static_cast<const Recording*>(recording);
  for (const auto& write : known.writes) write();
  check(cudaGraphLaunch(known.graph, context().stream()), "replaying a graph");
}

uint64_t capture_number(int device) {
  return capturing && capturing->device == device ? capturing->number : 0;
}

void at_replay(int device, std::function<void()> write) {
  if (capture_number(device)) capturing->writes.push_back(std::move(write));
}

void refuse_in_capture(std::string_view what, std::string_view hint) {
  if (capturing) fail("cuda::Graph", text(what, " cannot be captured"), {}, hint);
}

}  // namespace mezzo::cuda
