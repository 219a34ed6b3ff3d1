// The caching allocator and streams.
#include "cuda/allocator.h"

#include <doctest/doctest.h>

#include <vector>

#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "tests/support.h"

using namespace mezzo;
using namespace mezzo::cuda;

TEST_CASE("memory that another stream uses comes back when that stream is done with it") {
  constexpr size_t kBytes = size_t{3} << 20;
  Allocator& memory = allocator(0);
  const cudaStream_t own = main_stream(0), other = upload_stream(0);
  void* const out = memory.allocate(kBytes, other);
  void* const first = memory.allocate(kBytes, own);
  check(cudaMemsetAsync(first, 1, kBytes, own), "filling");
  Event(own).wait_on(other);
  check(cudaMemcpyAsync(out, first, kBytes, cudaMemcpyDeviceToDevice, other), "copying");
  memory.record_stream(first, other);
  const size_t live = memory.stats().live, cached = memory.stats().cached;
  memory.release(first);
  CHECK(memory.stats().live == live - kBytes);
  CHECK(memory.stats().cached == cached + kBytes);

  void* const second = memory.allocate(kBytes, own);
  check(cudaMemsetAsync(second, 2, kBytes, own), "filling");
  std::vector<unsigned char> bytes(kBytes);
  check(cudaStreamSynchronize(own), "waiting");
  check(cudaStreamSynchronize(other), "waiting");
  check(cudaMemcpy(bytes.data(), out, kBytes, cudaMemcpyDeviceToHost), "copying");
  CHECK(bytes == std::vector<unsigned char>(kBytes, 1));

  // Nobody uses it any more: it is free for the next, if memory is kept at all.
  const size_t asked = memory.stats().system_allocations;
  void* const third = memory.allocate(kBytes, own);
  CHECK(memory.stats().system_allocations == asked + (caches_memory() ? 0 : 1));
  for (void* data : {out, second, third}) memory.release(data);
}
