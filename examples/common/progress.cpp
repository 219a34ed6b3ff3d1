#include "examples/common/progress.h"

#include <unistd.h>

#include <array>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace mezzo::examples {
namespace {

constexpr std::array<int64_t, 7> kMarks = {1, 2, 5, 10, 20, 50, 100};  // percent
constexpr double kRedrawSeconds = 0.1, kPlainSeconds = 10;

}  // namespace

Progress::Progress(const TrainingOptions& options)
    : Progress(options.steps, messages(options), isatty(options.json ? STDERR_FILENO : STDOUT_FILENO) == 1,
               options.log) {}

Progress::Progress(int64_t steps, std::ostream& out, bool terminal, const std::string& log)
    : steps_(steps),
      out_(out),
      terminal_(terminal),
      shown_at_(terminal ? -std::numeric_limits<double>::infinity() : 0) {
  if (log.empty()) return;
  log_.open(log);
  if (!log_) throw Error(text("log: cannot write ", log, ": ", obstacle_to_writing(log)));
}

Progress::~Progress() {
  if (line_open_) out_ << '\n';
}

bool Progress::due(int64_t step, double seconds) {
  if (terminal_) return step == steps_ || seconds - shown_at_ >= kRedrawSeconds;
  const size_t before = next_mark_;
  while (next_mark_ < kMarks.size() && 100 * step >= kMarks[next_mark_] * steps_) ++next_mark_;
  return next_mark_ > before || seconds - shown_at_ >= kPlainSeconds;
}

void Progress::update(int64_t step, double loss, double seconds, const nlohmann::ordered_json& more) {
  if (log_.is_open()) {
    nlohmann::ordered_json line{{"step", step}, {"loss", loss}, {"seconds", seconds}};
    line.update(more);
    log_ << line << std::endl;
  }
  if (!due(step, seconds)) return;
  shown_at_ = seconds;
  const double rate = static_cast<double>(step) / seconds;
  const std::string line = text(std::setprecision(4), "step ", step, "/", steps_, "  loss ", loss, "  ", rate,
                                " steps/s  ", duration(static_cast<double>(steps_ - step) / rate), " left");
  line_open_ = terminal_ && step < steps_;
  out_ << (terminal_ ? "\r\x1b[K" : "") << line << (line_open_ ? "" : "\n") << std::flush;
}

std::string duration(double seconds) {
  const auto [value, unit] = seconds < 99.5   ? std::pair{seconds, " s"}
                             : seconds < 5970 ? std::pair{seconds / 60, " min"}
                                              : std::pair{seconds / 3600, " h"};
  return text(std::fixed, std::setprecision(value < 9.95 ? 1 : 0), value, unit);
}

}  // namespace mezzo::examples
