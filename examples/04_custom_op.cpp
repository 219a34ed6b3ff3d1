// A differentiable function of your own: one struct, which goes the way of mezzo's own ops.
#include <iostream>

#include "autograd/call.h"
#include "mezzo.h"

using namespace mezzo;

// softclip(x) = limit tanh(x / limit): nearly x inside +-limit, and never beyond it. Members are the call's
// options.
struct SoftClip {
  static constexpr std::string_view name = "softclip";
  double limit;

  // Throws before anything is computed.
  void check(Inputs in) const {
    if (limit <= 0) fail(name, text("limit = ", limit, " must be positive"), {{"input", in[0]}});
  }

  // Ops in forward leave no nodes of their own; the whole function is one node, which keeps what `save` is
  // given. Here that is the output, all that the slope needs: memory is what a function of your own saves
  // over the composition.
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor y = limit * tanh(in[0] / limit);
    save(y);
    return y;
  }

  // dx = dy (1 - (y / limit)^2). Written in ops, so it can be differentiated again.
  Tensors backward(Node& node, Inputs g) const {
    const Tensor y = node.saved(0);
    return {g[0] * (1 - square(y / limit))};
  }
};

Tensor softclip(const Tensor& x, double limit) { return call(SoftClip{limit}, x); }

int main() {
  const Tensor x = tensor({-10, -1, 0, 1, 10}, {.requires_grad = true});
  const Tensor y = softclip(x, 2);
  y.sum().backward();
  std::cout << "softclip(x, 2) = " << y << "\nslope          = " << x.grad() << "\n\n";

  // gradcheck compares the gradient with differences in float64, gradgradcheck the second one: "" means that
  // they agree.
  const std::vector<Tensor> points{tensor({-3, -0.5, 0.2, 2.5}, {.dtype = float64})};
  const auto f = [](Inputs in) { return Tensors{softclip(in[0], 2)}; };
  const std::string first = gradcheck(f, points), second = gradgradcheck(f, points);
  std::cout << "gradient: " << (first.empty() ? "agrees" : first)
            << "\nsecond gradient: " << (second.empty() ? "agrees" : second) << "\n\n";

  try {
    softclip(x, -1);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}
