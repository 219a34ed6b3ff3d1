// What all tests share: the device under test, and how a test says that it cannot run.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tensor/device.h"

namespace mezzo {

/// The device that this run of the suite is about: MEZZO_TEST_DEVICE, "cpu" if it is not set.
inline Device test_device() {
  const char* name = std::getenv("MEZZO_TEST_DEVICE");
  return name ? name : "cpu";
}

/// Says that the running test case cannot run here; the summary then counts it as skipped. The case returns
/// next: `if (...) return skip("no CUDA device");`
inline void skip(std::string_view reason) {
  std::cout << "skipped: " << doctest::getContextOptions()->currentTest->m_name << ": " << reason
            << std::endl;
}

}  // namespace mezzo
