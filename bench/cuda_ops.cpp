// Single ops on a GPU beside what the card itself can do: bytes/s of ops bound by memory beside a copy from
// device to device, FLOP/s of matrix products beside cuBLAS called directly. Prints one JSON object.
//   bench/cuda_ops          --tiny, for the emulator: whether it runs; --probe: 77 if there is no device
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bench/train.h"
#include "mezzo.h"

using namespace mezzo;
using nlohmann::ordered_json;

namespace {

void check(bool success, const char* what) {
  if (!success) throw Error(text("cuda_ops: ", what, " failed"));
}

/// Device memory of cudaMalloc, not of mezzo's allocator.
class Memory {
 public:
  explicit Memory(size_t bytes) { check(cudaMalloc(&data_, bytes) == cudaSuccess, "cudaMalloc"); }
  ~Memory() { static_cast<void>(cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

const Device kDevice = "cuda";

/// Rows of the result. Each is timed by itself, in runs that begin and end with an idle device.
class Rows {
 public:
  explicit Rows(bool tiny) : tiny_(tiny) {}

  bool tiny() const { return tiny_; }
  void add_bytes(const std::string& name, int64_t bytes, const std::function<void()>& f) {
    add(name, {{"bytes", bytes}}, f);
  }
  void add_flop(const std::string& name, double flop, const std::function<void()>& f) {
    add(name, {{"flop", flop}}, f);
  }
  const ordered_json& json() const { return rows_; }

 private:
  void add(const std::string& name, ordered_json row, const std::function<void()>& f) {
    const auto finish = [] { check(cudaDeviceSynchronize() == cudaSuccess, "waiting for the device"); };
    for (int i = 0; i < 3; ++i) f();  // memory comes from the system, kernels are loaded, plans are made
    const bench::RunTimes once(1, f, finish);
    const double wanted_ms = 200;
    const int64_t calls =
        tiny_ ? 1 : std::clamp<int64_t>(static_cast<int64_t>(wanted_ms / once.median_ms()), 10, 2000);
    const bench::RunTimes times(calls, f, finish);
    row["op"] = name;
    row["ms"] = times.median_ms();
    rows_.push_back(row);
  }

  bool tiny_;
  ordered_json rows_ = ordered_json::array();
};

int64_t bytes_of(std::initializer_list<Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += x.numel() * static_cast<int64_t>(size_of(x.dtype()));
  return bytes;
}

Tensor random(const Shape& shape, DType dtype, MemoryFormat format = contiguous_format) {
  return randn(shape, {.device = kDevice, .format = format}).to(dtype);
}

/// What a card's memory can do: each byte is read and written once. 256 MiB, more than its cache.
void add_copy(Rows& rows) {
  const size_t bytes = rows.tiny() ? size_t{1} << 12 : size_t{256} << 20;
  const Memory from(bytes), to(bytes);
  check(cudaMemset(from.data(), 1, bytes) == cudaSuccess, "cudaMemset");
  rows.add_bytes("copy", static_cast<int64_t>(2 * bytes), [&] {
    check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, nullptr) == cudaSuccess,
          "a copy");
  });
}

/// On an activation of the checkerboard network at 512 x 512: 256 MiB in float32.
void add_pointwise(Rows& rows, DType dtype, const std::string& suffix) {
  const int64_t side = rows.tiny() ? 4 : 512, channels = rows.tiny() ? 8 : 256;
  const Shape shape{1, channels, side, side};
  const Tensor x = random(shape, dtype, channels_last), y = random(shape, dtype, channels_last);
  const NoGradGuard guard;
  rows.add_bytes("pointwise/add" + suffix, bytes_of({x, y, x}), [&] { add(x, y); });
  rows.add_bytes("pointwise/gelu" + suffix, bytes_of({x, x}), [&] { gelu(x); });
  const DType other = dtype == float32 ? float16 : float32;
  rows.add_bytes(text("pointwise/", name_of(dtype), " to ", name_of(other)), bytes_of({x, x.to(other)}),
                 [&] { x.to(other); });
  rows.add_bytes("reduce/sum" + suffix, bytes_of({x}), [&] { sum(x); });
}

void add_softmax(Rows& rows, DType dtype, const std::string& suffix) {
  const NoGradGuard guard;
  const Shape shape = rows.tiny() ? Shape{4, 64} : Shape{65536, 1024};
  const Tensor x = random(shape, dtype), y = softmax(x, 1);
  rows.add_bytes("softmax/forward" + suffix, bytes_of({x, x}), [&] { softmax(x, 1); });
  rows.add_bytes("softmax/backward" + suffix, bytes_of({y, x, x}), [&] { softmax_grad(x, y, 1, false); });
}

/// Statistics, then values: forward reads x twice, backward x and the gradient.
void add_batch_norm(Rows& rows, DType dtype, const std::string& suffix) {
  const int64_t side = rows.tiny() ? 4 : 512, channels = rows.tiny() ? 8 : 256;
  const Shape shape{1, channels, side, side};
  const Tensor x = random(shape, dtype, channels_last).requires_grad_(),
               g = random(shape, dtype, channels_last);
  const Tensor weight = ones({channels}, {.device = kDevice}), bias = zeros({channels}, {.device = kDevice});
  rows.add_bytes("batch_norm/forward" + suffix, bytes_of({x, x, x}), [&] {
    const NoGradGuard guard;
    batch_norm(x, weight, bias, {}, {});
  });
  const Tensor y = batch_norm(x, weight, bias, {}, {});
  rows.add_bytes("batch_norm/backward" + suffix, bytes_of({x, g, x, g, x}), [&] {
    grad({&y, 1}, {&x, 1}, {&g, 1}, {.retain_graph = true});
  });
}

/// Reads parameter, gradient and two means, writes all but the gradient; 256 MiB of parameters.
void add_adam(Rows& rows) {
  for (const int64_t count : {1, 256}) {
    const int64_t each = (rows.tiny() ? 1024 : 64 << 20) / count;
    std::vector<Tensor> parameters;
    for (int64_t i = 0; i < count; ++i) {
      parameters.push_back(random({each}, float32).requires_grad_());
      parameters.back().set_grad(random({each}, float32));
    }
    optim::Adam adam(parameters);
    rows.add_bytes(text("adam/", count, count == 1 ? " tensor" : " tensors"), 7 * 4 * each * count,
                   [&] { adam.step(); });
  }
}

/// cuBLAS alone: row-major [side, side] matrices, which it sees transposed, so that out = b a there.
class BlasProduct {
 public:
  BlasProduct(int side, DType dtype, bool tf32)
      : side_(side),
        type_(dtype == float16 ? CUDA_R_16F : CUDA_R_32F),
        compute_(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F),
        a_(bytes(dtype)),
        b_(bytes(dtype)),
        out_(bytes(dtype)) {
    check(cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    const Tensor numbers = randn({side, side}).to(dtype);  // zeros would be multiplied faster
    const void* from = dtype == float16 ? static_cast<const void*>(numbers.data<Half>())
                                        : static_cast<const void*>(numbers.data<float>());
    for (const Memory* to : {&a_, &b_})
      check(cudaMemcpy(to->data(), from, bytes(dtype), cudaMemcpyHostToDevice) == cudaSuccess, "a copy");
  }
  ~BlasProduct() { cublasDestroy(handle_); }
  BlasProduct(const BlasProduct&) = delete;
  BlasProduct& operator=(const BlasProduct&) = delete;

  void run() const {
    const float one = 1, zero = 0;
    check(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, side_, side_, side_, &one, b_.data(), type_, side_,
                       a_.data(), type_, side_, &zero, out_.data(), type_, side_, compute_,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
          "cublasGemmEx");
  }

 private:
  size_t bytes(DType dtype) const {
    return static_cast<size_t>(side_) * static_cast<size_t>(side_) * size_of(dtype);
  }

  int side_;
  cudaDataType_t type_;
  cublasComputeType_t compute_;
  Memory a_, b_, out_;
  cublasHandle_t handle_ = nullptr;
};

void add_matmul(Rows& rows) {
  const NoGradGuard guard;
  const int side = rows.tiny() ? 32 : 8192;
  const double flop = 2.0 * side * side * side;
  struct Precision {
    const char* name;
    DType dtype;
    bool tf32;
  };
  for (const auto& [name, dtype, tf32] :
       {Precision{"float32", float32, false}, {"TF32", float32, true}, {"float16", float16, false}}) {
    const Tensor a = random({side, side}, dtype), b = random({side, side}, dtype);
    cuda::allow_tf32_matmul(tf32);
    rows.add_flop(text("matmul/", name), flop, [&] { matmul(a, b); });
    const BlasProduct alone(side, dtype, tf32);
    rows.add_flop(text("cublas/", name), flop, [&] { alone.run(); });
  }
  cuda::allow_tf32_matmul(false);
}

ordered_json measure(bool tiny) {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0) == cudaSuccess, "asking for the device");
  int runtime = 0, driver = 0;
  check(cudaRuntimeGetVersion(&runtime) == cudaSuccess && cudaDriverGetVersion(&driver) == cudaSuccess,
        "asking for versions");
  Rows rows(tiny);
  add_copy(rows);
  for (const DType dtype : {float32, float16}) {
    const std::string suffix = text(", ", name_of(dtype));
    add_pointwise(rows, dtype, suffix);
    add_softmax(rows, dtype, suffix);
    add_batch_norm(rows, dtype, suffix);
  }
  add_adam(rows);
  add_matmul(rows);
  return {{"device", device.name},
          {"compute_capability", text(device.major, '.', device.minor)},
          {"multiprocessors", device.multiProcessorCount},
          {"memory_mib", device.totalGlobalMem >> 20},
          {"cuda_runtime", runtime},
          {"cuda_driver", driver},
          {"rows", rows.json()}};
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (device_count() == 0) {
    std::cerr << "cuda_ops: there is no CUDA device\n";
    return 77;
  }
  if (how != "--probe") std::cout << measure(how == "--tiny") << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
