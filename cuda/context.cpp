// Devices, streams, handles and staging memory: made at their first use, by each thread for itself but for
// the main streams.
#include "cuda/context.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "cuda/allocator.h"
#include "cuda/check.h"
#include "tensor/error.h"

namespace mezzo::cuda {

namespace {

thread_local int current_device = 0;
thread_local std::vector<std::unique_ptr<Context>> contexts;  // of the thread, by device

/// cuBLAS's own default is what PyTorch found too small to be reproducible; NVIDIA's manual names 32 MiB for
/// Hopper and 4 MiB for the cards before it.
size_t blas_workspace_bytes(const Card& card) { return size_t{card.capability >= 90 ? 32u : 4u} << 20; }

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "asking for the device");
  return value;
}

std::string version(int number) { return text(number / 1000, '.', number % 1000 / 10); }

/// What `status`, of the search for devices, means. Without any driver CUDA speaks of one that is too old.
std::string why_none(cudaError_t status) {
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "the driver finds none";
  if (status != cudaErrorInsufficientDriver) return cudaGetErrorString(status);
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) return "no NVIDIA driver is installed";
  return text("the driver is for CUDA ", version(driver), ", and this build needs ", version(runtime));
}

}  // namespace

const Devices& devices() {
  static const Devices found = [] {
    Devices result;
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
      static_cast<void>(cudaGetLastError());
      result.absence = why_none(status);
      return result;
    }
    for (int i = 0; i < count; ++i) {
      result.cards.push_back({10 * attribute(cudaDevAttrComputeCapabilityMajor, i) +
                                  attribute(cudaDevAttrComputeCapabilityMinor, i),
                              attribute(cudaDevAttrMultiProcessorCount, i)});
    }
    return result;
  }();
  return found;
}

Staging::~Staging() {
  for (cudaEvent_t event : events_) {
    if (!event) continue;
    cudaEventSynchronize(event);  // the copy out of the half
    cudaEventDestroy(event);
  }
  for (void* half : halves_) {
    if (half) cudaFreeHost(half);
  }
}

void* Staging::next() {
  current_ = 1 - current_;
  void*& half = halves_[current_];
  cudaEvent_t& event = events_[current_];
  if (!event) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  if (!half) check(cudaMallocHost(&half, kBytes), "allocating page-locked memory");
  check(cudaEventSynchronize(event), "waiting for a copy");
  return half;
}

void Staging::used_by(cudaStream_t stream) {
  check(cudaEventRecord(events_[current_], stream), "recording an event");
}

Context::~Context() {
  if (blas_) cublasDestroy(blas_);
  if (dnn_) cudnnDestroy(dnn_);
  if (workspace_) allocator(device_).release(workspace_);
}

cudaStream_t Context::stream() { return stream_ ? stream_ : main_stream(device_); }

cublasHandle_t Context::blas() {
  const cudaStream_t now = stream();
  if (!blas_) {
    check(cublasCreate(&blas_), "starting cuBLAS");
    // Sums of 16-bit products stay in float32 also where they are cut in parts.
    check(cublasSetMathMode(blas_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "setting up cuBLAS");
  }
  if (blas_stream_ != now) {
    // Setting the stream takes the workspace away, and one belongs to a stream as other memory does.
    check(cublasSetStream(blas_, now), "giving cuBLAS a stream");
    if (void* const old = std::exchange(workspace_, nullptr)) allocator(device_).release(old);
    const size_t bytes = blas_workspace_bytes(card());
    workspace_ = allocator(device_).allocate(bytes, now);
    check(cublasSetWorkspace(blas_, workspace_, bytes), "giving cuBLAS a workspace");
    blas_stream_ = now;
  }
  return blas_;
}

cudnnHandle_t Context::dnn() {
  const cudaStream_t now = stream();
  if (!dnn_) check(cudnnCreate(&dnn_), "starting cuDNN");
  if (dnn_stream_ != now) {
    check(cudnnSetStream(dnn_, now), "giving cuDNN a stream");
    dnn_stream_ = now;
  }
  return dnn_;
}

Context& context() {
  const auto device = static_cast<size_t>(current_device);
  if (contexts.size() <= device) contexts.resize(device + 1);
  if (!contexts[device]) contexts[device] = std::make_unique<Context>(current_device);
  return *contexts[device];
}

void select(int device) {
  if (device == current_device) return;
  check(cudaSetDevice(device), "selecting a device");
  current_device = device;
}

DeviceGuard::DeviceGuard(int device) : outer_(current_device) { select(device); }
DeviceGuard::~DeviceGuard() {
  if (outer_ == current_device) return;
  static_cast<void>(cudaSetDevice(outer_));  // which may speak of earlier work
  current_device = outer_;
}

namespace {

/// Of a device, for all threads.
struct SharedStreams {
  cudaStream_t main = nullptr, uploads = nullptr;
};

const SharedStreams& shared_streams(int device) {
  struct Made : SharedStreams {
    std::once_flag once;
  };
  // Never destroyed: threads may outlive main.
  static auto* const streams = new std::vector<Made>(devices().cards.size());
  Made& made = (*streams)[static_cast<size_t>(device)];
  // At the device's first use: a stream takes a good deal of its memory. Not the default stream, which would
  // wait for all others.
  std::call_once(made.once, [&] {
    const DeviceGuard guard(device);
    for (cudaStream_t* stream : {&made.main, &made.uploads})
      check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
  });
  return made;
}

}  // namespace

cudaStream_t main_stream(int device) { return shared_streams(device).main; }
cudaStream_t upload_stream(int device) { return shared_streams(device).uploads; }

StreamGuard::StreamGuard(cudaStream_t stream)
    : context_(context()), outer_(context_.exchange_stream(stream)) {}
StreamGuard::~StreamGuard() { context_.exchange_stream(outer_); }

Scratch::Scratch(size_t bytes, cudaStream_t stream)
    : device_(context().device()), data_(allocator(device_).allocate(bytes, stream)) {}
Scratch::~Scratch() { allocator(device_).release(data_); }

void finish_launch(cudaError_t status, cudaStream_t stream) {
  static const bool synchronous = [] {
    const char* const setting = std::getenv("MEZZO_CUDA_SYNCHRONIZE");
    return setting && std::string_view(setting) != "0";
  }();
  check(status, "launching a kernel");
  if (!synchronous) return;
  cudaStreamCaptureStatus capture{};
  check(cudaStreamIsCapturing(stream, &capture), "asking for a capture");
  if (capture == cudaStreamCaptureStatusNone) check(cudaStreamSynchronize(stream), "a kernel");
}

}  // namespace mezzo::cuda
