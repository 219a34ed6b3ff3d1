// Every row of ops.def: its gradient and second gradient against central differences, or its refusal of them.
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "tests/op_table/layouts.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

/// The text of the Error from a second derivative; "" if there is none.
std::string refusal_of_second(const Sample& sample) {
  Tensors leaves;
  for (const Tensor& x : sample.inputs) leaves.push_back(x.detach().requires_grad_());
  try {
    const Tensors first = grad(Tensors{sample.run(leaves)[0].sum()}, leaves, {}, {.create_graph = true});
    first[0].sum().backward();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_gradients(Order order, std::string_view op, const Sample& sample) {
  if (order == Order::NoGrad) {
    Tensors leaves;
    for (const Tensor& x : sample.inputs) leaves.push_back(x.detach().requires_grad_());
    for (const Tensor& y : sample.run(leaves)) CHECK_FALSE(y.requires_grad());
    return;
  }
  CHECK(gradcheck(sample.run, sample.inputs) == "");
  if (order == Order::Twice)
    CHECK(gradgradcheck(sample.run, sample.inputs) == "");
  else
    CHECK(refusal_of_second(sample).starts_with(text(op, ": ")));
}

}  // namespace

TEST_CASE("op table: gradients and second gradients") {
  const uint64_t seed = seed_samples();
  CAPTURE(seed);
  for (size_t k = 0; k < kOps; ++k) {
    const auto id = static_cast<OpId>(k);
    for (const Sample& sample : samples_on_device(id)) {
      CAPTURE(info(id).name);
      CAPTURE(sample.what);
      check_gradients(info(id).order, info(id).name, sample);
    }
  }
}
