// libFuzzer's target for load_safetensors: any bytes give an Error, or tensors that make up the whole file
// and are the same once written and read again. Built by -Dfuzz=true, which needs clang.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tensor/io/safetensors.h"
#include "tensor/kernels.h"
#include "tests/files.h"

using namespace mezzo;

namespace {

std::string_view bytes_of(const Tensor& x) {
  return {static_cast<const char*>(x.view_of_memory().data),
          static_cast<size_t>(x.numel()) * size_of(x.dtype())};
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bytes_of(a) == bytes_of(b);
}

void require(bool holds) {
  if (!holds) std::abort();
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
  uint64_t bytes = 0;
  std::memcpy(&bytes, content.data(), sizeof bytes);
  bytes += sizeof bytes;
  for (const auto& [name, tensor] : first.tensors) bytes += bytes_of(tensor).size();
  require(bytes == content.size());

  save_safetensors(file.path, first.tensors, first.metadata);
  const Safetensors second = load_safetensors(file.path);
  require(first.metadata == second.metadata);
  require(std::ranges::equal(first.tensors, second.tensors, [](const auto& a, const auto& b) {
    return a.first == b.first && same(a.second, b.second);
  }));
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
