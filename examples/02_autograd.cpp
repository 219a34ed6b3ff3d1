// Gradients: ops on tensors that require grad are recorded on a tape; backward reads it from its end.
#include <iostream>

#include "mezzo.h"

using namespace mezzo;

int main() {
  // f(x, w) = sum of (w x)^2. Each op leaves a node that knows how a gradient passes through it.
  const Tensor x = tensor({1, 2, 3}), w = tensor({0.5, -1, 2}, {.requires_grad = true});
  const Tensor f = (w * x).square().sum();
  std::cout << "f = " << f << "\n";

  // df/dw = 2 w x^2, in w.grad().
  f.backward();
  std::cout << "w.grad() = " << w.grad() << "\nby hand    " << (2 * w * x.square()).detach() << "\n\n";

  // Gradients add up, so that a batch can come in parts; an optimizer's zero_grad() forgets them.
  (w * x).square().sum().backward();
  std::cout << "after a second backward: " << w.grad() << "\n\n";

  // Backward is itself made of ops. With create_graph they are recorded too: the gradient has a gradient.
  const Tensor v = full({}, 2.0, {.requires_grad = true});
  const Tensor cube = v * v * v;
  const Tensor first = grad({cube}, {v}, {}, {.create_graph = true})[0];
  const Tensor second = grad({first}, {v})[0];
  std::cout << "d/dv v^3 at 2 = " << first.item<float>() << ", d2/dv2 = " << second.item<float>() << "\n\n";

  // What is not to be differentiated need not be recorded.
  {
    const NoGradGuard guard;
    std::cout << "under a NoGradGuard, requires_grad is " << std::boolalpha << (w * x).requires_grad()
              << "\n\n";
  }

  // A tensor that was saved for backward must not change before it: version counters notice.
  Tensor y = exp(w);  // saves its output, since that is its slope
  y.mul_(2);
  try {
    y.sum().backward();
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}
