// Streams and events.
#include <cuda_runtime_api.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>

#include "tests/emulator/capture.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/streams.h"

using namespace emulator;

using Time = std::chrono::steady_clock::time_point;

/// What a cudaEvent_t points to.
struct CUevent_st {
  int device = 0;
  bool timed = true;
  bool recorded = false;
  Mark mark;
  std::shared_ptr<Time> when;        ///< set when the work before the mark has run
  std::shared_ptr<Capture> capture;  ///< into which it was recorded last, if into one
};

namespace {

std::set<cudaEvent_t>& events() {
  static auto* const all = new std::set<cudaEvent_t>;
  return *all;
}

cudaError_t no_stream() { return refuse(cudaErrorInvalidResourceHandle, "there is no such stream"); }
cudaError_t no_event() { return refuse(cudaErrorInvalidResourceHandle, "there is no such event"); }

cudaError_t captured(Stream& stream, const char* call) {
  stream.capture->valid = false;
  return refuse(cudaErrorStreamCaptureUnsupported, std::string(call) + " on a stream that is captured");
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = make_stream(current_device(), !(flags & cudaStreamNonBlocking));
  return result();
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream || stream->is_default) return no_stream();
  finish(stream);  // a card would go on with it and return at once; nobody can tell
  forget_stream(handle);
  return result();
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return no_stream();
  if (stream->capture) return captured(*stream, "cudaStreamSynchronize()");
  finish(stream);
  return result();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return no_stream();
  if (stream->capture) return captured(*stream, "cudaStreamQuery()");
  if (stream->queue.empty()) return result();
  advance(stream);
  return cudaErrorNotReady;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return no_stream();
  *flags = stream->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return result();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return no_stream();
  if (!events().count(event)) return no_event();
  if (event->capture && event->capture == stream->capture) return result();  // ordered already
  if (event->capture && event->capture->valid) {
    event->capture->valid = false;
    return refuse(cudaErrorStreamCaptureUnsupported,
                  "the emulator captures one stream, not forks into others");
  }
  if (stream->capture && event->recorded) {
    stream->capture->valid = false;
    return refuse(cudaErrorStreamCaptureIsolation,
                  "a captured stream waits for an event from outside the capture");
  }
  return append(stream, {nullptr, stream->device, event->mark, 0});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return enqueue(handle, [=] { function(argument); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const std::lock_guard lock(runtime_mutex());
  *event = new CUevent_st{};
  (*event)->device = current_device();
  (*event)->timed = !(flags & cudaEventDisableTiming);
  events().insert(*event);
  return result();
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(runtime_mutex());
  if (!events().erase(event)) return no_event();
  delete event;
  return result();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const std::lock_guard lock(runtime_mutex());
  const auto stream = find_stream(handle);
  if (!stream) return no_stream();
  if (!events().count(event)) return no_event();
  if (event->device != stream->device) {
    return refuse(cudaErrorInvalidResourceHandle, "an event of device " + std::to_string(event->device) +
                                                      " is recorded on a stream of device " +
                                                      std::to_string(stream->device));
  }
  event->capture = stream->capture;
  if (stream->capture) return result();
  event->recorded = true;
  event->when = std::make_shared<Time>();
  const auto note_time = [when = event->when] { *when = std::chrono::steady_clock::now(); };
  const cudaError_t code = append(stream, {note_time, stream->device, {}, 0});
  event->mark = mark_of(stream);
  return code;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(runtime_mutex());
  if (!events().count(event)) return no_event();
  if (event->capture)
    return refuse(cudaErrorCapturedEvent, "wait for an event that was recorded in a capture");
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaEventSynchronize() while a stream is captured");
  }
  finish(event->mark);
  return result();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(runtime_mutex());
  if (!events().count(event)) return no_event();
  if (event->capture)
    return refuse(cudaErrorCapturedEvent, "query of an event that was recorded in a capture");
  if (forbidden_by_capture()) {
    return refuse(cudaErrorStreamCaptureUnsupported, "cudaEventQuery() while a stream is captured");
  }
  if (event->mark.reached()) return result();
  advance(event->mark.stream);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(runtime_mutex());
  if (!events().count(begin) || !events().count(end)) return no_event();
  if (!begin->recorded || !end->recorded || !begin->timed || !end->timed) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "time between events that were not recorded or are not timed");
  }
  if (!begin->mark.reached() || !end->mark.reached()) return result(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(*end->when - *begin->when).count();
  return result();
}

}  // extern "C"
