// Bytes from one device's memory to another's.
#pragma once

#include <cstddef>

#include "tensor/device.h"

namespace mezzo::cuda {

/// Backend::copy.
void copy_bytes(void* to, const Device& to_device, const void* from, const Device& from_device, size_t bytes);

}  // namespace mezzo::cuda
