// Launching a kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace emulator {

/// An argument that is a pointer, and the how many-eth argument it is.
struct PointerArgument {
  const void* pointer;
  int number;
};

/// A kernel with a copy of its arguments: what a stream queues and a graph keeps.
struct Kernel {
  const void* function = nullptr;
  void (*call)(const void* function, const void* arguments) = nullptr;
  std::shared_ptr<const void> arguments;
  std::size_t argument_bytes = 0;
  std::vector<PointerArgument> pointers;
};

/// Queues a kernel on a stream, like cudaLaunchKernel.
cudaError_t launch_kernel(Kernel kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                          cudaStream_t stream);

/// Calls the kernel in one CUDA thread. Not checked: reading the arguments is no access of the kernel.
template <class... Parameters>
__attribute__((no_sanitize("thread"))) void call_kernel(const void* function, const void* arguments) {
  const auto kernel = reinterpret_cast<void (*)(Parameters...)>(reinterpret_cast<std::uintptr_t>(function));
  const auto& values = *static_cast<const std::tuple<Parameters...>*>(arguments);
  [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((no_sanitize("thread"))) {
    kernel(std::get<I>(values)...);
  }
  (std::index_sequence_for<Parameters...>{});
}

/// Launches `kernel` on `stream`; arguments are converted to its parameters' types and copied.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  using Values = std::tuple<std::remove_cv_t<Parameters>...>;
  static_assert(!(std::is_reference_v<Parameters> || ...), "a kernel takes its arguments by value");
  static_assert(sizeof(Values) <= 32764, "more than a kernel can take");
  const auto values = std::make_shared<Values>(std::forward<Arguments>(arguments)...);
  Kernel made;
  made.function = reinterpret_cast<const void*>(kernel);
  made.call = &call_kernel<std::remove_cv_t<Parameters>...>;
  made.argument_bytes = sizeof(Values);
  std::apply(
      [&](const auto&... value) {
        int number = 0;
        const auto note = [&](const auto& argument) {
          if constexpr (std::is_convertible_v<decltype(argument), const void*>) {
            made.pointers.push_back({argument, number});
          }
          ++number;
        };
        (note(value), ...);
      },
      *values);
  made.arguments = values;
  return launch_kernel(std::move(made), grid, block, shared_bytes, stream);
}

}  // namespace emulator

// The toolkit keeps these forms, which take a kernel instead of its address, for nvcc.
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...),
                                                          int block_size, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel),
                                                       block_size, shared_bytes);
}
