// How far a training run is: a line for the person who waits, and a log for programs.
#pragma once

#include <cstdint>
#include <fstream>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/common/options.h"

namespace mezzo::examples {

/// Shows step, loss, steps a second and time left. On a terminal one line is redrawn, at most ten times a
/// second; elsewhere a plain line appears at 1, 2, 5, 10, 20, 50 and 100 % and whenever ten seconds have
/// passed.
class Progress {
 public:
  explicit Progress(const TrainingOptions& options);
  /// Throws Error if the log cannot be opened; an empty path stands for no log.
  Progress(int64_t steps, std::ostream& out, bool terminal, const std::string& log = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Step 1, 2, ... has ended with `loss`, `seconds` after the start. `more` is for the log.
  void update(int64_t step, double loss, double seconds,
              const nlohmann::ordered_json& more = nlohmann::ordered_json::object());

 private:
  bool due(int64_t step, double seconds);

  int64_t steps_;
  std::ostream& out_;
  bool terminal_;
  std::ofstream log_;
  double shown_at_;         // seconds
  size_t next_mark_ = 0;    // index of the next percentage
  bool line_open_ = false;  // the cursor stands behind a line that can be redrawn
};

/// A time span for people: `42 s`, `7 min`, `3.2 h`.
std::string duration(double seconds);

}  // namespace mezzo::examples
