// Training in its plainest form: a model, a loss, an optimizer and a loop. Finds a line through noisy points.
#include <iostream>

#include "mezzo.h"

using namespace mezzo;

// A module names its children and says what it computes. It is a handle: copies share the parameters.
struct Line : nn::Module {
  nn::Linear fit = add("fit", nn::Linear(1, 1));
  Tensor forward(const Tensor& x) { return fit(x); }
};

int main() {
  manual_seed(0);
  const Tensor x = rand({100, 1}) * 4 - 2;
  const Tensor y = 3 * x - 1 + 0.1 * randn({100, 1});

  Line model;
  optim::SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 1; step <= 100; ++step) {
    sgd.zero_grad();                            // forget the last step's gradients
    const Tensor loss = mse_loss(model(x), y);  // forward
    loss.backward();                            // gradients of the parameters
    sgd.step();                                 // move against them
    if (step % 20 == 0) std::cout << "step " << step << ", loss " << loss.item<float>() << "\n";
  }

  std::cout << "\ny = " << model.fit.weight.item<float>() << " x + " << model.fit.bias.item<float>()
            << "   (the points were made with y = 3 x - 1)\n\n"
            << model << "\n";
  for (const auto& [name, value] : model.state_dict()) std::cout << name << " " << value << "\n";
}
