// Captured work: what tensor/cuda_graph.h offers, by CUDA's graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace mezzo::cuda {

/// Backend::record, replay, capture and at_replay.
std::shared_ptr<void> record(int device, const std::function<void()>& step);
void replay(int device, void* recording);
uint64_t capture_number(int device);
void at_replay(int device, std::function<void()> write);

/// Throws Error if the calling thread's work is being captured: `what` cannot be.
void refuse_in_capture(std::string_view what, std::string_view hint);

}  // namespace mezzo::cuda
