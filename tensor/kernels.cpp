#include "tensor/kernels.h"

#include "tensor/backend.h"
#include "tensor/cpu_check.h"

namespace mezzo {

const Kernels& kernels(const Device& device) {
  switch (device.type) {
    case Device::Type::cpu: {
      static const Kernels table = [] {
        check_cpu();
        return make_cpu_kernels();
      }();
      return table;
    }
    case Device::Type::reference: {
      static const Kernels table = make_reference_kernels();
      return table;
    }
    case Device::Type::cuda:
      break;
  }
  const Backend& found = backend(device);
  found.select(device.index);
  return found.kernels;
}

}  // namespace mezzo
