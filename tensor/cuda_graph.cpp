#include "tensor/cuda_graph.h"

#include "tensor/backend.h"
#include "tensor/error.h"

namespace mezzo::cuda {

Graph::Graph(const std::function<void()>& step, const Device& device, int warm_up) : device_(device) {
  if (device.type != Device::Type::cuda)
    fail("cuda::Graph", text("work on ", to_string(device), " has no graph"));
  const Backend& found = backend(device);
  for (int i = 0; i < warm_up; ++i) step();
  recording_ = found.record(device.index, step);
}

void Graph::replay() const { backend(device_).replay(device_.index, recording_.get()); }

}  // namespace mezzo::cuda
