// The one format of errors: `op: fact; operands with shape, dtype and device; in module.path; hint`. And a
// wrong call changes nothing.
#include "tensor/error.h"

#include <functional>

#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// The operand as messages describe it.
std::string operand(std::string_view name, std::string_view shape, std::string_view dtype) {
  return text(name, " ", shape, " ", dtype, " ", to_string(test_device()));
}

struct BadCall {
  std::string_view op;
  std::vector<std::string> parts;  ///< that the text holds
  std::function<void()> call;
};

}  // namespace

TEST_CASE("errors: the format") {
  const Tensor a = make(Values(6), {2, 3}, float32), b = make({1, 2}, float16);
  const std::string expected = "test: is wrong; a [2,3] float32 " + to_string(test_device()) +
                               ", b [2] float16 " + to_string(test_device());
  CHECK(error_text([&] { fail("test", "is wrong", {{"a", a}, {"none", Tensor()}, {"b", b}}); }) == expected);
  CHECK(error_text([] { fail("test", "is wrong"); }) == "test: is wrong");
  CHECK(error_text([] { fail("test", "is wrong", {}, "do this"); }) == "test: is wrong; do this");
}

TEST_CASE("errors: the module's path") {
  const Tensor a = make({1, 2}), b = make({1, 2, 3});
  CHECK(module_path().empty());
  {
    const ModuleScope outer("layer2"), unnamed(""), inner("0.conv1");
    CHECK(module_path() == "layer2.0.conv1");
    CHECK(error_text([&] { a + b; }).find("; in layer2.0.conv1; ") != std::string::npos);
    try {
      const ModuleScope innermost("deeper");
      a + b;
    } catch (const Error&) {
    }
    CHECK(module_path() == "layer2.0.conv1");
  }
  CHECK(module_path().empty());
}

TEST_CASE("errors: wrong calls name the op, the operands and what is wrong") {
  const Tensor image = make(Values(2 * 3 * 4 * 4), {2, 3, 4, 4}, float32),
               weight = make(Values(4 * 2), {4, 2, 1, 1}, float32);
  const Tensor square_weight = make(Values(3 * 3), {3, 3, 1, 1}, float32);
  const Tensor a = make(Values(6), {2, 3}), b = make(Values(2), {2}), i = make(Values(6), {2, 3}, int64);
  const Tensor flags = make({1, 0}, bool_), half = make(Values(6), {3, 2}, float16);
  const ConvGeometry two_groups{.groups = 2}, no_stride{.stride = {0, 1}};
  const std::vector<BadCall> calls = {
      {"add",
       {"do not broadcast", operand("a", "[2,3]", "float64"), operand("b", "[2]", "float64")},
       [&] { a + b; }},
      {"where", {operand("c", "[2]", "float64")}, [&] { where(flags, a, b); }},
      {"sub", {"bool", operand("a", "[2]", "bool")}, [&] { flags - flags; }},
      {"neg", {"bool"}, [&] { -flags; }},
      {"fmod", {"division by zero", "int64"}, [&] { fmod(i, 0); }},
      {"mean", {"floating", operand("input", "[2,3]", "int64")}, [&] { i.mean(); }},
      {"sum", {"dimension 2", operand("input", "[2,3]", "float64")}, [&] { a.sum(2); }},
      {"sum",
       {"twice"},
       [&] {
         a.sum({0, -2});
       }},
      {"amax",
       {"of nothing", "[0,3]"},
       [&] {
         make({}, {0, 3}).amax(0);
       }},
      {"argmax",
       {"of nothing"},
       [&] {
         make({}, {0, 3}).argmax(0);
       }},
      {"argmax", {"dimension 5"}, [&] { a.argmax(5); }},
      {"split",
       {"4 elements, not 3", operand("input", "[2,3]", "float64")},
       [&] {
         split(a, {1, 3}, 1);
       }},
      {"split",
       {"piece of size -1"},
       [&] {
         split(a, {-1, 4}, 1);
       }},
      {"split", {"pieces of 0"}, [&] { split(a, 0); }},
      {"chunk", {"0 pieces"}, [&] { chunk(a, 0); }},
      {"unbind", {"0-d"}, [&] { unbind(scalar(1)); }},
      {"split", {"dimension 2"}, [&] { split(a, 1, 2); }},
      {"matmul",
       {"3", "2", operand("a", "[2,3]", "float64"), operand("b", "[2]", "float64")},
       [&] { a.matmul(b); }},
      {"matmul", {"float16", "float64"}, [&] { a.matmul(half); }},
      {"matmul", {"0-d"}, [&] { a.matmul(scalar(1)); }},
      {"linear",
       {"3 features", "expects 2"},
       [&] {
         linear(a, make(Values(2), {1, 2}));
       }},
      {"linear",
       {"bias"},
       [&] {
         linear(a, make(Values(3), {1, 3}), make({1, 2}));
       }},
      {"conv2d",
       {"3 channels", "expects 2", operand("input", "[2,3,4,4]", "float32"),
        operand("weight", "[4,2,1,1]", "float32")},
       [&] { conv2d(image, weight); }},
      {"conv2d", {"groups = 2", "3 input"}, [&] { conv2d(image, weight, {}, two_groups); }},
      {"conv2d",
       {"stride"},
       [&] {
         conv2d(image, make(Values(3), {1, 3, 1, 1}, float32), {}, no_stride);
       }},
      {"conv2d",
       {"spans 5", "4"},
       [&] {
         conv2d(image, make(Values(75), {1, 3, 5, 5}, float32));
       }},
      {"conv2d", {"2 dimensions"}, [&] { conv2d(a, weight.to(float64)); }},
      {"conv2d", {"float16", "float32"}, [&] { conv2d(image, weight.to(float16)); }},
      {"conv2d_input_grad",
       {"stride"},
       [&] {
         conv2d_input_grad(image, square_weight, {2, 3, 4, 4}, no_stride);
       }},
      {"conv2d_weight_grad",
       {"stride"},
       [&] {
         conv2d_weight_grad(image, image, {3, 3, 1, 1}, no_stride);
       }},
      {"batch_norm", {"3 channels", "weight", "2"}, [&] { batch_norm(image, b, {}, {}, {}); }},
      {"batch_norm",
       {"1 value per channel", "[1,3]"},
       [&] {
         batch_norm(make(Values(3), {1, 3}), {}, {}, {}, {});
       }},
      {"batch_norm", {"dimensions"}, [&] { batch_norm(b, {}, {}, {}, {}); }},
      {"mse_loss",
       {"broadcast", operand("input", "[2,3]", "float64"), operand("target", "[2]", "float64")},
       [&] { mse_loss(a, b); }},
      {"reshape", {"6 elements", "[4]"}, [&] { a.reshape({4}); }},
      {"view", {"strides"}, [&] { a.t().view({6}); }},
      {"expand",
       {"[3, 3]"},
       [&] {
         a.expand({3, 3});
       }},
      {"permute",
       {"[0, 0]"},
       [&] {
         a.permute({0, 0});
       }},
      {"narrow", {"1 to 4", "size 3"}, [&] { a.narrow(1, 1, 3); }},
      {"select", {"index 2", "size 2"}, [&] { a.select(0, 2); }},
      {"transpose", {"dimension 2"}, [&] { a.transpose(0, 2); }},
      {"cat",
       {operand("first", "[2,3]", "float64"), operand("other", "[2]", "float64")},
       [&] {
         cat({a, b});
       }},
      {"stack",
       {operand("other", "[2]", "float64")},
       [&] {
         stack({a, b});
       }},
      {"item", {"6", operand("tensor", "[2,3]", "float64")}, [&] { a.item<double>(); }},
      {"add", {"undefined"}, [&] { a + Tensor(); }},
      {"sum", {"undefined"}, [&] { Tensor().sum(); }},
      {"exp", {"undefined"}, [&] { Tensor().exp(); }},
      {"view", {"undefined"}, [&] { Tensor().view({1}); }},
  };
  for (const BadCall& call : calls) {
    const std::string said = error_text(call.call);
    CAPTURE(call.op);
    CAPTURE(said);
    CHECK(said.starts_with(text(call.op, ": ")));
    for (const std::string& part : call.parts) CHECK(said.find(part) != std::string::npos);
  }
}

TEST_CASE("errors: an undefined tensor") {
  const Tensor a = make(Values(6), {2, 3});
  CHECK_THROWS_WITH_AS(Tensor().shape(), doctest::Contains("is undefined"), Error);
  CHECK_THROWS_AS(Tensor().to(float32), Error);
  CHECK_THROWS_AS(a.matmul(Tensor()), Error);
  CHECK_THROWS_AS(linear(a, Tensor()), Error);
  CHECK_THROWS_AS(mse_loss(a, Tensor()), Error);
  CHECK_THROWS_AS(softmax(Tensor(), 0), Error);
  CHECK_THROWS_AS(gather(a, 0, Tensor()), Error);
  CHECK_THROWS_AS(index_select(a, 0, Tensor()), Error);
  CHECK_THROWS_AS(scatter_add(a, 0, Tensor(), a), Error);
  CHECK_THROWS_AS(cross_entropy(a, Tensor()), Error);
  CHECK_THROWS_AS(binary_cross_entropy(a, Tensor()), Error);
  CHECK_THROWS_AS(cat({a, Tensor()}), Error);
}

TEST_CASE("errors: tensors on two devices") {
  const Tensor here = ones({2}, {.device = "cpu"}), there = ones({2}, {.device = "reference"});
  const std::string said = error_text([&] { here + there; });
  CHECK(said.starts_with("add: "));
  CHECK(said.find("[2] float32 cpu") != std::string::npos);
  CHECK(said.find("[2] float32 reference") != std::string::npos);
  CHECK(error_text([] { Device("tpu"); }).find("tpu") != std::string::npos);
  CHECK((there + 1).device() == Device("reference"));  // a number is on every device
}

TEST_CASE("errors: a wrong call changes nothing") {
  Tensor a = make(Values{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor mean = make({1, 2, 3}), var = make({1, 1, 1});
  const size_t live = memory_stats(test_device()).live;
  CHECK_THROWS_AS(a += make({1, 2}), Error);
  CHECK_THROWS_AS(a.copy_(make({1, 2})), Error);
  CHECK_THROWS_AS(a.copy_(Tensor()), Error);
  CHECK_THROWS_AS(a += Tensor(), Error);
  CHECK_THROWS_AS(a.uniform_(2, 1), Error);
  CHECK_THROWS_AS(batch_norm(make({1, 2, 3}, {1, 3}), {}, {}, mean, var), Error);
  CHECK(memory_stats(test_device()).live == live);
  CHECK(values(a) == Values{1, 2, 3, 4, 5, 6});
  CHECK(values(mean) == Values{1, 2, 3});
  CHECK(a.version() == 0);
  CHECK(mean.version() == 0);
}

TEST_CASE("errors: memory that no machine has") {
  constexpr int64_t n = int64_t{1} << 47;  // float64: 2^50 bytes, more than a process can address
  const Tensor x = leaf({3}), huge = x.expand({n});
  const MemoryStats before = memory_stats(test_device());
  const std::string said = error_text([&] { huge* huge; });
  CHECK(said.starts_with(
      text("allocate: no memory on ", to_string(test_device()), " for ", n * 8, " bytes; ")));
  CHECK(said.find(text("tensors hold ", before.live)) != std::string::npos);
  CHECK_THROWS_AS(huge.clone(), Error);
  CHECK_THROWS_AS(rand({n}, {.device = test_device()}), Error);
  const MemoryStats after = memory_stats(test_device());
  CHECK(after.live == before.live);
  if (caches_memory()) CHECK(after.system_allocations == before.system_allocations);
  (x * x).sum().backward();  // and work goes on
  CHECK(values(x.grad()) == Values{6});
}
