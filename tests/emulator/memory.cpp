#include "tests/emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "tests/emulator/errors.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/sanitizers.h"
#include "tests/emulator/settings.h"

namespace emulator {

namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kGap = 512;                         // after each allocation, at least
constexpr std::size_t kLargePage = std::size_t{2} << 20;  // protection changes for whole large pages
constexpr int kNotWritten = 0xff;                         // NaN in every float type, -1 in the others
constexpr unsigned char kGapByte = 0xfd;

constexpr std::size_t round_up(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Memory of one device: addresses that are reserved once and given out and taken back.
class Arena {
 public:
  explicit Arena(std::size_t bytes) : limit_(bytes), reserved_(2 * bytes + (std::size_t{256} << 20)) {
    // Twice and more of what can be allocated, so that freed addresses need not come back soon.
    void* const memory =
        mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, reserved_, MADV_HUGEPAGE);
    madvise(memory, reserved_, MADV_DONTDUMP);
    base_ = address_of(memory);
    top_ = base_ + kGap;
  }

  Range addresses() const { return {base_, base_ + reserved_}; }
  MemoryUse use() const { return {used_, limit_}; }

  void* allocate(std::size_t bytes) {
    const std::size_t span = round_up(bytes + kGap, kAlignment);
    if (used_ + span > limit_) return nullptr;
    const std::uintptr_t address = take(span);
    if (!address) return nullptr;
    auto* const memory = reinterpret_cast<char*>(address);
    if (!sanitizers::kAddress) std::memset(memory + bytes, kGapByte, span - bytes);
    sanitizers::unpoison(memory, bytes);
    std::memset(memory, kNotWritten, bytes);
    live_[address] = {bytes, span};
    used_ += span;
    return memory;
  }

  bool release(void* memory) {
    const auto found = live_.find(address_of(memory));
    if (found == live_.end()) return false;
    const auto [bytes, span] = found->second;
    check_gap(found->first, found->second);
    std::memset(memory, kNotWritten, bytes);
    sanitizers::poison(memory, span);
    used_ -= span;
    give_back(found->first, span);
    live_.erase(found);
    return true;
  }

  void check_gaps() const {
    for (const auto& [address, allocation] : live_) check_gap(address, allocation);
  }

  Range allocation_at(std::uintptr_t address) const {
    auto found = live_.upper_bound(address);
    if (found == live_.begin()) return {};
    --found;
    const Range range{found->first, found->first + found->second.bytes};
    return range.contains(address) ? range : Range{};
  }

  void open() {
    if (open_++ == 0 && settings().protect) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--open_ == 0 && settings().protect) protect(PROT_NONE);
  }

 private:
  struct Allocation {
    std::size_t bytes, span;
  };

  /// An unused span: a freed one that fits best, or a new one. 0: none.
  std::uintptr_t take(std::size_t span) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= span && (best == free_.end() || it->second < best->second)) best = it;
    }
    const bool fresh = top_ + span + kGap <= base_ + reserved_;
    // A much larger one is left alone while there is fresh memory.
    if (best != free_.end() && (!fresh || best->second <= 2 * span)) {
      const auto [address, bytes] = *best;
      free_.erase(best);
      if (bytes > span) free_[address + span] = bytes - span;
      return address;
    }
    if (!fresh) return 0;
    const std::uintptr_t address = top_;
    top_ += span;
    protect(PROT_READ | PROT_WRITE);
    sanitizers::poison(reinterpret_cast<void*>(address), span);
    return address;
  }

  void give_back(std::uintptr_t address, std::size_t span) {
    auto after = free_.lower_bound(address);
    if (after != free_.end() && address + span == after->first) {
      span += after->second;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == address) {
        before->second += span;
        return;
      }
    }
    free_[address] = span;
  }

  static void check_gap(std::uintptr_t address, const Allocation& allocation) {
    if (sanitizers::kAddress) return;  // which has seen it already
    const auto* const bytes = reinterpret_cast<const unsigned char*>(address);
    const auto* const end = bytes + allocation.span;
    const auto* const wrong =
        std::find_if(bytes + allocation.bytes, end, [](unsigned char b) { return b != kGapByte; });
    if (wrong == end) return;
    device_error(
        cudaErrorIllegalAddress,
        "something wrote " + std::to_string(wrong - bytes - static_cast<std::ptrdiff_t>(allocation.bytes)) +
            " bytes past the end of a device allocation of " + std::to_string(allocation.bytes) + " bytes");
  }

  void protect(int access) {
    const std::size_t bytes = std::min(round_up(top_ - base_, kLargePage), reserved_);
    mprotect(reinterpret_cast<void*>(base_), bytes, access);
  }

  std::size_t limit_, reserved_;
  std::uintptr_t base_ = 0, top_ = 0;  // unused from top_ on
  std::map<std::uintptr_t, Allocation> live_;
  std::map<std::uintptr_t, std::size_t> free_;
  std::size_t used_ = 0;
  int open_ = 0;
};

/// By device. Never destroyed: a signal handler and static destructors may ask.
std::vector<std::unique_ptr<Arena>>& arenas() {
  static auto* const made = [] {
    auto* const all = new std::vector<std::unique_ptr<Arena>>;
    for (int i = 0; i < settings().devices; ++i)
      all->push_back(std::make_unique<Arena>(settings().memory_mib << 20));
    return all;
  }();
  return *made;
}

Arena& arena(int device) { return *arenas()[static_cast<std::size_t>(device)]; }

std::map<std::uintptr_t, std::size_t>& pinned() {
  static auto* const ranges = new std::map<std::uintptr_t, std::size_t>;
  return *ranges;
}

/// For each device that `device` stands for.
template <class Function>
void each(int device, Function function) {
  for (int i = 0; i < settings().devices; ++i) {
    if (device == i || device == kEveryDevice) function(arena(i));
  }
}

}  // namespace

void* allocate(int device, std::size_t bytes) {
  const std::lock_guard lock(runtime_mutex());
  const DeviceAccess access(device);
  return arena(device).allocate(bytes);
}

bool release(void* memory) {
  const std::lock_guard lock(runtime_mutex());
  const int device = device_of(memory);
  if (device == kNoDevice) return false;
  const DeviceAccess access(device);
  return arena(device).release(memory);
}

void check_gaps() {
  const std::lock_guard lock(runtime_mutex());
  const DeviceAccess access(kEveryDevice);
  each(kEveryDevice, [](const Arena& all) { all.check_gaps(); });
}

int device_of(const void* address) {
  for (int device = 0; device < settings().devices; ++device) {
    if (arena(device).addresses().contains(address_of(address))) return device;
  }
  return kNoDevice;
}

Range allocation_at(std::uintptr_t address) {
  const int device = device_of(reinterpret_cast<const void*>(address));
  return device == kNoDevice ? Range{} : arena(device).allocation_at(address);
}

bool holds(int device, const void* address, std::size_t bytes) {
  const std::lock_guard lock(runtime_mutex());
  return device_of(address) == device && device != kNoDevice &&
         arena(device).allocation_at(address_of(address)).contains(address_of(address), bytes);
}

Range addresses_of(int device) { return arena(device).addresses(); }
MemoryUse memory_use(int device) {
  const std::lock_guard lock(runtime_mutex());
  return arena(device).use();
}

void* allocate_pinned(std::size_t bytes) {
  void* const memory = std::aligned_alloc(kAlignment, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
  if (!memory) return nullptr;
  std::memset(memory, kNotWritten, bytes);
  pin(memory, bytes);
  return memory;
}

bool release_pinned(void* memory) {
  if (!unpin(memory)) return false;
  std::free(memory);
  return true;
}

bool pin(void* memory, std::size_t bytes) {
  const std::lock_guard lock(runtime_mutex());
  return pinned().emplace(address_of(memory), std::max<std::size_t>(bytes, 1)).second;
}

bool unpin(void* memory) {
  const std::lock_guard lock(runtime_mutex());
  return pinned().erase(address_of(memory)) != 0;
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(runtime_mutex());
  const auto found = pinned().upper_bound(address_of(address));
  if (found == pinned().begin()) return false;
  const auto& [begin, bytes] = *std::prev(found);
  return address_of(address) < begin + bytes;
}

DeviceAccess::DeviceAccess(int device) : device_(device) {
  const std::lock_guard lock(runtime_mutex());
  each(device_, [](Arena& all) { all.open(); });
}

DeviceAccess::~DeviceAccess() {
  const std::lock_guard lock(runtime_mutex());
  each(device_, [](Arena& all) { all.close(); });
}

}  // namespace emulator
