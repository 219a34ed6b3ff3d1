#include "examples/common/result.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "tensor/error.h"
#include "tensor/storage.h"

namespace mezzo::examples {
namespace {

/// The most memory that this program has held so far. Linux counts it in KiB; getrusage would begin with what
/// the process had before this program, a Python's that started it for one.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

}  // namespace

TrainingRecord::TrainingRecord() : peak_mib_before_(peak_mib()) {}

void TrainingRecord::begin_step() {
  step_start_ = Clock::now();
  if (losses_.empty()) start_ = step_start_;
}

void TrainingRecord::end_step(double loss) {
  end_ = Clock::now();
  step_ms_.push_back(std::chrono::duration<double, std::milli>(end_ - step_start_).count());
  losses_.push_back(loss);
}

double TrainingRecord::seconds() const { return std::chrono::duration<double>(end_ - start_).count(); }

nlohmann::ordered_json TrainingRecord::result(const TrainingOptions& options, DType dtype,
                                              const nlohmann::ordered_json& more) const {
  const Device device = options.device;
  nlohmann::ordered_json result = {
      {"device", to_string(device)},
      {"dtype", name_of(dtype)},
      {"amp", options.amp},
      {"peak_mib", peak_mib()},
      {"training_mib", peak_mib() - peak_mib_before_},
      {"live_peak_mib", static_cast<double>(memory_stats(device).peak) / (1 << 20)},
      {"median_step_ms", median_step_ms(step_ms_)},
  };
  result.update(more);
  result["loss"] = losses_.back();
  result["seconds"] = seconds();
  return result;
}

double median_step_ms(std::vector<double> step_ms) {
  if (step_ms.size() > 2) step_ms.erase(step_ms.begin(), step_ms.begin() + 2);
  std::sort(step_ms.begin(), step_ms.end());
  return step_ms.at(step_ms.size() / 2);
}

void report(const TrainingOptions& options, const nlohmann::ordered_json& result) {
  std::ostream& out = messages(options);
  out << "picture " << options.out << '\n';
  for (const auto& [key, value] : result.items()) {
    out << key << ' '
        << (value.is_number()   ? text(std::setprecision(4), value.get<double>())
            : value.is_string() ? value.get<std::string>()
                                : value.dump())
        << '\n';
  }
  if (options.json) std::cout << result << std::endl;
}

}  // namespace mezzo::examples
