#include "tests/emulator/streams.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/settings.h"

namespace emulator {

namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

struct Streams {
  std::vector<std::shared_ptr<Stream>> defaults;  // one a device
  std::map<cudaStream_t, std::shared_ptr<Stream>> made;
  std::uint64_t sequence = 0;
  RandomNumbers random{settings().seed | 1};

  Streams() {
    for (int device = 0; device < settings().devices; ++device) {
      defaults.push_back(std::make_shared<Stream>());
      defaults.back()->device = device;
      defaults.back()->is_default = true;
    }
  }
};

/// Never destroyed: static destructors may still call.
Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all = streams().defaults;
  for (const auto& [handle, stream] : streams().made) all.push_back(stream);
  return all;
}

bool run_first(Stream& stream);

void run_until(Stream& stream, std::uint64_t sequence) {
  if (stream.queue.empty() || stream.queue.front().sequence > sequence) return;
  const DeviceAccess access(stream.device);  // once for all that runs now
  while (!stream.queue.empty() && stream.queue.front().sequence <= sequence) {
    if (!run_first(stream)) return;
  }
}

/// What was queued before on the streams with which this one is ordered.
void run_dependencies(Stream& stream, const Work& work) {
  if (stream.is_default) {
    for (const auto& other : all_streams()) {
      if (other->blocking && other->device == stream.device && !other->is_default) {
        run_until(*other, work.sequence - 1);
      }
    }
  } else if (stream.blocking) {
    run_until(*streams().defaults[static_cast<std::size_t>(stream.device)], work.sequence - 1);
  }
  if (work.wait.stream) run_until(*work.wait.stream, work.wait.sequence);
}

bool run_first(Stream& stream) {
  // A dependency has a smaller sequence number, so a stream that is running has nothing that could be needed
  // here.
  if (stream.queue.empty() || stream.running) return false;
  stream.running = true;
  run_dependencies(stream, stream.queue.front());
  const Work work = std::move(stream.queue.front());
  if (work.run && sticky_error() == cudaSuccess) {
    const DeviceAccess access(work.device);
    work.run();
  }
  stream.queue.pop_front();
  stream.running = false;
  return true;
}

/// Random mode: runs some of what is queued anywhere.
void run_some() {
  const auto all = all_streams();
  for (std::size_t i = streams().random.below(3); i > 0; --i)
    run_first(*all[streams().random.below(all.size())]);
}

/// Default streams are made when they are first asked for by a thread.
cudaStream_t stream_of_thread() {
  constinit thread_local std::map<int, cudaStream_t>* by_device = nullptr;
  if (!by_device) by_device = new std::map<int, cudaStream_t>;
  cudaStream_t& handle = (*by_device)[current_device()];
  if (!handle) handle = make_stream(current_device(), true);
  return handle;
}

}  // namespace

bool Mark::reached() const {
  return !stream || stream->queue.empty() || stream->queue.front().sequence > sequence;
}

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return streams().defaults[static_cast<std::size_t>(current_device())];
  }
  if (handle == cudaStreamPerThread) handle = stream_of_thread();
  const auto found = streams().made.find(handle);
  return found != streams().made.end() ? found->second : nullptr;
}

cudaStream_t make_stream(int device, bool blocking) {
  const std::lock_guard lock(runtime_mutex());
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->blocking = blocking;
  const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
  streams().made[handle] = std::move(stream);
  return handle;
}

void forget_stream(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  streams().made.erase(handle);
}

cudaError_t append(const std::shared_ptr<Stream>& stream, Work work) {
  const std::lock_guard lock(runtime_mutex());
  if (sticky_error() != cudaSuccess) return result();
  if (stream->is_default && blocking_capture_on(stream->device)) {
    invalidate_captures_on(stream->device);
    return refuse(cudaErrorStreamCaptureImplicit,
                  "the default stream is used while a blocking stream is captured");
  }
  if (stream->capture) return result(add_to_capture(*stream->capture, std::move(work)));
  work.sequence = ++streams().sequence;
  stream->queue.push_back(std::move(work));
  if (settings().streams == Settings::Streams::eager) run_until(*stream, kAll);
  if (settings().streams == Settings::Streams::random) run_some();
  return result();
}

cudaError_t enqueue(cudaStream_t handle, std::function<void()> run) {
  const std::lock_guard lock(runtime_mutex());
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  if (stream->device != current_device()) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "the stream belongs to device " + std::to_string(stream->device) + ", current is device " +
                      std::to_string(current_device()));
  }
  return append(stream, {std::move(run), stream->device, {}, 0});
}

Mark mark_of(const std::shared_ptr<Stream>& stream) {
  return {stream, stream->queue.empty() ? 0 : stream->queue.back().sequence};
}

void finish(const Mark& mark) {
  if (mark.stream) run_until(*mark.stream, mark.sequence);
}

void finish(const std::shared_ptr<Stream>& stream) { run_until(*stream, kAll); }

void finish_device(int device) {
  for (const auto& stream : all_streams()) {
    if (device == kEveryDevice || stream->device == device) run_until(*stream, kAll);
  }
}

void advance(const std::shared_ptr<Stream>& stream) { run_first(*stream); }

void each_stream(const std::function<void(Stream&)>& visit) {
  for (const auto& stream : all_streams()) visit(*stream);
}

}  // namespace emulator
