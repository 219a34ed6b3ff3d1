// libFuzzer's target for load_safetensors: any bytes give tensors or an Error, and what was read is written
// and read again as the same. Built by -Dfuzz=true, which needs clang.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tensor/io/safetensors.h"
#include "tensor/kernels.h"
#include "tests/files.h"

using namespace mezzo;

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const size_t bytes = static_cast<size_t>(a.numel()) * size_of(a.dtype());
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (bytes == 0 || std::memcmp(a.view_of_memory().data, b.view_of_memory().data, bytes) == 0);
}

void check(const std::string& content) {
  static const TemporaryPath file;
  write_file(file.path, content);
  Safetensors first;
  try {
    first = load_safetensors(file.path);
  } catch (const Error&) {
    return;
  }
  save_safetensors(file.path, first.tensors, first.metadata);
  const Safetensors second = load_safetensors(file.path);
  const bool same = std::ranges::equal(first.tensors, second.tensors, [](const auto& a, const auto& b) {
    return a.first == b.first && same_bits(a.second, b.second);
  });
  if (!same || first.metadata != second.metadata) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  check(content);
  // The same as a header, up to its last brace, and elements: mutations seldom get the header's length right.
  const uint64_t header_size = content.rfind('}') + 1;
  check(std::string(reinterpret_cast<const char*>(&header_size), sizeof header_size) + content);
  return 0;
}
