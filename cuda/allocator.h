// Device memory, kept for reuse: cudaMalloc and cudaFree wait for the device, and training asks for the same
// sizes every step. The scheme is that of PyTorch's caching allocator.
//
// Memory comes from the device in segments, which are cut into blocks. A block belongs to the stream that it
// was first given to. Releasing it makes it free at once for later work of that stream, which is ordered
// after what still uses it; use by another stream must be announced (record_stream), and then a released
// block waits for an event of that stream.
//
// MEZZO_CUDA_CACHE=0 in the environment makes each block a segment, of the size asked for, that is given back
// at once: slow, and for tools that see CUDA's own allocations alone, as compute-sanitizer and the emulator's
// checker.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "tensor/storage.h"

namespace mezzo::cuda {

/// The memory of one device. Safe to use from any thread.
class Allocator {
 public:
  explicit Allocator(int device) : device_(device) {}

  /// Memory for work on `stream`, aligned to 512 bytes. Throws Error if the device has none, after waiting
  /// for blocks in use by other streams and giving free segments back.
  void* allocate(size_t bytes, cudaStream_t stream);
  void release(void* data) noexcept;
  /// The block is used by work on `stream` that has been asked for by now.
  void record_stream(void* data, cudaStream_t stream);

  MemoryStats stats();
  void reset_peak();
  /// Gives free segments back to the device, which waits for all of its work.
  void empty();

  /// From now on memory for `stream` comes from a pool of its own, until end_capture. What a captured graph
  /// works in must stay as it is while the graph lives, and so does the pool.
  void begin_capture(cudaStream_t stream);
  /// Ends that and returns the pool's number.
  int end_capture();
  /// The graph is gone: the pool's free segments go back to the device, and others when they become free.
  /// Memory that was released while it was captured, and that it may have recorded uses of, is free now.
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
    std::vector<cudaStream_t> used_by{};  ///< streams beside its own
    size_t waits_for = 0;                 ///< events, after its release
  };
  /// By stream, the smallest first: the first that is large enough fits best.
  struct Fit {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, Fit>;
  /// Free blocks. Small ones have segments of their own, so that they do not cut up large ones.
  struct Pool {
    FreeBlocks small, large;
    bool dropped = false;
    std::vector<Block*> held{};  ///< of other pools, released while this one's graph was captured
    FreeBlocks& of(const Block& block) { return block.small ? small : large; }
  };
  struct Pending {
    cudaEvent_t event;
    Block* block;
  };

  Block* find_free(Pool& pool, size_t size, cudaStream_t stream);
  Block* new_segment(Pool& pool, size_t size, cudaStream_t stream);
  void split(Block* block, size_t size);
  void put_back(Block* block);
  void absorb(Block* block, Block* neighbour);
  void await_streams(Block* block);
  void finish_pending(bool wait);
  void give_back(Pool& pool);
  [[noreturn]] void fail_exhausted(size_t bytes);

  const int device_;
  std::mutex mutex_;
  std::unordered_map<void*, Block*> live_;
  Pool main_;
  std::map<int, Pool> pools_;  ///< of graphs
  int last_pool_ = 0;
  cudaStream_t capturing_ = nullptr;  ///< the stream that is captured, if one is
  std::vector<Pending> pending_;
  MemoryStats stats_;
};

/// That of a device of this machine; never destroyed, since tensors in static storage may outlive it.
Allocator& allocator(int device);

}  // namespace mezzo::cuda
