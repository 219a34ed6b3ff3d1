#include "tensor/backend.h"

#include "tensor/error.h"

namespace mezzo {

namespace {

/// Makes the backend when the first tensor asks for it: a program starts without looking for a device.
const Backend* (*make_cuda)() = nullptr;

const Backend* cuda_backend() {
  static const Backend* const backend = make_cuda ? make_cuda() : nullptr;
  return backend;
}

}  // namespace

void register_cuda(const Backend* (*make)()) { make_cuda = make; }

const Backend& backend(const Device& device) {
  const Backend* const found = cuda_backend();
  if (!found)
    fail(to_string(device), "this build has no CUDA", {}, "devices of this build are cpu and reference");
  if (found->count == 0)
    fail(to_string(device), text("there is no CUDA device: ", found->absence), {},
         "the devices cpu and reference are always there");
  if (device.index >= found->count)
    fail(to_string(device),
         text("this machine has ", found->count, " CUDA device", found->count > 1 ? "s" : ""), {},
         text("the last is ", to_string(Device(Device::Type::cuda, found->count - 1))));
  return *found;
}

int device_count(Device::Type type) {
  if (type != Device::Type::cuda) return 1;
  const Backend* const found = cuda_backend();
  return found ? found->count : 0;
}

void synchronize(const Device& device) {
  if (!in_host_memory(device)) backend(device).synchronize(device.index);
}

}  // namespace mezzo
