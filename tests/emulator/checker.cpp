#include "tests/emulator/checker.h"

#include <link.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/emulator/access_record.h"
#include "tests/emulator/block.h"
#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/memory.h"

extern "C" char __executable_start, _end;  // the linker's: where the program begins and ends in memory

namespace emulator {

bool checker_linked = true;

namespace {

std::uintptr_t address_of(const volatile void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

/// Cells for a range of memory. There are three sets, for accesses in steps of 1, 2 and 4 bytes, so that a
/// float costs one cell and neighbouring bytes written by two threads are still told apart.
class Shadow {
 public:
  static constexpr std::size_t kLevels = 3;
  static constexpr std::size_t step(std::size_t level) { return std::size_t{1} << level; }

  explicit Shadow(Range range) : range_(range) {}

  Cell* cells(std::size_t level, std::uintptr_t address) {
    if (!levels_[level]) levels_[level] = map((range_.high - range_.low) / step(level) * sizeof(Cell));
    return levels_[level] + (address - range_.low) / step(level);
  }

 private:
  static Cell* map(std::size_t bytes) {  // takes memory only where it is used
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      print("no memory for the checker");
      std::abort();
    }
    madvise(memory, bytes, MADV_DONTDUMP);
    return static_cast<Cell*>(memory);
  }

  Range range_;
  std::array<Cell*, kLevels> levels_{};
};

/// The launch in which a set of cells was used last.
std::array<unsigned, Shadow::kLevels> used_in{};

/// Memory of one kind that the running kernel may touch, and its cells.
struct Region {
  Range range;
  Shadow* shadow = nullptr;

  void enter(Range here) {
    static std::map<std::uintptr_t, Shadow> shadows;  // of devices and of OS threads: they are few
    range = here;
    shadow = &shadows.try_emplace(here.low, here).first->second;
  }
};

/// What does not change during a launch. There is one at a time, since the checker has one worker.
struct Scene {
  unsigned launch = 0;
  Region device, shared;
  const SharedMemory* variables = nullptr;
  std::array<Range, 4> allocations;  ///< that were touched last
  std::size_t turn = 0;

  static Scene& of(unsigned launch) {
    static Scene scene;
    if (scene.launch != launch) scene.enter(launch);
    return scene;
  }

  /// Whether the access lies in one allocation of the device.
  bool allocated(std::uintptr_t address, std::size_t bytes) {
    for (const Range& allocation : allocations) {
      if (allocation.contains(address, bytes)) return true;
    }
    const Range found = allocation_at(address);
    if (!found.contains(address, bytes)) return false;
    allocations[turn++ % allocations.size()] = found;
    return true;
  }

 private:
  void enter(unsigned number) {
    const Block& block = Block::of_this_thread();
    launch = number;
    variables = &block.shared();
    device.enter(addresses_of(block.launch()->device));
    shared.enter(variables->mapping());
    allocations.fill({});
  }
};

/// The block of static thread-local variables, which plain `__shared__` and the emulator's own state are in.
Range thread_locals() {
  std::size_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* found) {
        for (int i = 0; i < module->dlpi_phnum; ++i) {
          if (module->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<std::size_t*>(found) = module->dlpi_phdr[i].p_memsz;
        }
        return 1;  // the program is the first, and the only one that kernels are in
      },
      &bytes);
  const auto high = address_of(__builtin_thread_pointer());
  return {high - bytes - 64, high};  // aligned down by no more than a cache line
}

std::string line_of(std::uint32_t place) { return source_line(&__executable_start + place); }

std::string describe(const Origin& origin) {
  return line_of(origin.place) + " (block " + std::to_string(origin.block) + ", thread " +
         std::to_string(origin.thread) + ")";
}

const char* verb(AccessKind kind) { return kind == AccessKind::write ? "write" : "read"; }

/// What lies at an address at which a kernel has nothing to do.
std::string describe_memory(std::uintptr_t address, std::size_t bytes) {
  const int device = device_of(reinterpret_cast<const void*>(address));
  const Block& block = Block::of_this_thread();
  if (device != kNoDevice && device != block.launch()->device)
    return "memory of device " + std::to_string(device);
  if (device != kNoDevice) {
    constexpr std::size_t kNear = 1024;
    for (std::size_t back = 0; back < kNear; ++back) {
      const Range near = allocation_at(address + bytes - 1 - back);
      if (near.high == 0) continue;
      const std::size_t size = near.high - near.low;
      return std::to_string(address + bytes - near.high) + " bytes past the end of a device allocation of " +
             std::to_string(size) + " bytes";
    }
    return "unallocated or freed device memory";
  }
  return "host memory";
}

[[gnu::cold, gnu::noinline]] void report_address(std::uintptr_t address, std::size_t bytes, AccessKind kind,
                                                 std::uint32_t place, const std::string& memory) {
  const Unchecked scope;
  device_error(cudaErrorIllegalAddress, std::string("invalid ") + verb(kind) + " of " +
                                            std::to_string(bytes) + " bytes at " + line_of(place) + ": " +
                                            (memory.empty() ? describe_memory(address, bytes) : memory) +
                                            running_thread());
}

[[gnu::cold, gnu::noinline]] void report_race(AccessKind kind, AccessKind before_kind, const Origin& now,
                                              const Origin& before) {
  const Unchecked scope;
  static std::set<std::pair<std::uint32_t, std::uint32_t>> reported;
  if (!reported.insert({before.place, now.place}).second) return;
  device_error(cudaErrorLaunchFailure, std::string("race, ") + verb(kind) + " after " + verb(before_kind) +
                                           ": " + describe(now) + " and " + describe(before) +
                                           running_thread());
}

/// Memory besides the device's that a thread may touch.
bool is_own(std::uintptr_t address, std::size_t bytes, AccessKind kind) {
  static const Range program{address_of(&__executable_start), address_of(&_end)};
  static thread_local const Range locals = thread_locals();
  return program.contains(address) || locals.contains(address) ||
         (kind == AccessKind::read && current.arguments.contains(address, bytes)) ||
         is_pinned(reinterpret_cast<const void*>(address));
}

std::size_t level_of(std::uintptr_t address, std::size_t bytes) {
  const std::uintptr_t bits = address | bytes;
  return bits & 1u ? 0 : bits & 2u ? 1 : 2;
}

/// Compares an access with what the cells of one level remember, and lets them remember it if it belongs
/// there. False: there is a race, which is reported.
bool compare(Shadow& shadow, std::size_t level, std::uintptr_t address, std::size_t bytes, AccessKind kind,
             const Access& now, bool remember) {
  Cell* const first = shadow.cells(level, address);
  Cell* const end = shadow.cells(level, address + bytes - 1) + 1;
  for (Cell* cell = first; cell != end; ++cell) {
    if (cell->writes.conflicts_with(now)) {
      report_race(kind, AccessKind::write, now.origin, cell->writes.culprit(now));
      return false;
    }
    if (kind == AccessKind::write && cell->reads.conflicts_with(now)) {
      report_race(kind, AccessKind::read, now.origin, cell->reads.culprit(now));
      return false;
    }
    if (remember) (kind == AccessKind::write ? cell->writes : cell->reads).add(now);
  }
  return true;
}

}  // namespace

void check_access(const volatile void* pointer, std::size_t bytes, AccessKind kind, bool atomic, bool aligned,
                  const void* return_address) {
  const unsigned launch = current.launch;
  if (!launch || bytes == 0) return;  // host code of the .cu file
  const std::uintptr_t address = address_of(pointer);
  if (current.stack.contains(address)) return;
  const Unchecked scope;
  const auto place = static_cast<std::uint32_t>(address_of(return_address) - address_of(&__executable_start));
  Scene& scene = Scene::of(launch);
  const bool in_shared = scene.shared.range.contains(address);
  if (in_shared) {
    if (!scene.variables->variable_at(address).contains(address, bytes)) {
      return report_address(address, bytes, kind, place, "outside a shared variable");
    }
  } else if (!scene.device.range.contains(address)) {
    if (!is_own(address, bytes, kind)) report_address(address, bytes, kind, place, "");
    return;
  } else if (!scene.allocated(address, bytes)) {
    return report_address(address, bytes, kind, place, "");
  }
  if (aligned && (address & (bytes - 1)) != 0) {  // a power of two
    return report_address(address, bytes, kind, place, "not aligned to its size");
  }

  Access now;
  now.origin = {current.block, place, static_cast<std::uint16_t>(current.thread)};
  // Another block's shared memory is other memory, though at the same addresses: as if of another launch.
  now.launch = in_shared ? current.run : launch;
  now.barriers = current.barriers;
  now.warp_syncs = current.warp_syncs;
  now.atomic = atomic;
  Shadow& shadow = *(in_shared ? scene.shared : scene.device).shadow;
  const std::size_t own = level_of(address, bytes);
  used_in[own] = launch;
  for (std::size_t level = 0; level < Shadow::kLevels; ++level) {
    if (used_in[level] == launch && !compare(shadow, level, address, bytes, kind, now, level == own)) return;
  }
}

}  // namespace emulator
