// Files of named tensors in the safetensors format, which Python's package of that name reads and writes too.
#pragma once

#include <map>
#include <string>

#include "tensor/state_dict.h"

namespace mezzo {

/// Texts that a file carries beside its tensors.
using Metadata = std::map<std::string, std::string>;

/// What a file holds: `const auto [tensors, metadata] = load_safetensors(path);`
struct Safetensors {
  StateDict tensors;
  Metadata metadata;
};

/// Writes tensors of any layout and device, row-major. A file that is there already is replaced once the new
/// one is complete; on Error (a name that is not UTF-8, a path that cannot be written) it stays as it is.
void save_safetensors(const std::string& path, const StateDict& tensors, const Metadata& metadata = {});

/// Reads a file into new tensors in the CPU's memory, in the order of its header. Throws Error for anything
/// that the format does not allow, and for a dtype that mezzo does not have.
Safetensors load_safetensors(const std::string& path);

}  // namespace mezzo
