// Shared memory. Each variable is a heap block of its own of exactly its size, so that accesses beside it
// show.
#pragma once

#include <cstddef>

#include "emulator/location.h"

// Plain `__shared__` works, without these checks, since an OS thread runs one block at a time. `extern
// __shared__` does not compile, on purpose: DYN_SHARED replaces it.
#undef __shared__
#define __shared__ static thread_local
#undef __constant__
#define __constant__

namespace emulator {

/// The running block's variable that `key` stands for, made full of NaN when the first thread asks.
void* shared_variable(const void* key, std::size_t bytes, Location at);

/// The running block's dynamic shared memory.
void* dynamic_shared();

/// The variable of type T that belongs to the type Tag.
template <class T, class Tag>
T& shared_variable(Tag, Location at = Location::here()) {
  static constexpr char key = 0;
  return *static_cast<T*>(shared_variable(&key, sizeof(T), at));
}

}  // namespace emulator

// Macros because a declaration names a new variable: SHARED(float, tile, [32][33]) is `__shared__ float
// tile[32][33]` in nvcc's build. Each lambda has a type of its own, which tells one variable from the other.
#define SHARED(T, name, ...) T(&name) __VA_ARGS__ = ::emulator::shared_variable<T __VA_ARGS__>([] {})
#define DYN_SHARED(T, name) T* name = static_cast<T*>(::emulator::dynamic_shared())
