// The programs of two tutorials on mixed precision in PyTorch, line for line as far as C++ goes: "Faster
// training with mixed precision" (the checkerboard) and a classifier of batches from a data loader. Every
// guard is float16, as theirs on CUDA is.
#include <cmath>

#include "mezzo.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

Tensor grid(int64_t width, int64_t height) {
  const TensorOptions options{.device = test_device()};
  const Tensor hrange = arange(width, options).unsqueeze(0).repeat({height, 1}).div(width);
  const Tensor vrange = arange(height, options).unsqueeze(1).repeat({1, width}).div(height);
  return stack({hrange, vrange}, 0);
}

Tensor checker(int64_t w, int64_t h, double freq) {
  const TensorOptions options{.device = test_device()};
  const double width = static_cast<double>(w), height = static_cast<double>(h);
  const Tensor hrange = arange(w, options).reshape({1, w}).mul(freq / width / 2.0).fmod(1.0).gt(0.5);
  const Tensor vrange = arange(h, options).reshape({h, 1}).mul(freq / height / 2.0).fmod(1.0).gt(0.5);
  return hrange.logical_xor(vrange).to(float32);
}

}  // namespace

TEST_CASE("tutorial: the grid of coordinates") {
  const Tensor coordinates = grid(4, 2);
  CHECK(coordinates.shape() == Shape{2, 2, 4});
  CHECK(coordinates.dtype() == float32);
  CHECK(values(coordinates[0]) == Values{0, 0.25, 0.5, 0.75, 0, 0.25, 0.5, 0.75});
  CHECK(values(coordinates[1]) == Values{0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5});
  CHECK(coordinates.unsqueeze(0).shape() == Shape{1, 2, 2, 4});
}

TEST_CASE("tutorial: the checkerboard") {
  // 8 columns, 4 rows, 2 periods halved: a field is 4 wide less the one where the remainder is 0.5 and not
  // above it.
  const Tensor board = checker(8, 4, 2);
  CHECK(board.shape() == Shape{4, 8});
  CHECK(board.dtype() == float32);
  CHECK(values(board) == Values{0, 0, 0, 0, 0, 1, 1, 1,  //
                                0, 0, 0, 0, 0, 1, 1, 1,  //
                                0, 0, 0, 0, 0, 1, 1, 1,  //
                                1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(board.unsqueeze(0).unsqueeze(1).shape() == Shape{1, 1, 4, 8});
}

TEST_CASE("tutorial: a board of many fields is half ones") {
  const double share = checker(512, 512, 8).mean().item<double>();
  CHECK(share > 0.49);
  CHECK(share < 0.51);
}

TEST_CASE("tutorial: autocast multiplies in 16 bits and adds in 32") {
  const Tensor x = rand({32, 32}).to(test_device());
  const Tensor y = rand({32, 32}).to(test_device());
  Tensor a, b;
  {
    const amp::Autocast autocast(test_device(), float16);
    a = x + y;
    b = matmul(x, y);
  }
  CHECK(a.dtype() == float32);
  CHECK(b.dtype() == float16);
}

TEST_CASE("tutorial: an operand in 16 bits changes neither") {
  const Tensor x = rand({32, 32}).to(test_device());
  const Tensor y = rand({32, 32}).to(test_device()).half();
  Tensor a, b;
  {
    const amp::Autocast autocast(test_device(), float16);
    a = x + y;
    b = matmul(x, y);
  }
  CHECK(a.dtype() == float32);
  CHECK(b.dtype() == float16);
}

TEST_CASE("tutorial: the forward pass under autocast") {
  nn::Linear model(3, 2);
  model.to(test_device());
  const nn::MSELoss loss_fn;
  const Tensor inputs = rand({4, 3}).to(test_device()), targets = rand({4, 2}).to(test_device());
  Tensor outputs, loss;
  {
    const amp::Autocast autocast(test_device(), float16);
    outputs = model(inputs);
    loss = loss_fn(outputs, targets);
  }
  CHECK(outputs.dtype() == float16);
  CHECK(loss.dtype() == float32);
  loss.backward();
  for (const Tensor& parameter : model.parameters()) CHECK(parameter.grad().dtype() == float32);
}

TEST_CASE("tutorial: the scaler steps with the gradient as it is, and skips one that overflows") {
  Tensor w = leaf({3}, float32);
  optim::SGD optimizer({w}, {.lr = 0.25});
  amp::GradScaler scaler;
  const auto iterate = [&](double factor) {
    optimizer.zero_grad();
    const Tensor loss = (w * w * factor).sum();
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  iterate(1);
  CHECK(values(w.detach()) == Values{1.5});  // 3 - 0.25 * 2 * 3
  CHECK(scaler.get_scale() == 65536);
  iterate(1e38);
  CHECK(values(w.detach()) == Values{1.5});
  CHECK(scaler.get_scale() == 32768);
}

namespace {

constexpr int64_t kSide = 16, kChannels = 16;  // 512 and 256 in the tutorial

struct Net : nn::Module {
  nn::Sequential net = add("net", nn::Sequential(                           //
                                      nn::Conv2d(2, kChannels, 1),          //
                                      nn::BatchNorm2d(kChannels),           //
                                      nn::ReLU(),                           //
                                      nn::Conv2d(kChannels, kChannels, 1),  //
                                      nn::BatchNorm2d(kChannels),           //
                                      nn::ReLU(),                           //
                                      nn::Conv2d(kChannels, kChannels, 1),  //
                                      nn::BatchNorm2d(kChannels),           //
                                      nn::ReLU(),                           //
                                      nn::Conv2d(kChannels, 1, 1)));

  Tensor forward(const Tensor& x) override { return net(x); }
};

/// What the tutorial prints and draws.
struct Trained {
  Net net{};
  Values losses{};
  Tensor outputs{};
};

Trained train_in_single_precision(const Tensor& inputs, const Tensor& targets, int steps) {
  Trained run;
  Net& net = run.net;
  net.to(test_device());
  const nn::MSELoss loss_fn;
  optim::Adam opt(net.parameters(), {.lr = 0.001});
  for (int i = 0; i < steps; ++i) {
    opt.zero_grad();
    run.outputs = net(inputs);
    const Tensor loss = loss_fn(run.outputs, targets);
    loss.backward();
    opt.step();
    run.losses.push_back(loss.item<double>());
  }
  return run;
}

Trained train_in_mixed_precision(const Tensor& inputs, const Tensor& targets, int steps) {
  Trained run;
  Net& net = run.net;
  net.to(test_device());
  const nn::MSELoss loss_fn;
  optim::Adam opt(net.parameters(), {.lr = 0.001});
  amp::GradScaler scaler;
  for (int i = 0; i < steps; ++i) {
    opt.zero_grad();
    Tensor loss;
    {
      const amp::Autocast autocast(test_device(), float16);
      run.outputs = net(inputs);
      loss = loss_fn(run.outputs, targets);
    }
    scaler.scale(loss).backward();
    scaler.step(opt);
    scaler.update();
    run.losses.push_back(loss.item<double>());
  }
  return run;
}

}  // namespace

TEST_CASE("tutorial: the checkerboard in single and in mixed precision") {
  const Tensor inputs = grid(kSide, kSide).unsqueeze(0).to(test_device());
  const Tensor targets = checker(kSide, kSide, 4).unsqueeze(0).unsqueeze(1).to(test_device());
  constexpr int steps = 20;
  manual_seed(1);
  const Trained single = train_in_single_precision(inputs, targets, steps);
  manual_seed(1);
  const Trained mixed = train_in_mixed_precision(inputs, targets, steps);

  CHECK(single.outputs.dtype() == float32);
  CHECK(mixed.outputs.dtype() == float16);
  for (const Tensor& parameter : mixed.net.parameters()) CHECK(parameter.dtype() == float32);
  for (const Trained* run : {&single, &mixed}) {
    CHECK(run->losses.back() < 0.9 * run->losses.front());
    const Tensor picture = run->outputs.squeeze().detach().to("cpu").to(float32);
    CHECK(picture.shape() == Shape{kSide, kSide});
  }
  for (size_t i = 0; i < steps; ++i) {
    CAPTURE(i);
    const double loss = single.losses[i];
    CHECK(std::abs(mixed.losses[i] - loss) <= 0.02 * loss);
  }
}

namespace {

struct MyModel : nn::Module {
  nn::Sequential layers = add("layers", nn::Sequential(nn::Linear(2, 32), nn::ReLU(), nn::Linear(32, 3)));
  Tensor forward(const Tensor& x) override { return layers(x); }
};

/// Points around (0, 0), (1, 0) and (0, 1), and which of them.
data::TensorDataset<2> clusters(int64_t length) {
  const Tensor labels = randint(3, {length}).to(test_device());
  const Tensor centres = stack({labels.eq(1).to(float32), labels.eq(2).to(float32)}, 1);
  return data::TensorDataset(centres + randn({length, 2}).to(test_device()) * 0.1, labels);
}

}  // namespace

TEST_CASE("tutorial: the classifier") {
  manual_seed(1);
  data::DataLoader data_loader(clusters(96), {.batch_size = 8, .shuffle = true});
  MyModel model;
  model.to(test_device());
  const nn::CrossEntropyLoss loss_fn;
  optim::Adam optimizer(model.parameters(), {.lr = 0.001});
  amp::GradScaler scaler;
  Values losses;  // of epochs
  for (int epoch = 0; epoch < 10; ++epoch) {
    losses.push_back(0);
    for (auto [input, label] : data_loader) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::Autocast autocast(test_device(), float16);
        input = input.half();  // but not the label, see below
        const Tensor output = model(input);
        CHECK(output.dtype() == float16);
        loss = loss_fn(output, label);
        CHECK(loss.dtype() == float32);
      }
      scaler.scale(loss).backward();
      CHECK(!scaler.step(optimizer).skipped());
      scaler.update();
      losses.back() += loss.item<double>() / static_cast<double>(data_loader.size());
    }
  }
  CHECK(losses.back() < 0.85 * losses.front());
}

TEST_CASE("tutorial: halved labels are refused, and told both remedies") {
  // The tutorial halves them. PyTorch refuses that too: class indices are not quantities to be rounded.
  const auto [input, label] = clusters(8).tensors();
  MyModel model;
  model.to(test_device());
  const nn::CrossEntropyLoss loss_fn;
  const amp::Autocast autocast(test_device(), float16);
  const Tensor output = model(input.half()), halved = label.half();
  const std::string error = error_text([&] { loss_fn(output, halved); });
  CHECK(error.starts_with(
      "cross_entropy: target must be int64 or uint8, not float32; "));  // as the loss got it
  CHECK(error.ends_with("; class indices: to(int64); probabilities: the shape of the input"));
  CHECK(std::isfinite(loss_fn(output, halved.to(int64)).item<double>()));
  CHECK(std::isfinite(loss_fn(output, full_like(output, 1 / 3.0)).item<double>()));
}
