// The command line that all training examples share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace mezzo::examples {

/// What the shared options say. An example sets its own defaults before it parses. Paths are relative to the
/// caller's folder.
struct TrainingOptions {
  int64_t steps = 500;
  int64_t epochs = 0;  ///< not 0: --epochs stands for --steps, and the example sets steps before it trains
  uint64_t seed = 0;
  std::optional<int> threads{};  ///< none: OMP_NUM_THREADS or the number of cores
  std::string device = "cpu";
  std::string amp = "off";
  std::string out{};  ///< the picture
  std::string log{};  ///< a line of JSON for each step; empty: no log
  bool json = false;  ///< the last line of stdout is the result as JSON; all else goes to stderr
};

/// Declares the shared options. An option that the example adds afterwards shows its default in --help, as
/// these do.
void add_training_options(CLI::App& app, TrainingOptions& options);

/// The dtype of autocast that --amp names; none: no autocast.
std::optional<DType> amp_dtype(const TrainingOptions& options);

/// The body of main: parses, calls `train`, returns the exit code. A wrong command line prints CLI11's
/// message and returns CLI11's code; an exception out of `train` prints its text and returns 1.
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& train);

/// Where everything goes that is not the result as JSON: stdout, or stderr with --json.
std::ostream& messages(const TrainingOptions& options);

/// Why no file can be written at `path`: its folder is missing, or the system's reason. Empty if one can.
/// Leaves no file behind, and one that exists as it is.
std::string obstacle_to_writing(const std::string& path);

}  // namespace mezzo::examples
