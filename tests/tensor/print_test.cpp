// Printing, compared with what PyTorch prints (tests/golden/print.json).
#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autograd/ops.h"
#include "tests/golden.h"

using namespace mezzo;

namespace {

using nlohmann::json;

/// JSON has no infinities and NaNs: the script writes them as strings.
template <class T>
T parse(const json& value) {
  if (value.is_number_integer()) return static_cast<T>(value.get<int64_t>());
  if (value.is_number()) return static_cast<T>(value.get<double>());
  const float infinity = std::numeric_limits<float>::infinity();
  if (value == "inf") return static_cast<T>(infinity);
  return static_cast<T>(value == "-inf" ? -infinity : std::numeric_limits<float>::quiet_NaN());
}

/// The tensor of one case: its values, repeated as often as the shape needs.
Tensor build(const json& test_case) {
  const Shape shape(test_case.at("shape").get<std::vector<int64_t>>());
  const Tensor x = empty(shape, {.dtype = parse_dtype(test_case.at("dtype").get<std::string>())});
  const json& values = test_case.at("values");
  dispatch(x.dtype(), [&]<class T>(T) {
    for (size_t i = 0; i < static_cast<size_t>(x.numel()); ++i) {
      const json& value = values[i % values.size()];
      if constexpr (is_half(dtype_of<T>))
        x.data<T>()[i] = T(parse<float>(value));
      else
        x.data<T>()[i] = parse<T>(value);
    }
  });
  return x;
}

}  // namespace

TEST_CASE("a tensor prints as in PyTorch") {
  std::ifstream file(golden_path("print.json"));
  const json cases = json::parse(file).at("cases");
  REQUIRE(cases.size() > 50);
  for (const json& test_case : cases) {
    CAPTURE(test_case.at("dtype"));
    CAPTURE(test_case.at("shape"));
    CHECK(to_string(build(test_case)) == test_case.at("text").get<std::string>());
  }
}

TEST_CASE("printing follows strides") {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(to_string(x.t()) == "tensor([[1., 4.],\n        [2., 5.],\n        [3., 6.]])");
  CHECK(to_string(x[1]) == "tensor([4., 5., 6.])");
  CHECK(to_string(x[0].expand({2, 3})) == "tensor([[1., 2., 3.],\n        [1., 2., 3.]])");
}

TEST_CASE("printing tells device, gradient and history where they are not the default") {
  CHECK(to_string(ones({1}, {.device = "reference"})) == "tensor([1.], device='reference')");
  CHECK(to_string(ones({1}, {.dtype = float64, .device = "reference"})) ==
        "tensor([1.], device='reference', dtype=float64)");
  const Tensor x = ones({1}, {.requires_grad = true});
  CHECK(to_string(x) == "tensor([1.], requires_grad=True)");
  CHECK(to_string(x * x) == "tensor([1.], grad_fn=<mul>)");
  CHECK(to_string((x * x).to(float16)) == "tensor([1.], dtype=float16, grad_fn=<to>)");
  CHECK(to_string(x.detach()) == "tensor([1.])");
}

TEST_CASE("a NaN prints without its sign") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(to_string(tensor({nan, -nan, 1.5})) == "tensor([   nan,    nan, 1.5000])");
}

TEST_CASE("a suffix that does not fit the line starts the next one") {
  const Tensor x = full({10}, 0.25, {.requires_grad = true});
  CHECK(to_string(x) ==
        "tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500,\n"
        "        0.2500], requires_grad=True)");
  CHECK(to_string(full({9}, 0.25, {.requires_grad = true})) ==
        "tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500, 0.2500],\n"
        "       requires_grad=True)");
}

TEST_CASE("an undefined tensor prints as such, and tensors go into streams") {
  CHECK(to_string(Tensor()) == "tensor(undefined)");
  std::ostringstream out;
  out << ones({2}, {.dtype = int32});
  CHECK(out.str() == "tensor([1, 1], dtype=int32)");
}
