#include "examples/common/options.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "tensor/error.h"

namespace mezzo::examples {

void add_training_options(CLI::App& app, TrainingOptions& options) {
  app.option_defaults()->always_capture_default();
  (options.epochs ? app.add_option("--epochs", options.epochs, "Passes over the training data")
                  : app.add_option("--steps", options.steps, "Training steps"))
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  app.add_option("--seed", options.seed, "Seed of all random numbers")->check(CLI::NonNegativeNumber);
  const std::string threads =
      options.threads ? text(*options.threads) : "OMP_NUM_THREADS or the number of cores";
  app.add_option("--threads", options.threads, text("Threads [", threads, "]"))->check(CLI::Range(1, 4096));
  app.add_option("--device", options.device, "Which kernels: the processor's, the plain loops or a GPU's")
      ->check(CLI::IsMember({"cpu", "reference", "cuda"}));
  app.add_option("--amp", options.amp,
                 "Mixed precision: autocast to bfloat16 or float16, the latter with a scaler")
      ->check(CLI::IsMember({"off", "bf16", "fp16"}));
  app.add_option("--out", options.out, "The picture")->type_name("FILE.png");
  app.add_option("--log", options.log, "Writes step, loss and seconds of each step")->type_name("FILE.jsonl");
  app.add_flag("--json", options.json, "The last line of stdout is the result; all else goes to stderr");

  // A check on the option would pass over the default path, and a training run is long to lose.
  app.callback([&options] {
    const auto check = [](const char* option, const std::string& path) {
      const std::string obstacle = obstacle_to_writing(path);
      if (!obstacle.empty()) throw CLI::ValidationError(option, text("cannot write ", path, ": ", obstacle));
    };
    check("--out", options.out);
    if (!options.log.empty()) check("--log", options.log);
  });
}

std::optional<DType> amp_dtype(const TrainingOptions& options) {
  if (options.amp == "off") return std::nullopt;
  return options.amp == "bf16" ? bfloat16 : float16;
}

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& train) {
  try {
    app.parse(argc, argv);
    train();
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

std::ostream& messages(const TrainingOptions& options) { return options.json ? std::cerr : std::cout; }

std::string obstacle_to_writing(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error))
    return text("there is no folder ", folder.string());
  const bool existed = fs::exists(fs::symlink_status(path, error));
  errno = 0;
  if (!std::ofstream(path, std::ios::app)) return std::generic_category().message(errno);
  if (!existed) fs::remove(path, error);
  return {};
}

}  // namespace mezzo::examples
