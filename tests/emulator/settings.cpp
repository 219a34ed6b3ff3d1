#include "tests/emulator/settings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace emulator {

namespace {

/// Hands the value of CUDA_EMULATOR_<name> to `set`, which says whether it understands it.
template <class Set>
void read(const char* name, Set set) {
  const char* const value = std::getenv((std::string("CUDA_EMULATOR_") + name).c_str());
  if (!value || !*value || set(std::string(value))) return;
  std::fprintf(stderr, "CUDA emulator: CUDA_EMULATOR_%s=%s is not understood\n", name, value);
  std::exit(2);  // a run in another mode than the one asked for would prove nothing
}

/// A setting with named values.
template <class Value, std::size_t Count>
void read(const char* name, Value& setting,
          const std::array<std::pair<std::string_view, Value>, Count>& values) {
  read(name, [&](const std::string& text) {
    for (const auto& [key, value] : values) {
      if (key == text) {
        setting = value;
        return true;
      }
    }
    return false;
  });
}

/// A whole number from `least` on.
template <class Number>
void read(const char* name, Number& setting, long long least) {
  read(name, [&](const std::string& text) {
    char* end = nullptr;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (*end || value < least) return false;
    setting = static_cast<Number>(value);
    return true;
  });
}

Settings from_environment() {
  using Order = Settings::Order;
  using Streams = Settings::Streams;
  constexpr std::array<std::pair<std::string_view, bool>, 2> switches{{{"0", false}, {"1", true}}};
  constexpr std::array<std::pair<std::string_view, Order>, 3> orders{
      {{"forward", Order::forward}, {"reverse", Order::reverse}, {"random", Order::random}}};
  constexpr std::array<std::pair<std::string_view, Streams>, 3> streams{
      {{"eager", Streams::eager}, {"lazy", Streams::lazy}, {"random", Streams::random}}};

  Settings made;
  read("ORDER", made.order, orders);
  read("STREAMS", made.streams, streams);
  read("SEED", made.seed, 0);
  read("WORKERS", made.workers, 1);
  read("PROTECT", made.protect, switches);
  read("FATAL", made.fatal, switches);
  read("MEMORY_MIB", made.memory_mib, 1);
  read("DEVICES", made.devices, 0);
  read("ARCH", made.architecture, 50);
  return made;
}

}  // namespace

Settings& settings() {
  static Settings instance = from_environment();
  return instance;
}

}  // namespace emulator
