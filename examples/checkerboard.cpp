// Learns a checkerboard from the coordinates of its pixels: what a network of 1x1 convolutions, which sees
// one pixel at a time, makes of sharp edges. Data and network stand in checkerboard.h, the training here.
#include "examples/checkerboard.h"

#include "examples/common/options.h"
#include "examples/common/picture.h"
#include "examples/common/progress.h"
#include "examples/common/result.h"
#include "mezzo.h"

using namespace mezzo;
using namespace mezzo::examples;

namespace {

struct CheckerboardOptions : TrainingOptions {
  int size = 128, channels = 256;
  double freq = 8, lr = 0.001;
};

/// A panel of the picture from a tensor [1, 1, height, width].
Panel panel(const char* title, const Tensor& image) {
  return {title, static_cast<int>(image.size(3)), static_cast<int>(image.size(2)), image.to_vector<float>()};
}

void train(const CheckerboardOptions& options) {
  const Device device = options.device;
  if (options.threads) set_num_threads(*options.threads);
  manual_seed(options.seed);

  // Channels-last: the products of a 1x1 convolution then run over contiguous memory.
  const Tensor inputs = grid(options.size, options.size).unsqueeze(0).to(device).contiguous(channels_last);
  const Tensor targets =
      checker(options.size, options.size, options.freq).unsqueeze(0).unsqueeze(1).to(device);

  Net net(options.channels);
  net.to(device);
  const nn::MSELoss loss_fn;
  optim::Adam adam(net.parameters(), {.lr = options.lr});
  const std::optional<DType> half = amp_dtype(options);
  amp::GradScaler scaler(device, {.enabled = half == float16});

  TrainingRecord record;
  Progress progress(options);
  Tensor outputs;
  int64_t skipped_steps = 0;
  for (int64_t step = 1; step <= options.steps; ++step) {
    record.begin_step();
    adam.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(device, half, half.has_value());
      outputs = net(inputs);
      loss = loss_fn(outputs, targets);
    }
    scaler.scale(loss).backward();
    skipped_steps += scaler.step(adam).skipped();
    scaler.update();
    record.end_step(loss.item<double>());
    progress.update(step, record.losses().back(), record.seconds());
  }

  outputs = outputs.detach();
  const Tensor right = outputs.gt(0.5).eq(targets.gt(0.5));
  const auto result = record.result(options, outputs.dtype(),
                                    {{"pixel_accuracy", right.to(float64).mean().item<double>()},
                                     {"target_mean", targets.to(float64).mean().item<double>()},
                                     {"scale", scaler.get_scale()},
                                     {"skipped_steps", skipped_steps}});
  write_training_picture(options.out, {panel("output", outputs), panel("target", targets)}, record.losses());
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
  return run(app, argc, argv, [&options] { train(options); });
}
