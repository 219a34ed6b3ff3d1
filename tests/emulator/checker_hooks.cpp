// What code compiled with -fsanitize=thread calls. The compiler gives the names, one for each size, so macros
// make them; all end in check_access.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/emulator/checker.h"

using emulator::AccessKind;

namespace {

/// Before an atomic access.
template <class T>
void check_atomic(const volatile T* address, AccessKind kind, const void* return_address) {
  emulator::check_access(address, sizeof(T), kind, true, true, return_address);
}

void* checked_move(void* to, const void* from, std::size_t bytes, const void* return_address) {
  emulator::check_access(from, bytes, AccessKind::read, false, false, return_address);
  emulator::check_access(to, bytes, AccessKind::write, false, false, return_address);
  return memmove(to, from, bytes);
}

}  // namespace

// The caller of a hook is the kernel.
#define EMULATOR_CALLER __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

#define EMULATOR_ACCESS(bytes)                                                                \
  void __tsan_read##bytes(void* address) {                                                    \
    emulator::check_access(address, bytes, AccessKind::read, false, true, EMULATOR_CALLER);   \
  }                                                                                           \
  void __tsan_write##bytes(void* address) {                                                   \
    emulator::check_access(address, bytes, AccessKind::write, false, true, EMULATOR_CALLER);  \
  }                                                                                           \
  void __tsan_unaligned_read##bytes(void* address) {                                          \
    emulator::check_access(address, bytes, AccessKind::read, false, false, EMULATOR_CALLER);  \
  }                                                                                           \
  void __tsan_unaligned_write##bytes(void* address) {                                         \
    emulator::check_access(address, bytes, AccessKind::write, false, false, EMULATOR_CALLER); \
  }                                                                                           \
  void __tsan_read_write##bytes(void* address) {                                              \
    emulator::check_access(address, bytes, AccessKind::write, false, true, EMULATOR_CALLER);  \
  }                                                                                           \
  void __tsan_unaligned_read_write##bytes(void* address) {                                    \
    emulator::check_access(address, bytes, AccessKind::write, false, false, EMULATOR_CALLER); \
  }
EMULATOR_ACCESS(1)
EMULATOR_ACCESS(2)
EMULATOR_ACCESS(4)
EMULATOR_ACCESS(8)
EMULATOR_ACCESS(16)
#undef EMULATOR_ACCESS

void __tsan_read_range(void* address, std::size_t bytes) {
  emulator::check_access(address, bytes, AccessKind::read, false, false, EMULATOR_CALLER);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  emulator::check_access(address, bytes, AccessKind::write, false, false, EMULATOR_CALLER);
}

// clang copies structs by memcpy and counts on the library to look at it; later versions call another name.
void* memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  return checked_move(to, from, bytes, EMULATOR_CALLER);
}
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  return checked_move(to, from, bytes, EMULATOR_CALLER);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  emulator::check_access(to, bytes, AccessKind::write, false, false, EMULATOR_CALLER);
  return memset(to, value, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  return checked_move(to, from, bytes, EMULATOR_CALLER);
}

// The operation itself is left to the hook. Memory orders, which it gets too, are taken as the strongest.
#define EMULATOR_UPDATE(bits, operation)                                                       \
  std::uint##bits##_t __tsan_atomic##bits##_##operation(volatile std::uint##bits##_t* address, \
                                                        std::uint##bits##_t value, int) {      \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                 \
    return __atomic_##operation(address, value, __ATOMIC_SEQ_CST);                             \
  }
#define EMULATOR_ATOMIC(bits)                                                                               \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* address, int) {        \
    check_atomic(address, AccessKind::read, EMULATOR_CALLER);                                               \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                         \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* address, std::uint##bits##_t value, int) { \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                              \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* address,                 \
                                                     std::uint##bits##_t value, int) {                      \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                              \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                           \
  }                                                                                                         \
  EMULATOR_UPDATE(bits, fetch_add)                                                                          \
  EMULATOR_UPDATE(bits, fetch_sub)                                                                          \
  EMULATOR_UPDATE(bits, fetch_and)                                                                          \
  EMULATOR_UPDATE(bits, fetch_or)                                                                           \
  EMULATOR_UPDATE(bits, fetch_xor)                                                                          \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* address,                  \
                                                    std::uint##bits##_t* expected,                          \
                                                    std::uint##bits##_t desired, int, int) {                \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                              \
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,                 \
                                       __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* address,                    \
                                                  std::uint##bits##_t* expected,                            \
                                                  std::uint##bits##_t desired, int, int) {                  \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                              \
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,                 \
                                       __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile std::uint##bits##_t* address,     \
                                                                 std::uint##bits##_t expected,              \
                                                                 std::uint##bits##_t desired, int, int) {   \
    check_atomic(address, AccessKind::write, EMULATOR_CALLER);                                              \
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    return expected;                                                                                        \
  }
EMULATOR_ATOMIC(8)
EMULATOR_ATOMIC(16)
EMULATOR_ATOMIC(32)
EMULATOR_ATOMIC(64)

}  // extern "C"
