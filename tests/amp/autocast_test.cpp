// The autocast guard: state, nesting, threads, in-place ops, gradients, weights, custom ops, errors.
#include "amp/autocast.h"

#include <doctest/doctest.h>

#include <sstream>
#include <thread>

#include "amp/trace.h"
#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/backend.h"
#include "tensor/index.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

Tensor ones_of(DType dtype, const Shape& shape = {2, 2}) {
  return ones(shape, {.dtype = dtype, .device = test_device()});
}
Tensor product_of(DType a, DType b) { return matmul(ones_of(a), ones_of(b)); }
/// The dtype that matmul of float32 has here.
DType here() { return product_of(float32, float32).dtype(); }
nn::Linear linear_of(int64_t in, int64_t out) {
  nn::Linear layer(in, out);
  layer.to(test_device());
  return layer;
}

}  // namespace

TEST_CASE("autocast: the default dtype, the one that is asked for, and what is there without a guard") {
  CHECK(here() == float32);
  {
    const amp::Autocast autocast(test_device());
    const DType low = test_device().type == Device::Type::cuda ? float16 : bfloat16;
    CHECK(here() == low);
    CHECK(product_of(bfloat16, float16).dtype() == low);
    CHECK((ones_of(float32) + ones_of(bfloat16)).dtype() == float32);
  }
  {
    const amp::Autocast autocast(test_device(), float16);
    CHECK(here() == float16);
    CHECK((ones_of(float32) + ones_of(float16)).dtype() == float32);
  }
  CHECK(here() == float32);
}

TEST_CASE("autocast: guards nest, and each restores what was before, also on the way of an exception") {
  const amp::Autocast outer(test_device(), bfloat16);
  {
    const amp::Autocast inner(test_device(), float16);
    CHECK(here() == float16);
    {
      const amp::Autocast off(test_device(), std::nullopt, false);
      CHECK(here() == float32);
      CHECK_THROWS_AS(product_of(float32, float16), Error);
      const amp::Autocast again(test_device(), float16);
      CHECK(product_of(float32, bfloat16).dtype() == float16);
    }
    CHECK(here() == float16);
  }
  try {
    const amp::Autocast inner(test_device(), float16);
    product_of(float32, float64);
  } catch (const Error&) {
  }
  CHECK(here() == bfloat16);
}

TEST_CASE("autocast: a new thread starts without it") {
  const amp::Autocast autocast(test_device(), bfloat16);
  DType there = bfloat16, own = float32;
  std::thread([&] {
    there = here();
    const amp::Autocast inside(test_device(), float16);
    own = here();
  }).join();
  CHECK(there == float32);
  CHECK(own == float16);
  CHECK(here() == bfloat16);
}

TEST_CASE("autocast: what is not eligible stays as it is") {
  const amp::Autocast autocast(test_device(), bfloat16);
  CHECK(product_of(float64, float64).dtype() == float64);
  CHECK(product_of(int64, int64).dtype() == int64);
  CHECK(error_text([] {
          product_of(float64, float32);
        }).starts_with("matmul: b is bfloat16 but a is float64; "));
  CHECK(mse_loss(ones_of(float64), ones_of(float16)).dtype() == float64);
  CHECK((ones_of(bfloat16) * 2.5).dtype() == bfloat16);
  const Tensor low = ones_of(bfloat16);
  CHECK(low.to(float32).dtype() == float32);
  // A guard of another device casts nothing, and mixed devices are still the error that they are.
  const Device other = test_device() == Device("cpu") ? "reference" : "cpu";
  const Tensor elsewhere = ones({2, 2}, {.device = other});
  CHECK(matmul(elsewhere, elsewhere).dtype() == float32);
  CHECK(error_text([&] { matmul(ones_of(float32), elsewhere); }).starts_with("matmul: tensors are on "));
}

TEST_CASE("autocast: in-place ops and a dtype that the caller names are left alone") {
  const amp::Autocast autocast(test_device(), float16, true, amp::cuda_table);
  Tensor x = ones_of(float16);
  CHECK(pow(x, 2).dtype() == float32);
  CHECK(x.pow_(2).dtype() == float16);
  CHECK(error_text([&] { Tensor(ones_of(int64)).add_(0.5); }).starts_with("add_: "));
  CHECK(sum(x).dtype() == float32);
  CHECK(sum(x, {}, false, bfloat16).dtype() == bfloat16);
  CHECK(softmax(x, 0, float16).dtype() == float16);
  CHECK(norm(x).dtype() == float32);
  CHECK(square(x).dtype() == float32);
  CHECK((x * x).dtype() == float16);
  CHECK((1 / x).dtype() == float16);
}

TEST_CASE("autocast: ops inside an op are not cast a second time") {
  const amp::Autocast autocast(test_device(), float16, true, amp::cuda_table);
  CHECK(var(ones_of(float16)).dtype() == float16);  // made of ops that are listed by themselves
  CHECK(mezzo::std(ones_of(float16)).dtype() == float16);
  CHECK(gelu(ones_of(float16)).dtype() == float16);
}

TEST_CASE("autocast: the widest dtype, in the order of the inputs") {
  const amp::Autocast autocast(test_device(), bfloat16, true, amp::cpu_table);
  const Tensor low = ones_of(bfloat16), other = ones_of(float16), full = ones_of(float32);
  CHECK(cat({low, low}).dtype() == bfloat16);
  CHECK(stack({low, full}).dtype() == float32);
  CHECK(cat({full, other}).dtype() == float32);
  CHECK(error_text([&] {
          cat({other, full});
        }).starts_with("cat: takes the widest dtype, and neither of bfloat16 and float16 holds the other; "));
}

TEST_CASE("autocast: binary_cross_entropy is refused by CUDA's table, and not by the CPU's") {
  const Tensor p = full({2, 2}, 0.5, {.device = test_device()});
  {
    const amp::Autocast autocast(test_device(), bfloat16, true, amp::cpu_table);
    CHECK(binary_cross_entropy(p.bfloat16(), p).dtype() == float32);
  }
  const amp::Autocast autocast(test_device(), float16, true, amp::cuda_table);
  const std::string refusal = error_text([&] { binary_cross_entropy(p, p); });
  CHECK(refusal.starts_with("binary_cross_entropy: is unsafe under autocast"));
  CHECK(refusal.find("binary_cross_entropy_with_logits") != std::string::npos);
  CHECK(error_text([&] { nn::BCELoss()(p, p); }).starts_with("binary_cross_entropy: is unsafe"));
}

TEST_CASE("autocast: a table is a value") {
  amp::AutocastTable table = amp::cpu_table;
  table[OpId::add] = amp::Policy::low;
  table[OpId::matmul] = amp::Policy::full;
  const amp::Autocast autocast(test_device(), bfloat16, true, table);
  CHECK((ones_of(float32) + ones_of(float32)).dtype() == bfloat16);
  CHECK(product_of(bfloat16, bfloat16).dtype() == float32);
  CHECK(amp::cpu_table[OpId::add] == amp::Policy::keep);
  table[OpId::add] = amp::Policy::full_dtype;
  const amp::Autocast wrong(test_device(), bfloat16, true, table);
  CHECK(error_text([] {
          ones_of(float32) + 1;
        }).starts_with("add: its policy is full_dtype, but it has no option"));
}

TEST_CASE("autocast: gradients arrive in the dtypes of what they belong to") {
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2}, float32), x = leaf({1, 0, 0, 1}, {2, 2}, bfloat16);
  Tensor y;
  {
    const amp::Autocast autocast(test_device(), bfloat16);
    y = matmul(x, w);
    CHECK(y.dtype() == bfloat16);
  }
  y.sum().backward();
  CHECK(w.grad().dtype() == float32);
  CHECK(x.grad().dtype() == bfloat16);
  CHECK(values(x.grad()) == Values{3, 7, 3, 7});
  // A second derivative through the cast: d/dw bf16(w)^3 = 3 w^2, then 6 w.
  const Tensor v = leaf({2}, float32);
  const Tensor low = v.to(bfloat16), cube = low * low * low;
  const Tensors first = grad({cube}, {v}, {}, {.create_graph = true});
  CHECK(values(first[0]) == Values{12});
  CHECK(values(grad({first[0]}, {v})[0]) == Values{12});
}

TEST_CASE("autocast: backward inside the guard is not cast") {
  amp::Trace trace;
  const amp::Autocast autocast(test_device(), bfloat16);
  const Tensor w = leaf({1, 2, 3, 4}, {2, 2}, float32);
  const Tensor y = matmul(w, w).sum();
  const size_t forward = trace.entries().size();
  y.backward();
  CHECK(trace.entries().size() == forward);
  CHECK(here() == bfloat16);
}

TEST_CASE(
    "autocast: batch_norm keeps a 16-bit input, computes in float32 and has float32 parameter gradients") {
  for (const bool affine : {true, false}) {
    CAPTURE(affine);
    nn::BatchNorm2d layer(3, {.affine = affine});
    layer.to(test_device());
    const Tensor x =
        (arange(96, {.dtype = float32, .device = test_device()}).reshape({2, 3, 4, 4}) / 16).bfloat16();
    const Tensor in = x.detach().requires_grad_();
    const amp::Autocast autocast(test_device(), bfloat16);
    const Tensor y = layer(in);
    CHECK(y.dtype() == bfloat16);
    CHECK(layer.running_var.dtype() == float32);
    // Equal to the result in float32, rounded once.
    nn::BatchNorm2d other(3);
    other.to(test_device());
    CHECK(values(y) == values(other(x.to(float32)).bfloat16()));
    y.sum().backward();
    CHECK(in.grad().dtype() == bfloat16);
    if (affine) CHECK(layer.weight.grad().dtype() == float32);
  }
  // A variance that float16 cannot hold: +-300 is 90,000.
  const Tensor wide = make({300, -300, 300, -300}, {4, 1}, float16);
  CHECK(values(batch_norm(wide, {}, {}, {}, {})) == Values{1, -1, 1, -1});
}

TEST_CASE("autocast: losses come out in float32") {
  const Tensor low = ones_of(bfloat16, {3, 2}),
               target = zeros({3}, {.dtype = int64, .device = test_device()});
  const amp::Autocast autocast(test_device(), bfloat16);
  CHECK(mse_loss(low, low).dtype() == float32);
  CHECK(l1_loss(low, low).dtype() == float32);
  CHECK(nll_loss(low, target).dtype() == float32);
  CHECK(cross_entropy(low, target).dtype() == float32);
  CHECK(binary_cross_entropy_with_logits(low, low).dtype() == float32);
}

TEST_CASE("autocast: cross_entropy of 16-bit logits does not move in steps of 16 bits, under either table") {
  // A loss near 36, where bfloat16 moves by 0.25: log(1 + e^-36.1) + 36.1 in float32.
  const Tensor logits = make({0, 36.0}, {1, 2}, bfloat16), target = make({0}, int64);
  for (const auto* table : {&amp::cpu_table, &amp::cuda_table}) {
    const amp::Autocast autocast(test_device(), bfloat16, true, *table);
    CHECK(cross_entropy(logits / 1.7, target).item<double>() ==
          doctest::Approx((logits / 1.7).select(1, 1).item<double>()));
  }
}

namespace {

/// Notes the dtypes of the products that its forward and backward run.
struct Spy {
  static constexpr auto name = "spy";
  std::vector<DType>* seen;
  Tensor forward(Inputs in, Saver& save) const {
    save(in[0]);
    seen->push_back(matmul(in[0], in[0]).dtype());
    return in[0].clone();
  }
  Tensors backward(Node& node, Inputs g) const {
    seen->push_back(matmul(node.saved(0), node.saved(0)).dtype());
    return {g[0]};
  }
};

/// The same, with its inputs cast to float32 and its ops left alone.
struct FloatSpy : Spy {
  static constexpr auto name = "float_spy";
  static constexpr DType cast_inputs = float32;
};

}  // namespace

TEST_CASE("custom ops: backward runs under the guard of forward, with its dtype") {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2}, float32);
  std::vector<DType> seen;
  Tensor y;
  {
    const amp::Autocast autocast(test_device(), bfloat16);
    y = call(Spy{&seen}, x);
  }
  {
    const amp::Autocast other(test_device(), float16);
    y.sum().backward();
  }
  CHECK(seen == std::vector<DType>{bfloat16, bfloat16});
}

TEST_CASE(
    "custom ops: cast_inputs gives float32, forward and backward without autocast; nothing outside a guard") {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2}, float16);
  std::vector<DType> seen;
  {
    const amp::Autocast autocast(test_device(), bfloat16);
    const Tensor y = call(FloatSpy{{&seen}}, x);
    CHECK(y.dtype() == float32);
    y.sum().backward();
  }
  CHECK(x.grad().dtype() == float16);
  call(FloatSpy{{&seen}}, x);
  CHECK(seen == std::vector<DType>{float32, float32, float16});
}

TEST_CASE("autocast: what no device can do is refused by name") {
  CHECK(error_text([] { const amp::Autocast autocast(test_device(), float32); }) ==
        text("Autocast: cannot use float32 on ", to_string(test_device()),
             ": autocast takes float16 or bfloat16"));
  if (device_count() == 0) {
    CHECK(error_text([] { const amp::Autocast autocast("cuda"); }) ==
          text("Autocast: cannot use float16 on cuda: ", absence_of("cuda")));
  }
  const amp::Autocast off("cuda", float32, false);  // a guard that is off asks for nothing
  CHECK(here() == float32);
  CHECK(amp::support(test_device(), float16).level != amp::Level::none);
  CHECK(amp::support(test_device(), float32).level == amp::Level::none);
}

TEST_CASE("trace: dtypes that came and went, by kind of call") {
  nn::Linear layer = linear_of(2, 2);
  amp::Trace outer;
  {
    amp::Trace trace;
    {
      const amp::Autocast autocast(test_device(), bfloat16);
      for (int i = 0; i < 3; ++i) relu(layer(ones_of(float32)));
    }
    layer(ones_of(float32));  // outside a guard
    REQUIRE(trace.entries().size() == 2);
    CHECK(trace.to_string() ==
          "op      calls  came as                    policy  went as\n"
          "linear  3      float32, float32, float32  low     bfloat16, bfloat16, bfloat16\n"
          "relu    3      bfloat16                   keep    bfloat16\n");
  }
  CHECK(outer.entries().empty());
}

TEST_CASE("print_table: every op once, under its policy") {
  for (const Device device : {test_device(), Device("cuda")}) {
    std::ostringstream out;
    amp::print_table(device, out);
    const std::string printed = text(" ", out.str());
    for (size_t k = 0; k < kOps; ++k) {
      const std::string op(info(static_cast<OpId>(k)).name);
      CAPTURE(op);
      size_t count = 0;
      for (size_t at = 0; (at = printed.find(text(" ", op), at)) != std::string::npos; ++at) {
        const char after = printed[at + 1 + op.size()];
        count += after == ' ' || after == '\n';
      }
      CHECK(count == 1);
    }
    CHECK(printed.find(
              "low: matmul addmm linear linear_relu gelu_linear conv2d scaled_dot_product_attention\n") !=
          std::string::npos);
  }
}
