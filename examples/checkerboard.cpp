// Learns a checkerboard from the coordinates of its pixels: what a network of 1x1 convolutions, which sees
// one pixel at a time, makes of sharp edges. Data and network stand in checkerboard.h, the training here.
#include "examples/checkerboard.h"

#include <cmath>
#include <iomanip>

#include "examples/common/options.h"
#include "examples/common/picture.h"
#include "examples/common/progress.h"
#include "examples/common/result.h"
#include "mezzo.h"

using namespace mezzo;
using namespace mezzo::examples;
using nlohmann::ordered_json;

namespace {

struct CheckerboardOptions : TrainingOptions {
  int size = 128, channels = 256;
  double freq = 8, lr = 0.001, memory_gib = 16;
  amp::GradScalerOptions scaling{};
  std::string save{}, resume{}, gradients{};  ///< paths; empty: not asked for
  bool trace = false, compare = false;
};

/// What a run computes in.
struct Mode {
  std::string name;
  std::optional<DType> autocast{};
  bool scaled = false;
  DType weights = float32;
};

struct Run {
  Mode mode;
  ordered_json result;
  std::vector<double> losses;
  Panel output;
  amp::GradientReport gradients;  ///< of the last step
};

/// A panel of the picture from a tensor [1, 1, height, width].
Panel panel(const std::string& title, const Tensor& image) {
  return {title, static_cast<int>(image.size(3)), static_cast<int>(image.size(2)), image.to_vector<float>()};
}

/// The board as the network is to see it.
Tensor target_image(const CheckerboardOptions& options) {
  return checker(options.size, options.size, options.freq)
      .unsqueeze(0)
      .unsqueeze(1)
      .to(Device(options.device));
}

void save(const std::string& path, int64_t step, nn::Module& net, optim::Optimizer& adam,
          const amp::GradScaler& scaler) {
  StateDict state;
  state.insert("model.", net.state_dict());
  state.insert("optimizer.", adam.state_dict());
  state.insert("scaler.", scaler.state_dict());
  save_safetensors(path, state, {{"step", std::to_string(step)}});
}

/// Takes over what save() wrote and returns the step. Throws Error for a file of another model.
int64_t resume(const std::string& path, nn::Module& net, optim::Optimizer& adam, amp::GradScaler& scaler) {
  const auto [tensors, metadata] = load_safetensors(path);
  if (!metadata.contains("step")) throw Error(text("resume: ", path, " is no checkpoint: it names no step"));
  net.load_state_dict(tensors.without_prefix("model."));
  adam.load_state_dict(tensors.without_prefix("optimizer."));
  if (scaler.is_enabled()) scaler.load_state_dict(tensors.without_prefix("scaler."));
  return std::stoll(metadata.at("step"));
}

Run train(const CheckerboardOptions& options, const Mode& mode) {
  const Device device = options.device;
  manual_seed(options.seed);
  reset_peak_memory(device);

  // Channels-last: the products of a 1x1 convolution then run over contiguous memory.
  const Tensor inputs =
      grid(options.size, options.size).unsqueeze(0).to(device).contiguous(channels_last).to(mode.weights);
  const Tensor targets = target_image(options).to(mode.weights);

  Net net(options.channels);
  net.to(device).to(mode.weights);
  const nn::MSELoss loss_fn;
  optim::Adam adam(net.parameters(), {.lr = options.lr});
  amp::GradScalerOptions scaling = options.scaling;
  scaling.enabled = mode.scaled;
  amp::GradScaler scaler(device, scaling);
  int64_t step = options.resume.empty() ? 0 : resume(options.resume, net, adam, scaler);

  TrainingRecord record;
  Progress progress(options);
  std::optional<amp::Trace> trace;
  if (options.trace) trace.emplace();
  amp::GradientReport gradients;
  Tensor outputs;
  int64_t skipped_steps = 0;
  while (step < options.steps) {
    ++step;
    record.begin_step();
    adam.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(device, mode.autocast, mode.autocast.has_value());
      outputs = net(inputs);
      loss = loss_fn(outputs, targets);
    }
    scaler.scale(loss).backward();
    if (step == options.steps && (options.compare || !options.gradients.empty())) {
      const double scale = scaler.get_scale();
      gradients = amp::GradientReport(net.named_parameters(), {.scale = scale, .holds_scale = scale});
    }
    skipped_steps += scaler.step(adam).skipped();
    scaler.update();
    record.end_step(loss.item<double>());
    progress.update(step, record.losses().back(), record.seconds(),
                    {{"scale", scaler.get_scale()}, {"skipped_steps", skipped_steps}});
  }
  if (!options.save.empty()) save(options.save, step, net, adam, scaler);
  if (!outputs.defined())
    throw Error(text("checkerboard: ", options.resume, " is at step ", step, " already"));
  if (trace) messages(options) << *trace;

  outputs = outputs.detach();
  const Tensor right = outputs.gt(0.5).eq(targets.gt(0.5));
  TrainingOptions ran = options;
  ran.amp = !mode.autocast ? "off" : mode.autocast == float16 ? "fp16" : "bf16";
  const auto result = record.result(ran, outputs.dtype(),
                                    {{"pixel_accuracy", right.to(float64).mean().item<double>()},
                                     {"target_mean", targets.to(float64).mean().item<double>()},
                                     {"scale", scaler.get_scale()},
                                     {"skipped_steps", skipped_steps}});
  return {mode, result, record.losses(), panel(mode.name, outputs), gradients};
}

/// The mode that --amp names.
Mode mode_of(const CheckerboardOptions& options) {
  const std::optional<DType> half = amp_dtype(options);
  return {"output", half, half == float16};
}

void train_once(const CheckerboardOptions& options) {
  const Run run = train(options, mode_of(options));
  write_training_picture(options.out, {run.output, panel("target", target_image(options))}, run.losses);
  if (!options.gradients.empty()) {
    write_gradient_picture(options.gradients, run.gradients);
    messages(options) << run.gradients;
  }
  report(options, run.result);
}

double number(const Run& run, const char* key) { return run.result.at(key).get<double>(); }

/// The largest board whose training fits the memory, if memory grows as the number of pixels.
int64_t largest_size(const CheckerboardOptions& options, const Run& run) {
  const double share = options.memory_gib * 1024 / number(run, "live_peak_mib");
  return static_cast<int64_t>(options.size * std::sqrt(share));
}

void print_comparison(const CheckerboardOptions& options, const std::vector<Run>& runs, std::ostream& out) {
  const auto row = [&out](const std::string& name) -> std::ostream& {
    return out << '\n' << std::left << std::setw(28) << name << std::right << std::fixed;
  };
  row("") << std::setw(9) << "loss" << std::setw(10) << "accuracy" << std::setw(9) << "seconds"
          << std::setw(9) << "steps/s" << std::setw(10) << "peak MiB" << std::setw(8) << "time"
          << std::setw(8) << "memory" << std::setw(16) << text("size in ", options.memory_gib, " GiB");
  for (const Run& run : runs) {
    row(run.mode.name) << std::setprecision(4) << std::setw(9) << number(run, "loss") << std::setprecision(3)
                       << std::setw(10) << number(run, "pixel_accuracy") << std::setprecision(1)
                       << std::setw(9) << number(run, "seconds") << std::setprecision(2) << std::setw(9)
                       << 1e3 / number(run, "median_step_ms") << std::setprecision(1) << std::setw(10)
                       << number(run, "live_peak_mib") << std::setprecision(2) << std::setw(8)
                       << number(run, "median_step_ms") / number(runs[0], "median_step_ms") << std::setw(8)
                       << number(run, "live_peak_mib") / number(runs[0], "live_peak_mib") << std::setw(16)
                       << largest_size(options, run);
  }
  out << "\n\nGradients of the last step that are zero, in %";
  for (size_t i = 0; i < runs[0].gradients.entries().size(); ++i) {
    row(runs[0].gradients.entries()[i].name);
    for (const Run& run : runs) {
      const auto& entry = run.gradients.entries()[i];
      out << std::setprecision(2) << std::setw(9)
          << 100 * static_cast<double>(entry.zero) / static_cast<double>(entry.elements);
    }
  }
  out << std::endl;
}

/// The same training in float32 and in what --amp names, beside it for float16 what the scaler and float32
/// weights are good for: all from the same weights.
void compare(const CheckerboardOptions& options) {
  const DType half = options.amp == "fp16" ? float16 : bfloat16;
  std::vector<Mode> modes = {{"float32"}, {text(name_of(half), " autocast"), half, half == float16}};
  if (half == float16) {
    modes.push_back({"float16, no scaler", half});
    modes.push_back({"everything in float16", std::nullopt, false, float16});
  }
  const amp::Support support = amp::support(options.device, half);
  if (support.level != amp::Level::native)
    messages(options) << name_of(half) << " will not be faster here: " << support.why << std::endl;
  std::vector<Run> runs;
  std::vector<Panel> panels = {panel("target", target_image(options))};
  std::vector<Curve> curves;
  for (const Mode& mode : modes) {
    messages(options) << mode.name << std::endl;
    runs.push_back(train(options, mode));
    panels.push_back(runs.back().output);
    curves.push_back({mode.name, runs.back().losses});
  }
  print_comparison(options, runs, messages(options));
  write_comparison_picture(options.out, panels, curves);
  ordered_json result;
  for (size_t i = 0; i < runs.size(); ++i) {
    constexpr const char* keys[] = {"float32", "mixed", "unscaled", "float16"};
    result[keys[i]] = runs[i].result;
  }
  for (const char* key : {"loss", "seconds", "median_step_ms", "live_peak_mib"})
    result["ratio"][key] = number(runs[1], key) / number(runs[0], key);
  report(options, result);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Learns a checkerboard from pixel coordinates and shows it as a picture");
  CheckerboardOptions options;
  options.out = "checkerboard.png";
  add_training_options(app, options);
  app.add_option("--size", options.size, "Pixels of the board's side")->check(CLI::Range(2, 16384));
  app.add_option("--channels", options.channels, "Channels of the hidden layers")
      ->check(CLI::Range(1, 65536));
  app.add_option("--freq", options.freq, "Fields of the board's side")->check(CLI::PositiveNumber);
  app.add_option("--lr", options.lr, "Adam's learning rate")->check(CLI::NonNegativeNumber);
  app.add_option("--init-scale", options.scaling.init_scale, "First scale of the loss, with --amp fp16");
  app.add_option("--growth-factor", options.scaling.growth_factor,
                 "Of the scale, after steps without overflow");
  app.add_option("--backoff-factor", options.scaling.backoff_factor, "Of the scale, after an overflow");
  app.add_option("--growth-interval", options.scaling.growth_interval,
                 "Steps without overflow before it grows");
  app.add_option("--save", options.save, "Writes model, optimizer and scaler at the end")
      ->type_name("FILE.safetensors");
  app.add_option("--resume", options.resume, "Goes on from such a file, up to --steps")
      ->type_name("FILE.safetensors");
  app.add_flag("--trace", options.trace, "Prints what autocast did with the inputs of each op");
  app.add_option("--report", options.gradients, "Draws where the last gradients lie in float16")
      ->type_name("FILE.png");
  app.add_flag("--compare", options.compare, "Trains in float32 and in mixed precision, and compares");
  app.add_option("--memory", options.memory_gib, "GiB for which --compare tells the largest size")
      ->check(CLI::PositiveNumber);
  return run(app, argc, argv, [&options] {
    if (options.threads) set_num_threads(*options.threads);
    options.compare ? compare(options) : train_once(options);
  });
}
