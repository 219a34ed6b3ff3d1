// Capture of a stream's work into a graph. One stream at a time goes into a capture; forks into others are
// refused.
#pragma once

#include <driver_types.h>

#include <thread>
#include <vector>

#include "tests/emulator/streams.h"

namespace emulator {

struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id owner;  ///< the thread that began it
  bool valid = true;
  std::vector<Work> work;
};

cudaStreamCaptureStatus status_of(const Stream& stream);
cudaError_t add_to_capture(Capture& capture, Work work);

/// Whether a call that a capture forbids (allocating, waiting for a device) is made while one goes on that
/// the calling thread has to respect. If so, these captures fail.
bool forbidden_by_capture();

/// Whether a stream of the device is captured that is ordered with its default stream.
bool blocking_capture_on(int device);
/// Whether any stream of the device is captured.
bool capture_on(int device);
void invalidate_captures_on(int device);

}  // namespace emulator
