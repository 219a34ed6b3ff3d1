// Reads handwritten digits: the classifier of a PyTorch tutorial on mixed precision. Data and network stand
// in digits.h, the tutorial's loop, line for line, here.
#include "examples/digits.h"

#include "examples/common/options.h"
#include "examples/common/picture.h"
#include "examples/common/progress.h"
#include "examples/common/result.h"
#include "mezzo.h"

using namespace mezzo;
using namespace mezzo::examples;

namespace {

struct DigitsOptions : TrainingOptions {
  std::string data = MEZZO_EXAMPLES_DIR "/data/digits.safetensors";
  int64_t batch_size = 64;
  double lr = 0.001;
};

/// The images whose digits the model gave the least probability, under what they show and what it read.
std::vector<Panel> hardest(const Tensor& images, const Tensor& labels, const Tensor& output) {
  const Tensor answers = output.argmax(1),
               losses = cross_entropy(output, labels, {}, {.reduction = LossReduction::none});
  std::vector<Panel> panels;
  for (int i = 0; i < 4; ++i) {
    const auto worst = losses.argmax().item<int64_t>();
    panels.push_back({text(labels[worst].item<int>(), " read as ", answers[worst].item<int>()), 8, 8,
                      images[worst].to_vector<float>()});
    losses[worst] = -1;
  }
  return panels;
}

void train(DigitsOptions& options) {
  const Device device = options.device;
  if (options.threads) set_num_threads(*options.threads);
  manual_seed(options.seed);

  const data::TensorDataset digits = load_digits(options.data, device);
  const int64_t held_out = digits.size() / 5;  // to be read after training
  const auto parts = data::random_split(digits, {digits.size() - held_out, held_out});
  data::DataLoader data_loader(parts[0],
                               {.batch_size = options.batch_size, .shuffle = true, .seed = options.seed});
  options.steps = options.epochs * data_loader.size();

  MyModel model;
  model.to(device);
  const nn::CrossEntropyLoss loss_fn;
  optim::Adam optimizer(model.parameters(), {.lr = options.lr});
  const std::optional<DType> half = amp_dtype(options);
  amp::GradScaler scaler(device, {.enabled = half == float16});  // gradients in bfloat16 do not underflow

  TrainingRecord record;
  Progress progress(options);
  int64_t step = 0, skipped_steps = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (auto [input, label] : data_loader) {
      record.begin_step();
      optimizer.zero_grad();
      Tensor loss;
      {
        // The tutorial halves input and label here. Autocast casts the input by itself, where that pays.
        // Labels stay int64: they are class indices, not quantities to be rounded, and PyTorch too refuses
        // halved ones.
        amp::Autocast autocast(device, half, half.has_value());
        const Tensor output = model(input);
        loss = loss_fn(output, label);
      }
      scaler.scale(loss).backward();
      skipped_steps += scaler.step(optimizer).skipped();
      scaler.update();
      record.end_step(loss.item<double>());
      progress.update(++step, record.losses().back(), record.seconds());
    }
  }

  model.eval();
  const NoGradGuard no_grad;
  const amp::Autocast autocast(device, half, half.has_value());
  const auto& [images, labels] = parts[1].tensors();
  const Tensor output = model(images);
  const auto result =
      record.result(options, output.dtype(),
                    {{"accuracy", output.argmax(1).eq(labels).to(float64).mean().item<double>()},
                     {"scale", scaler.get_scale()},
                     {"skipped_steps", skipped_steps}});
  write_training_picture(options.out, hardest(images, labels, output), record.losses());
  report(options, result);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Learns to read handwritten digits and counts those that it reads right, of images it has not seen");
  DigitsOptions options;
  options.epochs = 10;
  options.threads = 1;  // a step takes milliseconds: on a busy machine, threads mostly wait for each other
  options.out = "digits.png";
  add_training_options(app, options);
  app.add_option("--data", options.data, "Images and labels")
      ->check(CLI::ExistingFile)
      ->type_name("FILE.safetensors");
  app.add_option("--batch-size", options.batch_size, "Images of a step")->check(CLI::Range(1, 65536));
  app.add_option("--lr", options.lr, "Adam's learning rate")->check(CLI::NonNegativeNumber);
  return run(app, argc, argv, [&options] { train(options); });
}
