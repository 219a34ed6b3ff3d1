// What a wrong call says.
#pragma once

#include <functional>
#include <string>

#include "tensor/error.h"

namespace mezzo {

/// The text of the Error that f throws, "" if it throws none.
inline std::string error_text(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace mezzo
