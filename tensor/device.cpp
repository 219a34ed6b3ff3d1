#include "tensor/device.h"

#include <charconv>

#include "tensor/error.h"

namespace mezzo {

namespace {
constexpr std::string_view kNames[Device::kTypes] = {"cpu", "reference", "cuda"};
}

Device::Device(std::string_view name) {
  const auto colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  for (int i = 0; i < kTypes; ++i) {
    if (kind != kNames[i]) continue;
    type = static_cast<Type>(i);
    if (colon == std::string_view::npos) return;
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool whole = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
    if (whole && index >= 0 && (index == 0 || type == Type::cuda)) return;
    break;
  }
  fail("device", text("there is no device \"", name, '"'), {}, "devices are cpu, reference, cuda, cuda:1");
}

std::string to_string(const Device& device) {
  std::string name(kNames[static_cast<int>(device.type)]);
  return device.index ? name + ":" + std::to_string(device.index) : name;
}

}  // namespace mezzo
