// What the emulator's own tests share.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace emulator {

/// Memory on the device with a copy of a vector, or that nobody has written.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)) == cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  /// What it holds when all devices have done what was asked of them.
  std::vector<T> values() const {
    std::vector<T> copy(count_);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// A non-blocking stream.
class TestStream {
 public:
  TestStream() { REQUIRE(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking) == cudaSuccess); }
  ~TestStream() { cudaStreamDestroy(handle_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

}  // namespace emulator
