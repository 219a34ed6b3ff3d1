// Where something was called.
#pragma once

namespace emulator {

/// File and line of a call, taken by a default argument `Location at = Location::here()`. In place of
/// std::source_location, which clang 14 has not.
struct Location {
  const char* file = "";
  int line = 0;

  static constexpr Location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace emulator
