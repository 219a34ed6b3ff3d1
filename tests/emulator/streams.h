// Streams: queues of work that runs as early or as late as the settings say.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace emulator {

struct Capture;
struct Stream;

/// What a stream has queued up to a point. An event is one, and so is what a stream waits for.
struct Mark {
  std::shared_ptr<Stream> stream;  ///< null: nothing was recorded
  std::uint64_t sequence = 0;

  bool reached() const;
};

/// An entry of a queue: a function to run, or a mark to wait for.
struct Work {
  std::function<void()> run;
  int device = 0;  ///< whose memory `run` may touch, or kEveryDevice
  Mark wait;
  std::uint64_t sequence = 0;  ///< counts all work of the program; set when it is queued
};

struct Stream {
  int device = 0;
  bool is_default = false;  ///< the legacy default stream of its device
  bool blocking = true;     ///< ordered with the default stream
  bool running = false;     ///< its first entry is about to run
  std::deque<Work> queue;
  std::shared_ptr<Capture> capture;
};

/// The stream of a handle, null if there is none; of the current device for a default stream.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);
cudaStream_t make_stream(int device, bool blocking);
void forget_stream(cudaStream_t handle);

/// Appends work to a stream or to the capture that goes on in it; runs it if streams are eager.
cudaError_t append(const std::shared_ptr<Stream>& stream, Work work);
/// The same for a caller outside the runtime. The stream must be one of the current device.
cudaError_t enqueue(cudaStream_t handle, std::function<void()> run);

/// The end of what is queued now.
Mark mark_of(const std::shared_ptr<Stream>& stream);

/// Runs what a stream has queued, up to a mark, and what that depends on.
void finish(const Mark& mark);
void finish(const std::shared_ptr<Stream>& stream);
/// Everything on a device, or on kEveryDevice.
void finish_device(int device);
/// Runs the first entry of a stream: somebody asks whether it is done, and it is to be done at some time.
void advance(const std::shared_ptr<Stream>& stream);

/// Calls `visit` with every stream.
void each_stream(const std::function<void(Stream&)>& visit);

}  // namespace emulator
