// Blocks of a grid on a few OS threads, and the functions that kernels call.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <utility>

#include "tests/emulator/block.h"
#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/worker_pool.h"

namespace emulator {

namespace {

/// In which order the blocks run: the i-th is (i * factor + shift) modulo their number.
struct BlockOrder {
  std::uint64_t blocks, factor = 1, shift = 0;

  explicit BlockOrder(std::uint64_t blocks) : blocks(blocks) {
    const Settings& chosen = settings();
    if (chosen.order == Settings::Order::reverse) factor = shift = blocks - 1;
    if (chosen.order == Settings::Order::random && blocks > 2) {
      factor = chosen.seed * 2654435761u % blocks;
      while (factor == 0 || std::gcd(factor, blocks) != 1) factor = factor % blocks + 1;
      shift = chosen.seed % blocks;
    }
  }

  std::uint64_t operator()(std::uint64_t i) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(i) * factor + shift) % blocks);
  }
};

std::vector<uint3> indices_of(const dim3& block) {
  std::vector<uint3> indices;
  indices.reserve(std::size_t{block.x} * block.y * block.z);
  for (unsigned z = 0; z < block.z; ++z) {
    for (unsigned y = 0; y < block.y; ++y) {
      for (unsigned x = 0; x < block.x; ++x) indices.push_back(uint3{x, y, z});
    }
  }
  return indices;
}

}  // namespace

void run_grid(const Launch& launch) {
  const std::vector<uint3> thread_indices = indices_of(launch.block);
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const BlockOrder order(blocks);
  std::atomic<std::uint64_t> next{0};
  const auto work = [&] {
    Block& block = Block::of_this_thread();
    for (std::uint64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
      if (sticky_error() != cudaSuccess) return;
      block.run(launch, order(i), thread_indices);
    }
  };
  // The checker keeps its records without locks.
  const std::uint64_t workers = checker_linked ? 1 : std::min<std::uint64_t>(settings().workers, blocks);
  WorkerPool::instance().run(static_cast<unsigned>(workers), work);
}

__attribute__((weak)) bool checker_linked = false;

int barrier(int value, Reduction reduction, Location at) {
  const Unchecked scope;
  return Block::of_this_thread().barrier(value, reduction, at);
}

void trap(const char* what, Location at) {
  std::string message = std::string(what) + " at " + to_string(at);
  Block::of_this_thread().fail(cudaErrorLaunchFailure, std::move(message));
}

std::uint64_t warp_exchange(unsigned mask, std::uint64_t value, WarpOperation operation, Location at,
                            unsigned source) {
  const Unchecked scope;
  const std::uint64_t* const values = Block::of_this_thread().meet(mask, value, operation, at);
  // A lane outside the mask: undefined on a card.
  return source < kWarpSize && (mask >> source & 1u) ? values[source] : kGarbage;
}

unsigned warp_vote(unsigned mask, std::uint64_t value, WarpOperation operation, Location at) {
  const Unchecked scope;
  Block& block = Block::of_this_thread();
  const std::uint64_t* const values = block.meet(mask, value, operation, at);
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const bool agrees = operation == WarpOperation::ballot ? values[lane] != 0 : values[lane] == value;
    if ((mask >> lane & 1u) && values[lane] != kGarbage && agrees) lanes |= 1u << lane;
  }
  return lanes;
}

unsigned active_lanes() { return Block::of_this_thread().active_lanes(); }

void* shared_variable(const void* key, std::size_t bytes, Location at) {
  const Unchecked scope;
  return Block::of_this_thread().shared_variable(key, bytes, at);
}

void* dynamic_shared() { return Block::of_this_thread().shared().dynamic(); }

}  // namespace emulator
