#include "tests/emulator/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/emulator/sanitizers.h"

namespace emulator {

namespace {

constexpr std::size_t kMappingBytes = std::size_t{1} << 20;
constexpr std::size_t kGap = 128;  // before and after each variable
constexpr std::size_t kAlignment = 128;
constexpr int kNotWritten = 0xff;  // NaN in every float type, -1 in the others
constexpr unsigned char kGapByte = 0xfd;

}  // namespace

SharedMemory::SharedMemory() {
  void* const memory = mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  sanitizers::poison(memory_, kMappingBytes);
}

SharedMemory::~SharedMemory() {
  sanitizers::unpoison(memory_, kMappingBytes);
  munmap(memory_, kMappingBytes);
}

char* SharedMemory::take(const void* key, std::size_t bytes) {
  const std::size_t begin = (used_ + kGap + kAlignment - 1) / kAlignment * kAlignment, end = begin + bytes;
  if (end + kGap > kMappingBytes) return nullptr;
  char* const made = memory_ + begin;
  if (!sanitizers::kAddress) {
    std::memset(memory_ + used_, kGapByte, begin - used_);
    std::memset(memory_ + end, kGapByte, kGap);
  }
  sanitizers::unpoison(made, bytes);
  std::memset(made, kNotWritten, bytes);
  used_ = end;
  const auto address = reinterpret_cast<std::uintptr_t>(made);
  variables_.push_back({key, {address, address + bytes}});
  return made;
}

void SharedMemory::start(std::size_t dynamic_bytes) {
  dynamic_ = dynamic_bytes ? take(nullptr, dynamic_bytes) : nullptr;
}

void* SharedMemory::find(const void* key) const {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return reinterpret_cast<void*>(variable.range.low);
  }
  return nullptr;
}

void* SharedMemory::make(const void* key, std::size_t bytes) {
  if (static_bytes_ + bytes > kSharedBytes) return nullptr;
  static_bytes_ += bytes;
  return take(key, bytes);
}

bool SharedMemory::finish() {
  bool intact = true;
  if (!sanitizers::kAddress) {
    std::size_t gap = 0;  // where the gap before the next variable begins
    const auto untouched = [&](std::size_t end) {
      return std::all_of(memory_ + gap, memory_ + end,
                         [](char byte) { return static_cast<unsigned char>(byte) == kGapByte; });
    };
    for (const Variable& variable : variables_) {
      intact = intact && untouched(variable.range.low - reinterpret_cast<std::uintptr_t>(memory_));
      gap = variable.range.high - reinterpret_cast<std::uintptr_t>(memory_);
    }
    if (!variables_.empty()) intact = intact && untouched(gap + kGap);
  }
  sanitizers::poison(memory_, used_);
  variables_.clear();
  used_ = static_bytes_ = 0;
  return intact;
}

Range SharedMemory::mapping() const {
  const auto low = reinterpret_cast<std::uintptr_t>(memory_);
  return {low, low + kMappingBytes};
}

Range SharedMemory::variable_at(std::uintptr_t address) const {
  for (const Variable& variable : variables_) {
    if (variable.range.contains(address)) return variable.range;
  }
  return {};
}

}  // namespace emulator
