// The shared memory of the block that an OS thread runs.
#pragma once

#include <cstddef>
#include <vector>

#include <emulator/thread.h>

namespace emulator {

constexpr std::size_t kSharedBytes = std::size_t{48} << 10;         ///< of a block that does not ask for more
constexpr std::size_t kSharedBytesOptIn = std::size_t{227} << 10;   ///< of one that does
constexpr std::size_t kSharedBytesReserved = std::size_t{1} << 10;  ///< of each block, by the system

/// Variables lie apart in one mapping, each between gaps that nothing may touch.
class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Begins a block.
  void start(std::size_t dynamic_bytes);
  void* dynamic() const { return dynamic_; }
  /// The variable that `key` stands for, null if it does not exist yet.
  void* find(const void* key) const;
  /// Makes it, full of NaN. Null: static shared memory is used up.
  void* make(const void* key, std::size_t bytes);
  /// Ends a block. False if something was written into a gap, which only shows without AddressSanitizer.
  bool finish();

  /// Where all variables lie, and the one around an address: an empty range if there is none.
  Range mapping() const;
  Range variable_at(std::uintptr_t address) const;

 private:
  struct Variable {
    const void* key;
    Range range;
  };
  char* take(const void* key, std::size_t bytes);

  char* memory_ = nullptr;
  std::size_t used_ = 0;
  std::size_t static_bytes_ = 0;
  void* dynamic_ = nullptr;
  std::vector<Variable> variables_;
};

}  // namespace emulator
