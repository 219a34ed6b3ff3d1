#include "tensor/kernels.h"

#include "tensor/cpu_check.h"
#include "tensor/error.h"

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
  fail(to_string(device), "this build has no CUDA", {}, "devices of this build are cpu and reference");
}

}  // namespace mezzo
