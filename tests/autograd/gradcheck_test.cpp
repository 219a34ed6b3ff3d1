#include "autograd/gradcheck.h"

#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// x * x, whose gradient is right but in one element.
struct WrongInOneEntry {
  static constexpr auto name = "wrong";
  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    return square(in[0]);
  }
  Tensors backward(Node& node, Inputs g) const { return {g[0] * node.saved(0) * make({2, 2, 2.001})}; }
};

/// x * x with a right gradient whose own gradient is cut off.
struct WrongAtSecondOrder {
  static constexpr auto name = "cut";
  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    return square(in[0]);
  }
  Tensors backward(Node& node, Inputs g) const { return {g[0] * node.saved(0).detach() * 2}; }
};

template <class Op>
Tensors apply(Inputs in) {
  return {call(Op{}, in[0])};
}

Tensors product(Inputs in) { return {in[0] * in[1], in[0].exp()}; }

}  // namespace

TEST_CASE("gradcheck names the entry that is wrong") {
  const Tensors at{make({1, -2, 3})};
  const std::string text = gradcheck(apply<WrongInOneEntry>, at);
  CHECK(text.find("input 0, element 2") != std::string::npos);
  CHECK(text.find("gradient") != std::string::npos);
}

TEST_CASE("gradgradcheck sees what gradcheck cannot") {
  const Tensors at{make({1, -2, 3})};
  CHECK(gradcheck(apply<WrongAtSecondOrder>, at) == "");
  CHECK(gradgradcheck(apply<WrongAtSecondOrder>, at).find("input 0, element 0") != std::string::npos);
}

TEST_CASE("gradcheck accepts right gradients of several outputs, and leaves the inputs alone") {
  const Tensors at{leaf({1, -2, 3}), make({4, 5, 6})};
  CHECK(gradcheck(product, at) == "");
  CHECK(gradgradcheck(product, at) == "");
  CHECK_FALSE(at[0].grad().defined());
  CHECK(values(at[0]) == Values{1, -2, 3});
  CHECK(at[0].version() == 0);
}

TEST_CASE("gradcheck: an input that no output depends on has gradient 0") {
  const auto first = [](Inputs in) { return Tensors{in[0] * 2}; };
  CHECK(gradcheck(first, Tensors{make({1}), make({2})}) == "");
  CHECK(gradgradcheck(first, Tensors{make({1}), make({2})}) == "");
}

TEST_CASE("gradcheck refuses what differences cannot check") {
  CHECK_THROWS_WITH_AS(gradcheck(product, Tensors{make({1}, float32), make({1})}),
                       doctest::Contains("float64"), Error);
  CHECK(gradcheck([](Inputs in) { return Tensors{in[0].detach()}; }, Tensors{make({1})}) != "");
}

TEST_CASE("vector_jacobian equals grad of the composition") {
  const Tensors at{make({1, -2, 3}), make({4, 5, 6})};
  const Tensors gradients{make({1, 2, 3}), make({0.5, 0.25, 2})};
  const Tensors leaves{leaf({1, -2, 3}), leaf({4, 5, 6})};
  const Tensors outputs = product(leaves);
  const Tensors right = grad(outputs, leaves, gradients);
  {
    NoGradGuard guard;
    const Tensors result = vector_jacobian(product, at, gradients);
    for (size_t i = 0; i < 2; ++i) {
      CHECK(values(result[i]) == values(right[i]));
      CHECK_FALSE(result[i].requires_grad());
    }
  }
  const Tensors one = vector_jacobian(product, at, Tensors{{}, gradients[1]});
  CHECK(values(one[0]) == values(at[0].exp() * gradients[1]));
  CHECK_FALSE(one[1].defined());
}

TEST_CASE("vector_jacobian can be differentiated") {
  const auto first = [](Inputs in) { return vector_jacobian(product, in.first(2), Tensors{in[2], in[3]}); };
  CHECK(gradcheck(first, Tensors{make({1, -2}), make({4, 5}), make({1, 2}), make({0.5, 0.25})}) == "");
}
