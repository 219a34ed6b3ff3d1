// Segments from the device, cut into blocks and joined again; pools of their own for captured graphs.
#include "cuda/allocator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

#include "cuda/check.h"
#include "cuda/context.h"
#include "tensor/error.h"

namespace mezzo::cuda {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kStep = 512;        // sizes of blocks are multiples of it
constexpr size_t kMostSmall = kMiB;  // blocks up to here come from small segments
constexpr size_t kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;
constexpr size_t kMostShared = 10 * kMiB;  // larger blocks get segments of their own, in steps of 2 MiB

size_t rounded(size_t bytes, size_t step) { return (std::max<size_t>(bytes, 1) + step - 1) / step * step; }

const bool caches = [] {
  const char* const setting = std::getenv("MEZZO_CUDA_CACHE");
  return !setting || std::string_view(setting) != "0";
}();

size_t block_size(size_t bytes) { return caches ? rounded(bytes, kStep) : std::max<size_t>(bytes, 1); }

size_t segment_size(size_t size) {
  if (!caches) return size;
  if (size <= kMostSmall) return kSmallSegment;
  return size <= kMostShared ? kLargeSegment : rounded(size, 2 * kMiB);
}

/// While it lives, this thread may call what the capture of a stream forbids: cudaMalloc is no work of the
/// stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

bool Allocator::Fit::operator()(const Block* a, const Block* b) const {
  if (a->stream != b->stream) return std::less<>()(a->stream, b->stream);
  return a->size != b->size ? a->size < b->size : std::less<>()(a->data, b->data);
}

void* Allocator::allocate(size_t bytes, cudaStream_t stream) {
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  collect(false);
  Pool& pool = capturing_ && stream == capturing_ ? pools_.at(last_pool_) : main_;
  Block* block = find_free(pool, size, stream);
  if (!block) block = new_segment(pool, size, stream);
  if (!block && !capturing_) {
    collect(true);
    give_back(main_);
    block = new_segment(pool, size, stream);
  }
  if (!block) fail_exhausted(bytes);
  split(block, size);
  block->serial = ++last_serial_;
  live_.emplace(block->data, block);
  stats_.live += block->size;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return block->data;
}

/// Takes the smallest free block that is large enough; null if there is none.
Allocator::Block* Allocator::find_free(Pool& pool, size_t size, cudaStream_t stream) {
  Block wanted{&pool, size <= kMostSmall, stream, nullptr, size};
  FreeBlocks& blocks = pool.of(wanted);
  const auto found = blocks.lower_bound(&wanted);
  if (found == blocks.end() || (*found)->stream != stream) return nullptr;
  Block* const block = *found;
  blocks.erase(found);
  block->free = false;
  stats_.cached -= block->size;
  return block;
}

/// A block that is a whole segment, from the device; null if it has no memory.
Allocator::Block* Allocator::new_segment(Pool& pool, size_t size, cudaStream_t stream) {
  const size_t whole = segment_size(size);
  const RelaxedCapture relaxed;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, whole);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // passed over: the next call is not to report it
    return nullptr;
  }
  check(status, "allocating memory");
  ++stats_.system_allocations;
  ++pool.segments;
  return new Block{&pool, size <= kMostSmall, stream, static_cast<std::byte*>(data), whole};
}

/// Cuts a block to `size` if what is left is worth keeping.
void Allocator::split(Block* block, size_t size) {
  const size_t left = block->size - size;
  if (!caches || left < (block->small ? kStep : kMostSmall)) return;
  auto* const rest = new Block{block->pool, block->small, block->stream, block->data + size,
                               left,        true,         block,         block->after};
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->size = size;
  rest->pool->of(*rest).insert(rest);
  stats_.cached += left;
}

void Allocator::release(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(data);
  Block* const block = found->second;
  live_.erase(found);
  stats_.live -= block->size;
  try {
    if (auto uses = uses_of(block); !uses.empty()) {
      stats_.cached += block->size;
      waiting_.push_back({block, std::move(uses)});
      return;
    }
  } catch (const Error&) {  // the device has failed, and will not use it any more
  }
  put_back(block);
  forget_dropped_pools();
}

void Allocator::record_stream(void* data, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  live_.at(data)->other_streams.push_back(stream);
}

/// Points behind the work by now on the streams that use a block besides its own.
std::list<Event> Allocator::uses_of(Block* block) const {
  std::list<Event> uses;
  if (block->other_streams.empty()) return uses;
  const DeviceGuard guard(device_);
  for (cudaStream_t stream : std::exchange(block->other_streams, {})) uses.emplace_back(stream);
  return uses;
}

/// Makes those blocks free whose uses are over, or waits for all of them. A capture forbids to ask.
void Allocator::collect(bool wait) {
  while (!waiting_.empty() && !capturing_) {
    Waiting& first = waiting_.front();
    for (const Event& use : first.uses) {
      if (wait) use.synchronize();
      if (!use.is_over()) return;
    }
    Block* const block = first.block;
    waiting_.pop_front();
    stats_.cached -= block->size;
    put_back(block);
  }
}

/// Makes a block free, and one with its free neighbours; or lets a graph hold it that may know it.
void Allocator::put_back(Block* block) {
  if (block->pool == &main_) {
    for (auto& [number, pool] : pools_) {
      if (!pool.dropped && block->serial <= pool.last_serial) return pool.held.push_back(block);
    }
  }
  stats_.cached += block->size;
  for (Block* neighbour : {block->before, block->after}) {
    if (neighbour && neighbour->free) absorb(block, neighbour);
  }
  block->free = true;
  block->pool->of(*block).insert(block);
  if (!caches && block->pool == &main_) give_back(main_);
}

void Allocator::absorb(Block* block, Block* neighbour) {
  neighbour->pool->of(*neighbour).erase(neighbour);
  if (neighbour == block->before) {
    block->data = neighbour->data;
    block->before = neighbour->before;
    if (block->before) block->before->after = block;
  } else {
    block->after = neighbour->after;
    if (block->after) block->after->before = block;
  }
  block->size += neighbour->size;
  delete neighbour;
}

/// Gives the segments that are wholly free back to the device.
void Allocator::give_back(Pool& pool) {
  const RelaxedCapture relaxed;
  for (FreeBlocks* blocks : {&pool.small, &pool.large}) {
    std::erase_if(*blocks, [&](Block* block) {
      if (block->before || block->after) return false;
      cudaFree(block->data);
      --pool.segments;
      stats_.cached -= block->size;
      delete block;
      return true;
    });
  }
}

void Allocator::fail_exhausted(size_t bytes) {
  size_t available = 0, total = 0;
  static_cast<void>(cudaMemGetInfo(&available, &total));
  fail("allocate", text("no memory on ", to_string(Device(Device::Type::cuda, device_)), " for ", bytes,
                        " bytes; of ", total, " tensors hold ", stats_.live, ", the cache ", stats_.cached,
                        ", and ", available, " are free"));
}

MemoryStats Allocator::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
}

void Allocator::empty() {
  const std::lock_guard lock(mutex_);
  collect(true);
  give_back(main_);
}

void Allocator::begin_capture(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (capturing_) fail("cuda::Graph", "another thread is capturing a graph on this device");
  capturing_ = stream;
  pools_[++last_pool_];
}

int Allocator::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = nullptr;
  pools_.at(last_pool_).last_serial = last_serial_;
  return last_pool_;
}

void Allocator::drop_pool(int number) {
  const std::lock_guard lock(mutex_);
  GraphPool& pool = pools_.at(number);
  pool.dropped = true;
  for (Block* block : std::exchange(pool.held, {})) put_back(block);  // or another graph holds it
  forget_dropped_pools();
}

/// Gives back what is free of graphs that are gone; a tensor that the graph made may still be there.
void Allocator::forget_dropped_pools() {
  for (auto entry = pools_.begin(); entry != pools_.end();) {
    GraphPool& pool = entry->second;
    if (pool.dropped) give_back(pool);
    entry = pool.dropped && pool.segments == 0 ? pools_.erase(entry) : std::next(entry);
  }
}

Allocator& allocator(int device) {
  static auto* const allocators = [] {
    auto* const all = new std::vector<std::unique_ptr<Allocator>>;
    for (size_t i = 0; i < std::max<size_t>(1, devices().cards.size()); ++i)
      all->push_back(std::make_unique<Allocator>(static_cast<int>(i)));
    return all;
  }();
  return *(*allocators)[static_cast<size_t>(device)];
}

}  // namespace mezzo::cuda
