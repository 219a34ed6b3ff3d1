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

std::string absence_of(const Device& device) {
  if (in_host_memory(device)) return {};
  const Backend* const found = cuda_backend();
  if (!found) return "this build has no CUDA";
  if (found->count == 0) return "there is no CUDA device: " + found->absence;
  if (device.index < found->count) return {};
  return text("the last CUDA device is ", to_string(Device(Device::Type::cuda, found->count - 1)));
}

const Backend& backend(const Device& device) {
  const Backend* const found = cuda_backend();
  if (!found || device.index >= found->count)
    fail(to_string(device), absence_of(device), {}, "the devices cpu and reference are always there");
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
