// mistakes NAME: commits the mistake of that name. Prints `nothing noticed` if it went through, `result: ...`
// if a wrong result showed it and `error code: ...` if a call did; the emulator may end the program before.
// mistakes_test.py says which of these each has to do.
#include "tests/emulator/mistakes.h"

#include <cublas_v2.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

using namespace mistakes;

namespace {

void ok(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::printf("error code: %s\n", cudaGetErrorName(code));
  std::exit(1);
}

void ok(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("error code: %s\n", cublasGetStatusName(status));
  std::exit(1);
}

/// Says that the result shows the mistake if it is not what a correct program would get.
void expect(bool right, const char* wrong) {
  if (right) return;
  std::printf("result: %s\n", wrong);
  std::exit(1);
}

class Stream {
 public:
  Stream() { ok(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  operator cudaStream_t() const { return handle_; }
  void wait() const { ok(cudaStreamSynchronize(handle_)); }

 private:
  cudaStream_t handle_ = nullptr;
};

constexpr std::size_t kCount = 1000;

float* allocate(std::size_t count) {
  float* data = nullptr;
  ok(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)));
  return data;
}

float* pinned() {
  float* data = nullptr;
  ok(cudaMallocHost(reinterpret_cast<void**>(&data), sizeof(float)));
  return data;
}

float read(const float* data, cudaStream_t stream) {
  float value = 0;
  ok(cudaMemcpyAsync(&value, data, sizeof value, cudaMemcpyDeviceToHost, stream));
  ok(cudaStreamSynchronize(stream));
  return value;
}

/// What most mistakes need: a stream, x = 0, 1, 2, ... and y that nobody has written.
struct Scene {
  Stream stream;
  std::vector<float> host;
  float *x, *y;

  Scene() : host(kCount), x(allocate(kCount)), y(allocate(kCount)) {
    for (std::size_t i = 0; i < kCount; ++i) host[i] = static_cast<float>(i);
    ok(cudaMemcpy(x, host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  }
  void finish() {
    stream.wait();
    ok(cudaFree(x));
    ok(cudaFree(y));
  }
  void expect_reversed() {
    std::vector<float> got(kBlock);
    ok(cudaMemcpyAsync(got.data(), y, kBlock * sizeof(float), cudaMemcpyDeviceToHost, stream));
    stream.wait();
    for (std::size_t i = 0; i < kBlock; ++i)
      expect(got[i] == host[kBlock - 1 - i], "elements are not reversed");
  }
};

/// Two devices: y of the scene is the first one's, this is what the second has.
struct Second {
  float* data;
  Second() {
    ok(cudaSetDevice(1));
    data = allocate(kCount);
    ok(cudaSetDevice(0));
  }
};

void multiply(cublasHandle_t handle, const float* a, float* c, int size, int leading) {
  const float one = 1, zero = 0;
  ok(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, a, CUDA_R_32F, leading, a,
                  CUDA_R_32F, size, &zero, c, CUDA_R_32F, size, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

using Mistake = void (*)(Scene&);

const std::map<std::string, Mistake> kMistakes{
    // Correct, and to be quiet about.
    {"correct_barrier",
     [](Scene& s) {
       reverse_blocks(s.x, s.y, 3, true, s.stream);
       s.expect_reversed();
     }},
    {"correct_syncwarp", [](Scene& s) { rotate_warps(s.x, s.y, true, s.stream); }},
    {"correct_fill", [](Scene& s) { fill(s.y, kCount, 0, s.stream); }},
    {"correct_atomics",
     [](Scene& s) {
       ok(cudaMemsetAsync(s.y, 0, sizeof(float), s.stream));
       count_blocks(s.y, true, s.stream);
       expect(read(s.y, s.stream) == 64, "lost updates");
       count_threads(s.y, true, s.stream);
       expect(read(s.y, s.stream) == 64, "lost updates");
     }},
    {"correct_bytes", [](Scene& s) { set_bytes(reinterpret_cast<unsigned char*>(s.y), s.stream); }},

    // Kernels.
    {"missing_barrier",
     [](Scene& s) {
       reverse_blocks(s.x, s.y, 3, false, s.stream);
       s.expect_reversed();
     }},
    {"missing_syncwarp",
     [](Scene& s) {
       rotate_warps(s.x, s.y, false, s.stream);
       expect(read(s.y, s.stream) == 1, "the neighbour's value is missing");
     }},
    {"block_race",
     [](Scene& s) {
       ok(cudaMemsetAsync(s.y, 0, sizeof(float), s.stream));
       count_blocks(s.y, false, s.stream);
     }},
    {"atomic_then_plain", [](Scene& s) { count_threads(s.y, false, s.stream); }},
    {"write_past_end", [](Scene& s) { fill(s.y, kCount, 1, s.stream); }},
    {"read_past_end", [](Scene& s) { read_past(s.x, kCount, s.y, s.stream); }},
    {"past_static_shared", [](Scene& s) { static_shared(s.y, 1, s.stream); }},
    {"past_dynamic_shared", [](Scene& s) { dynamic_shared(s.y, 1, s.stream); }},
    {"misaligned", [](Scene& s) { misaligned(s.x, s.y, s.stream); }},
    {"unwritten_shared",
     [](Scene& s) {
       half_written_shared(s.y, s.stream);
       expect(!std::isnan(read(s.y + 63, s.stream)), "NaN");
     }},
    {"unwritten_memory", [](Scene& s) { expect(!std::isnan(read(s.y, s.stream)), "NaN"); }},
    {"early_return", [](Scene& s) { early_return(s.y, s.stream); }},
    {"two_barriers", [](Scene& s) { two_barriers(s.y, s.stream); }},
    {"two_shuffles", [](Scene& s) { two_shuffles(s.y, s.stream); }},
    {"foreign_mask", [](Scene& s) { foreign_mask(s.y, s.stream); }},
    {"deep_recursion", [](Scene& s) { deep_recursion(s.y, s.stream); }},

    // Pointers.
    {"host_dereference", [](Scene& s) { std::printf("%f\n", static_cast<double>(*s.x)); }},
    {"host_memcpy",
     [](Scene& s) {
       std::memcpy(s.host.data(), s.x, 16);
       std::printf("%f\n", static_cast<double>(s.host[0]));
     }},
    {"host_pointer", [](Scene& s) { fill(s.host.data(), kCount, 0, s.stream); }},
    {"host_pointer_in_struct", [](Scene& s) { set_by_table({s.host.data()}, s.stream); }},
    {"freed_pointer",
     [](Scene& s) {
       float* const freed = allocate(64);
       ok(cudaFree(freed));
       fill(freed, 64, 0, s.stream);
     }},
    {"freed_twice",
     [](Scene&) {
       float* const freed = allocate(64);
       ok(cudaFree(freed));
       ok(cudaFree(freed));
     }},

    // Copies and launches.
    {"copy_too_long",
     [](Scene& s) {
       ok(cudaMemcpy(s.y, s.host.data(), (kCount + 1) * sizeof(float), cudaMemcpyHostToDevice));
     }},
    {"copy_of_wrong_kind",
     [](Scene& s) { ok(cudaMemcpy(s.y, s.host.data(), sizeof(float), cudaMemcpyDeviceToDevice)); }},
    {"block_too_large", [](Scene& s) { set(s.y, 1, 2048, s.stream); }},
    {"too_much_static_shared", [](Scene& s) { too_much_shared(s.y, s.stream); }},
    {"leading_dimension",
     [](Scene& s) {
       cublasHandle_t handle = nullptr;
       ok(cublasCreate(&handle));
       multiply(handle, s.x, s.y, 8, 7);
     }},
    {"matrix_past_end",
     [](Scene& s) {
       cublasHandle_t handle = nullptr;
       ok(cublasCreate(&handle));
       multiply(handle, s.x, s.y, 32, 32);  // 1,024 elements
     }},

    // Order.
    {"read_before_synchronize",
     [](Scene& s) {
       float* const target = pinned();
       set(s.y, 5, 1, s.stream);
       ok(cudaMemcpyAsync(target, s.y, sizeof(float), cudaMemcpyDeviceToHost, s.stream));
       expect(*target == 5, "the host read what was not there yet");
     }},
    {"missing_event",
     [](Scene& s) {
       const Stream other;
       set(s.y, 5, kBlock, s.stream);
       reverse_blocks(s.y, s.x, 1, true, other);
       expect(read(s.x, other) == 5, "a stream did not wait for another");
     }},
    {"default_stream_copy",
     [](Scene& s) {
       float value = 0;
       set(s.y, 5, 1, s.stream);
       ok(cudaMemcpy(&value, s.y, sizeof value, cudaMemcpyDeviceToHost));
       expect(value == 5, "cudaMemcpy() does not wait for a non-blocking stream");
     }},
    {"source_reused",
     [](Scene& s) {
       float* const source = pinned();
       *source = 1;
       ok(cudaMemcpyAsync(s.y, source, sizeof(float), cudaMemcpyHostToDevice, s.stream));
       *source = 2;
       expect(read(s.y, s.stream) == 1, "pinned memory was written before it was copied");
     }},

    // Graphs.
    {"synchronize_in_capture",
     [](Scene& s) {
       cudaGraph_t graph = nullptr;
       ok(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
       set(s.y, 5, 1, s.stream);
       (void)cudaStreamSynchronize(s.stream);
       ok(cudaStreamEndCapture(s.stream, &graph));
     }},
    {"allocate_in_capture",
     [](Scene& s) {
       ok(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
       allocate(1);
     }},
    {"graph_of_freed_memory",
     [](Scene& s) {
       cudaGraph_t graph = nullptr;
       cudaGraphExec_t executable = nullptr;
       float* const freed = allocate(1);
       ok(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
       set(freed, 5, 1, s.stream);
       ok(cudaStreamEndCapture(s.stream, &graph));
       ok(cudaGraphInstantiate(&executable, graph, 0));
       ok(cudaFree(freed));
       ok(cudaGraphLaunch(executable, s.stream));
     }},

    // Two devices.
    {"pointer_of_other_device", [](Scene& s) { set(Second().data, 1, 1, s.stream); }},
    {"other_device_in_struct", [](Scene& s) { set_by_table({Second().data}, s.stream); }},
    {"stream_of_other_device",
     [](Scene& s) {
       const Second second;
       ok(cudaSetDevice(1));
       set(second.data, 1, 1, s.stream);
     }},
    {"event_of_other_device",
     [](Scene& s) {
       cudaEvent_t event = nullptr;
       ok(cudaSetDevice(1));
       ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
       ok(cudaEventRecord(event, s.stream));
     }},
    {"copy_between_devices",
     [](Scene& s) {
       ok(cudaMemcpyAsync(s.y, Second().data, sizeof(float), cudaMemcpyDeviceToDevice, s.stream));
     }},
    {"correct_copy_between_devices",
     [](Scene& s) {
       const Second second;
       ok(cudaMemcpyPeerAsync(second.data, 1, s.x, 0, kCount * sizeof(float), s.stream));
       ok(cudaMemcpyAsync(s.y, second.data, kCount * sizeof(float), cudaMemcpyDefault, s.stream));
       expect(read(s.y + 7, s.stream) == 7, "the copy is wrong");
     }},
    {"matrix_of_other_device",
     [](Scene& s) {
       cublasHandle_t handle = nullptr;
       ok(cublasCreate(&handle));
       multiply(handle, s.x, Second().data, 8, 8);
     }},
    {"handle_of_other_device",
     [](Scene& s) {
       cublasHandle_t handle = nullptr;
       ok(cublasCreate(&handle));
       ok(cudaSetDevice(1));
       multiply(handle, s.x, s.y, 8, 8);
     }},
};

}  // namespace

int main(int count, char** arguments) {
  const auto found = kMistakes.find(count > 1 ? arguments[1] : "");
  if (found == kMistakes.end()) {  // mistakes_test.py compares the names with its own
    for (const auto& [name, commit] : kMistakes) std::printf("%s\n", name.c_str());
    return 2;
  }
  Scene scene;
  found->second(scene);
  scene.finish();
  std::printf("nothing noticed\n");
  return 0;
}
