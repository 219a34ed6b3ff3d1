// The CUDA backend makes itself known to the library.
#include "cuda/allocator.h"
#include "cuda/check.h"
#include "cuda/context.h"
#include "cuda/copy_bytes.h"
#include "cuda/graph.h"
#include "cuda/kernel_families.h"
#include "tensor/backend.h"

namespace mezzo::cuda {

namespace {

void* allocate(size_t bytes, int index) {
  select(index);
  return allocator(index).allocate(bytes, context().stream());
}

void synchronize(int index) {
  refuse_in_capture("waiting for the device", "");
  select(index);
  check(cudaDeviceSynchronize(), "the work of the device");
}

bool is_memory(const void* data, int index) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "asking for an address");
  return (attributes.type == cudaMemoryTypeDevice && attributes.device == index) ||
         attributes.type == cudaMemoryTypeManaged;
}

void empty_cache(int index) {
  refuse_in_capture("emptying the cache", "");
  select(index);
  allocator(index).empty();
}

const Backend* make_backend() {
  static Backend backend;
  backend.count = static_cast<int>(devices().cards.size());
  backend.absence = devices().absence;
  backend.select = &select;
  backend.allocate = &allocate;
  backend.release = [](void* data, int index) { allocator(index).release(data); };
  backend.is_memory = &is_memory;
  backend.copy = &copy_bytes;
  backend.capability = [](int index) { return devices().cards[static_cast<size_t>(index)].capability; };
  backend.record = &record;
  backend.replay = &replay;
  backend.capture = &capture_number;
  backend.at_replay = &at_replay;
  backend.synchronize = &synchronize;
  backend.memory_stats = [](int index) { return allocator(index).stats(); };
  backend.reset_peak = [](int index) { allocator(index).reset_peak(); };
  backend.empty_cache = &empty_cache;

  Kernels& table = backend.kernels;
  add_pointwise(table);
  add_copy(table);
  add_random(table);
  add_reduce(table);
  add_softmax(table);
  add_indexing(table);
  add_matmul(table);
  add_conv(table);
  add_attention(table);
  add_pool(table);
  add_batch_norm(table);
  add_layer_norm(table);
  add_conv1x1(table);
  add_optimizers(table);
  add_clip(table);
  return &backend;
}

const struct Register {
  Register() { register_cuda(&make_backend); }
} at_start;

}  // namespace

}  // namespace mezzo::cuda
