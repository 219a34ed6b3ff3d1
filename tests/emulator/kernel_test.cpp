// What kernels can use: barriers, warps, atomics, shared memory. The kernels stand in this .cpp, since the
// emulator's CUDA is C++.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cmath>
#include <numeric>

#include "tests/emulator/support.h"

using namespace emulator;

namespace {

__global__ void barrier_values(int* results) {
  const int count = __syncthreads_count(threadIdx.x % 3 == 0);
  const int all = __syncthreads_and(threadIdx.x < 100), none = __syncthreads_and(threadIdx.x < 99);
  const int any = __syncthreads_or(threadIdx.x == 99), nobody = __syncthreads_or(threadIdx.x == 100);
  if (threadIdx.x != 0) return;
  const int values[] = {count, all, none, any, nobody};
  for (int i = 0; i < 5; ++i) results[i] = values[i];
}

TEST_CASE("barriers count, and, or the values of all threads") {
  const DeviceArray<int> results(5);
  REQUIRE(launch(barrier_values, 1, 100, 0, nullptr, results.data()) == cudaSuccess);
  CHECK(results.values() == std::vector<int>{34, 1, 0, 1, 0});
}

/// Sums neighbours until one value is left: a barrier for each round.
__global__ void block_sum(const int* x, int* sums) {
  SHARED(int, part, [256]);
  part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

TEST_CASE("barriers order shared memory, block by block") {
  std::vector<int> numbers(256 * 20);
  std::iota(numbers.begin(), numbers.end(), 0);
  const DeviceArray<int> x(numbers), sums(20);
  REQUIRE(launch(block_sum, 20, 256, 0, nullptr, x.data(), sums.data()) == cudaSuccess);
  const std::vector<int> got = sums.values();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(256 * i);
    CHECK(got[i] == std::accumulate(begin, begin + 256, 0));
  }
}

__global__ void indices(unsigned* seen) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  atomicAdd(&seen[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1u);
}

TEST_CASE("each thread of a grid of three dimensions runs once") {
  const DeviceArray<unsigned> seen(std::vector<unsigned>(2 * 3 * 4 * 5 * 6 * 7, 0));
  REQUIRE(launch(indices, dim3(2, 3, 4), dim3(5, 6, 7), 0, nullptr, seen.data()) == cudaSuccess);
  CHECK(seen.values() == std::vector<unsigned>(seen.size(), 1));
}

__global__ void shuffles(int* results) {
  const int lane = static_cast<int>(threadIdx.x);
  int* const mine = results + 8 * lane;
  mine[0] = __shfl_sync(0xffffffffu, lane, 5);
  mine[1] = __shfl_up_sync(0xffffffffu, lane, 3);
  mine[2] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
  mine[3] = __shfl_xor_sync(0xffffffffu, lane, 6);
  mine[4] = __shfl_sync(0xffffffffu, lane, -1, 16);
  mine[5] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 5 == 0));
  mine[6] = static_cast<int>(__match_any_sync(0xffffffffu, lane / 4));
  if (lane < 16)
    mine[7] = __reduce_add_sync(0x0000ffffu, lane);
  else
    mine[7] = __any_sync(0xffff0000u, lane == 20) + 2 * __all_sync(0xffff0000u, lane >= 16);
}

TEST_CASE("shuffles and votes") {
  const DeviceArray<int> results(32 * 8);
  REQUIRE(launch(shuffles, 1, 32, 0, nullptr, results.data()) == cudaSuccess);
  const std::vector<int> got = results.values();
  unsigned fifths = 0;
  for (int lane = 0; lane < 32; lane += 5) fifths |= 1u << lane;
  for (int lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    const int* const mine = &got[static_cast<std::size_t>(8 * lane)];
    CHECK(mine[0] == 5);
    CHECK(mine[1] == (lane < 3 ? lane : lane - 3));
    CHECK(mine[2] == (lane % 8 < 5 ? lane + 3 : lane));
    CHECK(mine[3] == (lane ^ 6));
    CHECK(mine[4] == lane / 16 * 16 + 15);
    CHECK(static_cast<unsigned>(mine[5]) == fifths);
    CHECK(static_cast<unsigned>(mine[6]) == 0xfu << lane / 4 * 4);
    CHECK(mine[7] == (lane < 16 ? 120 : 3));
  }
}

__global__ void shuffle_after_return(int* result) {
  if (threadIdx.x >= 20) return;  // lanes that have left are waited for no more
  const int sum = __shfl_down_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
  if (threadIdx.x == 0) *result = sum;
}

TEST_CASE("a shuffle goes on without lanes that have returned") {
  const DeviceArray<int> result(1);
  REQUIRE(launch(shuffle_after_return, 1, 32, 0, nullptr, result.data()) == cudaSuccess);
  CHECK(result.values()[0] == 1);
}

struct Totals {
  int sum, least, largest;
  unsigned bits, wrapped;
  unsigned long long wide;
  float real;
  double precise;
  __half half;
  unsigned swapped;
};

__global__ void count_all(Totals* totals) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&totals->sum, i);
  atomicMin(&totals->least, i);
  atomicMax(&totals->largest, i);
  atomicOr(&totals->bits, 1u << i % 32);
  atomicInc(&totals->wrapped, 9u);
  atomicAdd(&totals->wide, 1ull << 32);
  atomicAdd(&totals->real, 0.5f);
  atomicAdd(&totals->precise, 0.25);
  atomicAdd(&totals->half, __float2half(1.f));
  unsigned before = atomicAdd(&totals->swapped, 0u);
  while (atomicCAS(&totals->swapped, before, before + 2) != before) before = atomicAdd(&totals->swapped, 0u);
}

TEST_CASE("atomics of each type lose no update") {
  const DeviceArray<Totals> totals(std::vector<Totals>{{0, 1000, -1, 0, 0, 0, 0, 0, __float2half(0.f), 0}});
  REQUIRE(launch(count_all, 8, 64, 0, nullptr, totals.data()) == cudaSuccess);
  const Totals got = totals.values()[0];
  CHECK(got.sum == 512 * 511 / 2);
  CHECK(got.least == 0);
  CHECK(got.largest == 511);
  CHECK(got.bits == 0xffffffffu);
  CHECK(got.wrapped == 512 % 10);
  CHECK(got.wide == 512ull << 32);
  CHECK(got.real == 256.f);
  CHECK(got.precise == 128.);
  CHECK(__half2float(got.half) == 512.f);
  CHECK(got.swapped == 1024);
}

__global__ void fill_dynamic(float* result, unsigned count) {
  DYN_SHARED(float, values);
  const bool fresh = isnan(values[threadIdx.x]);  // nothing of the block before
  __syncthreads();
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) values[i] = static_cast<float>(i);
  __syncthreads();
  if (threadIdx.x == 0) result[blockIdx.x] = fresh ? values[count - 1] : -1.f;
}

TEST_CASE("dynamic shared memory beyond 48 KiB needs to be asked for") {
  constexpr unsigned kCount = 20000;
  const DeviceArray<float> result(3);
  const auto run = [&] {
    return launch(fill_dynamic, 3, 32, kCount * sizeof(float), nullptr, result.data(), kCount);
  };
  CHECK(run() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kCount * sizeof(float))) == cudaSuccess);
  CHECK(run() == cudaSuccess);
  CHECK(result.values() == std::vector<float>(3, kCount - 1));
}

__global__ void plain_shared(int* result) {
  __shared__ int value;
  if (threadIdx.x == 0) value = static_cast<int>(blockIdx.x);
  __syncthreads();
  if (threadIdx.x == 1) result[blockIdx.x] = value;
}

TEST_CASE("plain __shared__ works too") {
  const DeviceArray<int> result(4);
  REQUIRE(launch(plain_shared, 4, 32, 0, nullptr, result.data()) == cudaSuccess);
  CHECK(result.values() == std::vector<int>{0, 1, 2, 3});
}

__global__ void arithmetic(const float* x, float* results) {
  results[0] = __expf(x[0]) + __logf(x[1]) + rsqrtf(x[2]) + __fdividef(x[0], x[2]);
  results[1] = __half2float(__hfma(__float2half(x[0]), __float2half(x[1]), __float2half(x[2])));
  results[2] = __bfloat162float(__hadd(__float2bfloat16(x[0]), __float2bfloat16(0.001f)));
  results[3] = static_cast<float>(min(3, 2u) + max(2.5f, static_cast<float>(NAN)));
  results[4] = __int_as_float(__float_as_int(x[1])) + static_cast<float>(__popc(255u) + __clz(1) + __ffs(8));
  const float4 four = make_float4(x[0], x[1], x[2], 1.f);
  results[5] = four.x + four.w + __ldg(x);
}

TEST_CASE("arithmetic of device code") {
  const DeviceArray<float> x(std::vector<float>{1.f, 2.f, 4.f}), results(6);
  REQUIRE(launch(arithmetic, 1, 1, 0, nullptr, x.data(), results.data()) == cudaSuccess);
  const std::vector<float> got = results.values();
  CHECK(got[0] == doctest::Approx(std::exp(1.) + std::log(2.) + 0.5 + 0.25));
  CHECK(got[1] == 6.f);
  CHECK(got[2] == 1.f);  // bfloat16 has no 1.001
  CHECK(got[3] == 4.5f);
  CHECK(got[4] == 2.f + 8 + 31 + 4);
  CHECK(got[5] == 3.f);
}

__global__ void overflow(float* x, unsigned n) {
  if (threadIdx.x < n) __syncthreads();
  x[threadIdx.x] = 1;
}

}  // namespace

#include "tests/emulator/errors.h"
#include "tests/emulator/settings.h"

TEST_CASE("an error on the device stays until it is cleared, if it is not to end the process") {
  const DeviceArray<float> x(32);
  settings().fatal = false;
  CHECK((launch(overflow, 1, 32, 0, nullptr, x.data(), 7u) != cudaSuccess ||
         cudaDeviceSynchronize() == cudaErrorLaunchFailure));
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK(launch(overflow, 1, 32, 0, nullptr, x.data(), 32u) == cudaErrorLaunchFailure);
  clear_sticky_error();
  settings().fatal = true;
  CHECK(launch(overflow, 1, 32, 0, nullptr, x.data(), 32u) == cudaSuccess);
  CHECK(x.values()[31] == 1);
}
