// Mixed precision: what autocast does, what float16 does to gradients, and how a scaled loss saves them.
//   sh examples/run.sh 05_mixed_precision [DEVICE]
#include <iostream>

#include "mezzo.h"

using namespace mezzo;

void title(const char* words) { std::cout << "\n--- " << words << "\n"; }

// Inside a guard, an op runs in 16 bits where that is safe and pays: products, but not sums.
void autocast(const Device& device) {
  title("autocast");
  const Tensor x = rand({2, 2}, {.device = device}), y = rand({2, 2}, {.device = device});
  {
    const amp::Autocast guard(device);
    std::cout << "x + y is " << name_of((x + y).dtype()) << ", matmul(x, y) is "
              << name_of(matmul(x, y).dtype()) << "\n\n";
  }

  // A table says what becomes of the inputs of each op: low casts them to 16 bits, full to float32, widest to
  // float32 if one of them is; keep leaves them alone.
  amp::print_table(device);

  // A trace shows it at work.
  nn::Sequential net(nn::Conv2d(2, 8, 1), nn::BatchNorm2d(8), nn::ReLU(), nn::Conv2d(8, 1, 1));
  net.to(device);
  const Tensor images = rand({4, 2, 8, 8}, {.device = device});
  const Tensor targets = zeros({4, 1, 8, 8}, {.device = device});
  const amp::Trace trace;
  {
    const amp::Autocast guard(device);
    mse_loss(net(images), targets);
  }
  std::cout << "\n" << trace;
}

// A loss whose gradient is `slope`: slope * x w, where x = 1 and the product is float16. On its way from the
// loss to w the gradient goes through the product, so float16 has to hold it.
Tensor loss_of(const Tensor& w, double slope) {
  Tensor product;
  {
    const amp::Autocast guard(w.device(), float16);
    product = matmul(ones_like(w), w);
  }
  return slope * product.to(float32);
}

// Half of float16's smallest number, 2^-25 = 3e-8, and all below it become 0: a network that is nearly
// trained stops learning. A scale on the loss is a scale on every gradient below it.
void underflow(const Device& device) {
  title("a gradient of 1e-8");
  const Tensor w = ones({1}, {.device = device, .requires_grad = true});
  loss_of(w, 1e-8).backward();
  std::cout << "without a scale: " << w.grad().item<float>() << "\n";

  optim::SGD sgd({w}, {.lr = 1});
  amp::GradScaler scaler(device);
  sgd.zero_grad();
  scaler.scale(loss_of(w, 1e-8)).backward();
  std::cout << "times " << scaler.get_scale() << ": " << w.grad().item<float>() << "\n";
  scaler.unscale_(sgd);  // in float32, which holds small numbers; step() does it if nobody has
  std::cout << "unscaled: " << w.grad().item<float>() << "\n";
}

// float16 ends at 65504. A scale that is too large makes gradients infinite: then the step is skipped, w
// stays as it is, and the scale is halved. After growth_interval good steps (2000, unless said otherwise) it
// doubles.
void overflow(const Device& device) {
  title("a gradient of 1, and scales that are too large for it");
  const Tensor w = ones({1}, {.device = device, .requires_grad = true});
  optim::SGD sgd({w}, {.lr = 0.25});
  amp::GradScaler scaler(device, {.growth_interval = 2});
  for (int step = 1; step <= 5; ++step) {
    sgd.zero_grad();
    scaler.scale(loss_of(w, 1)).backward();
    std::cout << "step " << step << ": scale " << scaler.get_scale() << ", scaled gradient "
              << w.grad().item<float>();
    const amp::StepResult result = scaler.step(sgd);
    scaler.update();
    std::cout << (result.skipped() ? ", skipped" : ", taken") << ": w = " << w.item<float>() << "\n";
  }
  std::cout << "the scale is now " << scaler.get_scale() << "\n";
}

// A part that needs more bits stays out of it: a guard that is off, and inputs in float32.
struct Careful : nn::Module {
  nn::Linear body = add("body", nn::Linear(4, 4)), head = add("head", nn::Linear(4, 1));
  bool converts = true;

  Tensor forward(const Tensor& x) override {
    const Tensor hidden = body(x);
    const amp::Autocast off(x.device(), std::nullopt, false);
    const Tensor y = head(converts ? hidden.to(float32) : hidden);
    std::cout << "the body gives " << name_of(hidden.dtype()) << ", the head " << name_of(y.dtype()) << "\n";
    return y;
  }
};

void one_part_in_float32(const Device& device) {
  title("one part in float32");
  Careful net;
  net.to(device);
  const Tensor x = ones({1, 4}, {.device = device});
  const amp::Autocast guard(device);
  net(x);

  // The guard that is off converts nothing, 16 bits to float32 neither.
  net.converts = false;
  try {
    net(x);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

// The gradients of a network that has nearly learned its task. A mean over 4096 samples makes them small for
// what belongs to one sample; those of weights are sums over all samples again.
void report(const Device& device) {
  title("a network's gradients in float16");
  manual_seed(0);
  nn::Linear in(16, 32), out(32, 1);
  in.to(device);
  out.to(device);
  const Tensor x = randn({4096, 16}).to(device), error = 1e-3 * randn({4096, 1}).to(device);
  amp::GradScaler scaler(device);
  Tensor hidden, loss;
  {
    const amp::Autocast guard(device, float16);
    hidden = in(x).tanh();
    hidden.retain_grad();
    const Tensor y = out(hidden);
    loss = mse_loss(y, y.detach().to(float32) + error);
  }
  scaler.scale(loss).backward();
  const double scale = scaler.get_scale();
  std::cout << amp::GradientReport({{"hidden", hidden}, {"in.weight", in.weight}, {"out.weight", out.weight}},
                                   {.scale = scale, .holds_scale = scale});
}

int main(int argc, char** argv) {
  const Device device = argc > 1 ? argv[1] : "cpu";
  autocast(device);
  underflow(device);
  overflow(device);
  one_part_in_float32(device);
  report(device);
}
