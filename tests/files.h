// Files that a test makes.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include "tensor/error.h"

namespace mezzo {

/// A path in a new folder of its own, which goes with what is in it.
struct TemporaryPath {
  TemporaryPath() { std::filesystem::create_directories(folder); }
  ~TemporaryPath() { std::filesystem::remove_all(folder); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / text("mezzo-", std::random_device()(), std::random_device()());
  const std::string path = folder / "file";
};

inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace mezzo
