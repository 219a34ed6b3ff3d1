#define DOCTEST_CONFIG_IMPLEMENT
#include <iostream>

#include "tensor/backend.h"
#include "tensor/cuda_settings.h"
#include "tests/support.h"

// A test asks for more memory than there is, and sanitizers would end the program instead of telling it.
extern "C" {
const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
}

int main(int argc, char** argv) {
  if (const std::string absence = mezzo::absence_of(mezzo::test_device()); !absence.empty()) {
    std::cout << "skipped: " << absence << '\n';
    return 77;  // which meson counts as skipped
  }
  mezzo::cuda::allow_tf32_convolution(false);  // tolerances are float32's
  return doctest::Context(argc, argv).run();
}
