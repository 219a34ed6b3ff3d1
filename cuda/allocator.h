// Device memory, kept for reuse: cudaMalloc and cudaFree wait for the device, and training asks for the same
// sizes every step. The scheme is that of PyTorch's caching allocator.
//
// Memory comes from the device in segments, which are cut into blocks. A block belongs to the stream that it
// was first given to. Releasing it makes it free at once for later work of that stream, which is ordered
// after what still uses it. A block that other streams use too is free once their work is done.
//
// A captured graph works in the same memory at each replay: what it allocated comes from a pool of its own,
// and what else was there when it was captured stays out of use while the graph lives, also once it is
// released.
//
// MEZZO_CUDA_CACHE=0 in the environment makes each block a segment, of the size asked for, that is given back
// at once: slow, and for tools that see CUDA's own allocations alone, as compute-sanitizer and the emulator's
// checker.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "cuda/event.h"
#include "tensor/storage.h"

namespace mezzo::cuda {

/// The memory of one device. Safe to use from any thread.
class Allocator {
 public:
  explicit Allocator(int device) : device_(device) {}

  /// Memory for work on `stream`, aligned to 512 bytes. Throws Error if the device has none, after giving
  /// free segments back; during a capture it has none but what the device has left.
  void* allocate(size_t bytes, cudaStream_t stream);
  void release(void* data) noexcept;
  /// Work on `stream`, not the one that the memory was allocated for, uses it: once it is released, it waits
  /// for what has been asked for there by then.
  void record_stream(void* data, cudaStream_t stream);

  MemoryStats stats();
  void reset_peak();
  /// Gives free segments back to the device, which waits for all of its work.
  void empty();

  /// From now on memory for `stream` comes from a pool of its own, until end_capture, which returns the
  /// pool's number.
  void begin_capture(cudaStream_t stream);
  int end_capture();
  /// The graph is gone, and with it the reasons to keep memory for it.
  void drop_pool(int number);

 private:
  struct Pool;
  /// A piece of a segment; its neighbours there are linked.
  struct Block {
    Pool* pool;
    bool small;  ///< of a segment for small blocks
    cudaStream_t stream;
    std::byte* data;
    size_t size;
    bool free = false;
    Block *before = nullptr, *after = nullptr;
    uint64_t serial = 0;  ///< of its allocation: later ones have higher numbers
    std::vector<cudaStream_t> other_streams{};
  };
  /// A released block, and the work of other streams that it waits for.
  struct Waiting {
    Block* block;
    std::list<Event> uses;
  };
  /// By stream, the smallest first: the first that is large enough fits best.
  struct Fit {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, Fit>;
  /// Free blocks. Small ones have segments of their own, so that they do not cut up large ones.
  struct Pool {
    FreeBlocks small, large;
    size_t segments = 0;
    FreeBlocks& of(const Block& block) { return block.small ? small : large; }
  };
  /// A graph's pool, and what it holds of the main one: blocks that it may know, released while it lives.
  struct GraphPool : Pool {
    uint64_t last_serial = UINT64_MAX;  ///< of the blocks that were there at the end of the capture
    bool dropped = false;
    std::vector<Block*> held{};
  };

  Block* find_free(Pool& pool, size_t size, cudaStream_t stream);
  Block* new_segment(Pool& pool, size_t size, cudaStream_t stream);
  void split(Block* block, size_t size);
  void put_back(Block* block);
  std::list<Event> uses_of(Block* block) const;
  void collect(bool wait);
  void absorb(Block* block, Block* neighbour);
  void give_back(Pool& pool);
  void forget_dropped_pools();
  [[noreturn]] void fail_exhausted(size_t bytes);

  const int device_;
  std::mutex mutex_;
  std::unordered_map<void*, Block*> live_;
  Pool main_;
  std::map<int, GraphPool> pools_;
  int last_pool_ = 0;
  uint64_t last_serial_ = 0;
  std::deque<Waiting> waiting_;       ///< the oldest first
  cudaStream_t capturing_ = nullptr;  ///< the stream that is captured, if one is
  MemoryStats stats_;
};

/// That of a device of this machine; never destroyed, since tensors in static storage may outlive it.
Allocator& allocator(int device);

}  // namespace mezzo::cuda
