// Where a tensor lives and which kernels work on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mezzo {

/// A device: "cpu", "reference" (the naive kernels, over the CPU's memory), "cuda", "cuda:1".
struct Device {
  enum class Type : uint8_t { cpu, reference, cuda };
  static constexpr int kTypes = 3;

  Type type = Type::cpu;
  int index = 0;

  constexpr Device() = default;
  constexpr Device(Type type, int index = 0) : type(type), index(index) {}
  /// Parses a name; throws Error if there is no such device type.
  Device(std::string_view name);
  Device(const char* name) : Device(std::string_view(name)) {}
  Device(const std::string& name) : Device(std::string_view(name)) {}

  bool operator==(const Device&) const = default;
};

std::string to_string(const Device& device);

/// Devices of a type on this machine that this build can use; 0 if none.
int device_count(Device::Type type = Device::Type::cuda);
/// Waits for the work that the device has been given, by any thread: kernels of CUDA run on after an op
/// returns.
void synchronize(const Device& device);

}  // namespace mezzo
