// Streams, events, graphs and memory.
#include <cstdint>
#include <thread>

#include "tests/emulator/memory.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/support.h"

using namespace emulator;

namespace {

__global__ void add(float* x, float value) { x[threadIdx.x] += value; }
__global__ void set(float* x, float value) { x[threadIdx.x] = value; }

/// Makes streams lazy while it lives.
class LazyStreams {
 public:
  LazyStreams() : before_(settings().streams) { settings().streams = Settings::Streams::lazy; }
  ~LazyStreams() { settings().streams = before_; }

 private:
  Settings::Streams before_;
};

float* pinned_float(float value) {
  void* memory = nullptr;
  REQUIRE(cudaMallocHost(&memory, sizeof(float)) == cudaSuccess);
  return new (memory) float(value);
}

}  // namespace

TEST_CASE("lazy streams run only what somebody waits for") {
  const LazyStreams lazy;
  const TestStream first, second;
  const DeviceArray<float> x(std::vector<float>{0}), y(std::vector<float>{0});
  float *const a = pinned_float(-1), *const b = pinned_float(-1);
  launch(set, 1, 1, 0, first, x.data(), 1.f);
  launch(set, 1, 1, 0, second, y.data(), 2.f);
  cudaMemcpyAsync(a, x.data(), sizeof *a, cudaMemcpyDeviceToHost, first);
  cudaMemcpyAsync(b, y.data(), sizeof *b, cudaMemcpyDeviceToHost, second);
  CHECK(*a == -1);
  CHECK(cudaStreamSynchronize(first) == cudaSuccess);
  CHECK(*a == 1);
  CHECK(*b == -1);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(*b == 2);
  cudaFreeHost(a);
  cudaFreeHost(b);
}

TEST_CASE("a stream that waits for an event runs what was before it") {
  const LazyStreams lazy;
  const TestStream producer, consumer;
  const DeviceArray<float> x(std::vector<float>{0}), y(std::vector<float>{0});
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  launch(set, 1, 1, 0, producer, x.data(), 1.f);
  CHECK(cudaEventRecord(event, producer) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(consumer, event, 0) == cudaSuccess);
  cudaEventRecord(event, consumer);  // the wait is for what was recorded then, not for this
  launch(set, 1, 1, 0, producer, x.data(), 2.f);
  cudaMemcpyAsync(y.data(), x.data(), sizeof(float), cudaMemcpyDeviceToDevice, consumer);
  cudaStreamSynchronize(consumer);
  float value = 0;
  cudaMemcpyAsync(&value, y.data(), sizeof value, cudaMemcpyDeviceToHost, consumer);
  CHECK(value == 1);
  cudaEventDestroy(event);
}

TEST_CASE("the default stream and blocking streams wait for each other") {
  const LazyStreams lazy;
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  const DeviceArray<float> x(std::vector<float>{0});
  launch(set, 1, 1, 0, blocking, x.data(), 1.f);
  launch(add, 1, 1, 0, nullptr, x.data(), 10.f);
  launch(add, 1, 1, 0, blocking, x.data(), 100.f);
  float value = 0;
  cudaMemcpy(&value, x.data(), sizeof value, cudaMemcpyDeviceToHost);
  CHECK(value == 111);
  cudaStreamDestroy(blocking);
}

TEST_CASE("asking whether an event has come makes it come") {
  const LazyStreams lazy;
  const TestStream stream;
  const DeviceArray<float> x(std::vector<float>{0});
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  CHECK(cudaEventQuery(begin) == cudaSuccess);  // never recorded
  cudaEventRecord(begin, stream);
  for (int i = 0; i < 3; ++i) launch(add, 1, 1, 0, stream, x.data(), 1.f);
  cudaEventRecord(end, stream);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
  int queries = 0;
  while (cudaEventQuery(end) == cudaErrorNotReady) ++queries;
  CHECK(queries < 6);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  CHECK(milliseconds >= 0);
  CHECK(x.values()[0] == 3);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  CHECK(cudaEventQuery(end) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("pageable memory is copied before the call returns") {
  const LazyStreams lazy;
  const TestStream stream;
  const DeviceArray<float> x(1);
  float value = 1;
  cudaMemcpyAsync(x.data(), &value, sizeof value, cudaMemcpyHostToDevice, stream);
  value = 2;
  CHECK(x.values()[0] == 1);
}

TEST_CASE("a graph replays what a stream was given, with the arguments of then") {
  const TestStream stream;
  const DeviceArray<float> x(std::vector<float>{0});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCaptureStatus status{};
  float step = 1;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  launch(add, 1, 1, 0, stream, x.data(), step);
  step = 100;
  launch(add, 1, 1, 0, stream, x.data(), 10.f);
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(x.values()[0] == 0);
  CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(x.values()[0] == 33);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("what a capture forbids depends on its mode, the thread and the thread's mode") {
  const TestStream stream;
  cudaGraph_t graph = nullptr;
  void* memory = nullptr;
  SUBCASE("own thread") {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    CHECK(cudaMalloc(&memory, 4) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    return;
  }
  SUBCASE("relaxed thread") {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    CHECK(mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
    cudaThreadExchangeStreamCaptureMode(&mode);
  }
  SUBCASE("other thread, captured thread-locally") {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    std::thread([&] { CHECK(cudaMalloc(&memory, 4) == cudaSuccess); }).join();
  }
  SUBCASE("other thread, captured globally") {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    std::thread([&] { CHECK(cudaMalloc(&memory, 4) == cudaErrorStreamCaptureUnsupported); }).join();
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    return;
  }
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("memory runs out where it is told to, and comes back") {
  std::size_t available = 0, total = 0;
  CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess);
  CHECK(total == settings().memory_mib << 20);
  void *most = nullptr, *more = nullptr;
  const std::size_t half = available / 2;
  CHECK(cudaMalloc(&most, half) == cudaSuccess);
  CHECK(cudaMalloc(&more, half + 4096) == cudaErrorMemoryAllocation);
  CHECK(more == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaFree(most) == cudaSuccess);
  std::size_t again = 0;
  CHECK(cudaMemGetInfo(&again, &total) == cudaSuccess);
  CHECK(again == available);
}

TEST_CASE("freed memory is joined and used again") {
  constexpr std::size_t kBlock = std::size_t{1} << 20, kBlocks = 32;
  std::vector<void*> blocks(kBlocks);
  for (int round = 0; round < 12; ++round) {  // more in all than there are addresses
    for (void*& block : blocks) REQUIRE(cudaMalloc(&block, kBlock) == cudaSuccess);
    for (void* const block : blocks) REQUIRE(cudaFree(block) == cudaSuccess);
    void* large = nullptr;
    REQUIRE(cudaMalloc(&large, kBlock * kBlocks) == cudaSuccess);
    REQUIRE(cudaFree(large) == cudaSuccess);
  }
}

TEST_CASE("pointers tell where they point") {
  const DeviceArray<float> x(4);
  float* const pinned = pinned_float(1);
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, x.data() + 1) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaPointerGetAttributes(&attributes, &attributes) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("a device says what it is") {
  cudaDeviceProp properties{};
  int value = 0;
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.major * 10 + properties.minor == settings().architecture);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  CHECK(value == properties.major);
  CHECK(cudaSetDevice(settings().devices) == cudaErrorInvalidDevice);
}
