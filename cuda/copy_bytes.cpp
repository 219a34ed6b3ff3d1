// Copies between the CPU and a device, through page-locked memory, and between devices, ordered by events.
#include "cuda/copy_bytes.h"

#include <algorithm>
#include <cstring>

#include "cuda/allocator.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "tensor/backend.h"

namespace mezzo::cuda {

namespace {

/// From the CPU: staged, so that the source may change once this returns. The bytes cross the bus while the
/// device still does what was asked for before, to memory of their own there: the next batch arrives during
/// a step, and this thread does not wait for staging memory that stands behind the step's kernels.
void upload(std::byte* to, const std::byte* from, size_t bytes) {
  Context& own = context();
  refuse_in_capture("a copy from the CPU", "make the tensor before the capture");
  const cudaStream_t arrival = upload_stream(own.device());
  for (size_t at = 0; at < bytes; at += Staging::kBytes) {
    const size_t part = std::min(Staging::kBytes, bytes - at);
    void* const staged = own.staging().next();
    std::memcpy(staged, from + at, part);
    const Scratch landed(part, arrival);
    check(cudaMemcpyAsync(landed.data(), staged, part, cudaMemcpyHostToDevice, arrival),
          "a copy to the device");
    own.staging().used_by(arrival);
    Event(arrival).wait_on(own.stream());
    allocator(own.device()).record_stream(landed.data(), own.stream());
    check(cudaMemcpyAsync(to + at, landed.data(), part, cudaMemcpyDeviceToDevice, own.stream()),
          "a copy on the device");
  }
}

/// To the CPU: the one place where the host waits for values.
void download(std::byte* to, const std::byte* from, size_t bytes) {
  Context& own = context();
  refuse_in_capture("reading a value on the CPU", "keep it on the device, and read it after a replay");
  for (size_t at = 0; at < bytes; at += Staging::kBytes) {
    const size_t part = std::min(Staging::kBytes, bytes - at);
    void* const staged = own.staging().next();
    check(cudaMemcpyAsync(staged, from + at, part, cudaMemcpyDeviceToHost, own.stream()),
          "a copy to the CPU");
    check(cudaStreamSynchronize(own.stream()), "the work before a copy to the CPU");
    std::memcpy(to + at, staged, part);
  }
}

/// Between devices: on the source's stream, after what the destination's memory is still used for, and before
/// what comes next there.
void copy_across(void* to, int to_index, const void* from, int from_index, size_t bytes) {
  refuse_in_capture("a copy between devices", "");
  select(to_index);
  const cudaStream_t destination = context().stream();
  const Event written_before(destination);
  select(from_index);
  const cudaStream_t source = context().stream();
  written_before.wait_on(source);
  check(cudaMemcpyPeerAsync(to, to_index, from, from_index, bytes, source), "a copy between devices");
  const Event copied(source);
  select(to_index);
  copied.wait_on(destination);
}

}  // namespace

void copy_bytes(void* to, const Device& to_device, const void* from, const Device& from_device,
                size_t bytes) {
  if (bytes == 0) return;
  if (in_host_memory(from_device)) {
    select(to_device.index);
    upload(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  } else if (in_host_memory(to_device)) {
    select(from_device.index);
    download(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  } else {
    copy_across(to, to_device.index, from, from_device.index, bytes);
  }
}

}  // namespace mezzo::cuda
