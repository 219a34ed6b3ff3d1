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

/// Whether memory of the device under test is kept for reuse, as it is unless a checker is to see each block.
inline bool caches_memory() {
  const char* setting = std::getenv("MEZZO_CUDA_CACHE");
  return test_device().type != Device::Type::cuda || !setting || std::string_view(setting) != "0";
}

/// Seed of random inputs: MEZZO_TEST_SEED, or 1, so that a gate does not fail by chance. Tests capture it.
inline unsigned test_seed() {
  const char* text = std::getenv("MEZZO_TEST_SEED");
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 1;
}

/// Says that the running test case cannot run here; the summary then counts it as skipped. The case returns
/// next: `if (...) return skip("no CUDA device");`
inline void skip(std::string_view reason) {
  std::cout << "skipped: " << doctest::getContextOptions()->currentTest->m_name << ": " << reason
            << std::endl;
}

}  // namespace mezzo
