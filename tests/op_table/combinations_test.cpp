// Every row of ops.def x every dtype x every layout, on the device under test, beside one result: the same
// values in float64, contiguous, through the naive kernels of the reference device.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <set>
#include <tuple>

#include "autograd/grad_mode.h"
#include "tests/golden.h"
#include "tests/op_table/layouts.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

constexpr DType kFloating[] = {float64, float32, float16, bfloat16};
constexpr DType kOthers[] = {int64, int32, uint8, bool_};
constexpr std::string_view kKinds[] = {"0-d", "empty", "strided", "transposed", "expanded", "channels-last"};

/// Weights of the outputs in the backward pass: different from each other, and exact in every dtype.
Tensor weights_for(const Tensor& y) {
  std::vector<double> values;
  for (int64_t i = 0; i < y.numel(); ++i) values.push_back(0.5 + static_cast<double>(i * 37 % 64) / 64);
  return tensor(values, y.shape(), {.dtype = y.dtype(), .device = y.device()});
}

struct Result {
  Tensors outputs, gradients;  ///< gradients: one an input, undefined where it has none
};

/// Calls the op on leaves that share the inputs' memory, and runs backward if it can.
Result call_op(const Sample& sample, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    leaves.push_back(x.detach());
    if (is_floating(x.dtype())) leaves.back().requires_grad_();
  }
  Result result;
  result.outputs = sample.run(leaves);
  for (const Tensor& y : result.outputs) {
    if (y.requires_grad()) y.backward(weights_for(y), true);
  }
  for (const Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  return result;
}

Tensors converted(const Tensors& inputs, DType dtype, const Device& device) {
  Tensors all;
  for (const Tensor& x : inputs) {
    all.push_back(is_floating(x.dtype()) ? x.contiguous().to(dtype).to(device) : x.contiguous().to(device));
  }
  return all;
}

Tensor in_double(const Tensor& x) { return x.detach().to(Device()).to(float64); }

/// float64 and float32 may be off by so much of the largest entry, or of 1, the size of the inputs: what
/// cancellation leaves can be small. 16-bit results are sums in float32, which need no such floor but the
/// smallest normal number: below it float16 has fewer digits.
Closeness near(const Tensor& actual, const Tensor& expected, double tolerance, DType dtype) {
  const double least = !is_half(dtype) ? 1 : dtype == float16 ? 0x1p-14 : 0;
  double largest = 0;
  for (double value : in_double(expected).to_vector<double>()) largest = std::max(largest, std::abs(value));
  const double floor = largest > 0 ? std::max(1.0, least / largest) : 1;
  return close(in_double(actual), in_double(expected), tolerance * floor);
}

/// Where every image is channels-last, so is an output with the shape of one of them.
void check_layout_kept(const Tensors& inputs, const Tensors& outputs) {
  for (const Tensor& x : inputs) {
    if (x.dim() == 4 && x.is_contiguous()) return;
  }
  for (const Tensor& y : outputs) {
    const auto is_like_y = [&](const Tensor& x) { return y.dim() == 4 && x.shape() == y.shape(); };
    if (std::any_of(inputs.begin(), inputs.end(), is_like_y)) CHECK(y.is_contiguous(channels_last));
  }
}

class Table {
 public:
  /// One combination. A refusal counts as missing.
  void run(OpId id, const Sample& sample, std::string_view layout, const Tensors& inputs, DType dtype) {
    const std::string_view op = info(id).name;
    std::optional<Result> actual;
    const std::vector<uint32_t> versions = versions_of(inputs);
    const Tensors copies = copies_of(inputs);
    try {
      actual = call_op(sample, inputs);
    } catch (const Error& error) {
      refuse(op, layout, error);
      return;
    }
    CHECK(versions_of(inputs) == versions);
    for (size_t i = 0; i < inputs.size(); ++i) CHECK(close(in_double(inputs[i]), in_double(copies[i]), 0));
    check_result(id, sample, inputs, *actual, dtype);
    if (layout == "channels-last") check_layout_kept(inputs, actual->outputs);

    ++combinations_;
    covered_.insert({op, dtype, layout});
    for (std::string_view kind : {"0-d", "empty"}) {
      if (has_kind(kind, inputs, actual->outputs)) covered_.insert({op, dtype, kind});
    }
  }

  /// A dtype without gradients, beside the reference device in the same dtype.
  void run_other(OpId id, const Sample& sample, const Tensors& inputs, DType dtype) {
    Tensors actual;
    try {
      actual = sample.run(inputs);
    } catch (const Error& error) {
      return refuse(info(id).name, name_of(dtype), error);
    }
    Tensors copies;
    for (const Tensor& x : inputs) copies.push_back(x.to("reference"));
    const Tensors expected = sample.run(copies);
    for (size_t i = 0; i < actual.size(); ++i) {
      CHECK_FALSE(actual[i].requires_grad());
      const double tolerance = is_floating(actual[i].dtype()) ? 4 * epsilon_of(actual[i].dtype()) : 0;
      CHECK(close(actual[i].to(Device()), expected[i].to(Device()), tolerance));
    }
    ++combinations_;
  }

  /// Compares what did not run with the list of holes, both ways.
  void check_holes() {
    for (size_t k = 0; k < kOps; ++k) {
      for (DType dtype : kFloating) note_missing(kOpInfo[k].name, dtype);
    }
    for (const auto& [op, kind] : missing_) {
      if (!is_hole(op, kind)) FAIL_CHECK(op << " does not run in " << kind << ", and no list says why");
    }
    for (const Hole& hole : holes()) {
      if (!missing_.contains({hole.op, hole.kind}))
        FAIL_CHECK(hole.op << ", " << hole.kind << " is listed as a hole but runs");
    }
  }

  size_t combinations() const { return combinations_; }

 private:
  void refuse(std::string_view op, std::string_view kind, const Error& error) {
    missing_.insert({op, kind});
    if (!is_hole(op, kind)) FAIL_CHECK(std::string(error.what()));
  }
  void note_missing(std::string_view op, DType dtype) {
    if (!covered_.contains({op, dtype, "contiguous"})) missing_.insert({op, name_of(dtype)});
    for (std::string_view kind : kKinds) {
      if (!covered_.contains({op, dtype, kind})) missing_.insert({op, kind});
    }
  }

  static std::vector<uint32_t> versions_of(const Tensors& tensors) {
    std::vector<uint32_t> versions;
    for (const Tensor& x : tensors) versions.push_back(x.version());
    return versions;
  }
  static Tensors copies_of(const Tensors& tensors) {
    Tensors copies;
    for (const Tensor& x : tensors) copies.push_back(x.clone());
    return copies;
  }

  static void check_result(OpId id, const Sample& sample, const Tensors& inputs, const Result& actual,
                           DType dtype) {
    const Result expected = call_op(sample, converted(inputs, float64, "reference"));
    const double tolerance = allowed_epsilons(info(id).name, dtype) * epsilon_of(dtype);
    REQUIRE(actual.outputs.size() == expected.outputs.size());
    for (size_t i = 0; i < actual.outputs.size(); ++i) {
      CAPTURE(i);
      const Tensor& y = actual.outputs[i];
      const DType right = is_floating(expected.outputs[i].dtype()) ? dtype : expected.outputs[i].dtype();
      CHECK(name_of(y.dtype()) == name_of(right));
      CHECK(y.requires_grad() == (info(id).order != Order::NoGrad));
      CHECK(near(y, expected.outputs[i], is_floating(right) ? tolerance : 0, dtype));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      REQUIRE(actual.gradients[i].defined() == expected.gradients[i].defined());
      if (!actual.gradients[i].defined()) continue;
      CHECK(name_of(actual.gradients[i].dtype()) == name_of(inputs[i].dtype()));
      CHECK(near(actual.gradients[i], expected.gradients[i], tolerance, dtype));
    }
  }

  size_t combinations_ = 0;
  std::set<std::tuple<std::string_view, DType, std::string_view>> covered_;
  std::set<std::pair<std::string_view, std::string_view>> missing_;
};

/// Each input alone in a layout, then all of them, in every floating dtype.
void run_floating(Table& table, OpId id, const Sample& sample) {
  for (DType dtype : kFloating) {
    CAPTURE(name_of(dtype));
    const Tensors plain = converted(sample.inputs, dtype, test_device());
    for (const OperandLayout& layout : layouts()) {
      CAPTURE(layout.name);
      Tensors all = plain;
      int arranged = 0;
      for (size_t i = 0; i < plain.size(); ++i) {
        const Tensor x = layout.arrange(plain[i]);
        if (!x.defined()) continue;
        all[i] = x;
        ++arranged;
        if (layout.name == "contiguous") continue;
        CAPTURE(i);
        Tensors one = plain;
        one[i] = x;
        table.run(id, sample, layout.name, one, dtype);
      }
      if (arranged != 1 || layout.name == "contiguous") {
        if (arranged > 0 || plain.empty()) table.run(id, sample, layout.name, all, dtype);
      }
    }
  }
}

/// Small positive integers, or bools, of a shape.
Tensor integers(const Shape& shape, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<double>(i * 7 % 5 + (dtype == bool_ ? 0 : 1)));
  return tensor(values, shape, {.dtype = dtype, .device = test_device()});
}

/// The sample's inputs as integers or bools.
Tensors as_integers(const Sample& sample, DType dtype) {
  Tensors inputs;
  for (const Tensor& x : sample.inputs) inputs.push_back(integers(x.shape(), dtype));
  return inputs;
}

}  // namespace

TEST_CASE("op table: every row in every dtype and layout") {
  const uint64_t seed = seed_samples();
  CAPTURE(seed);
  Table table;
  for (size_t k = 0; k < kOps; ++k) {
    const auto id = static_cast<OpId>(k);
    CAPTURE(info(id).name);
    const std::vector<Sample> samples = samples_on_device(id);
    REQUIRE_FALSE(samples.empty());
    for (const Sample& sample : samples) {
      CAPTURE(sample.what);
      run_floating(table, id, sample);
      for (DType dtype : kOthers) {
        CAPTURE(name_of(dtype));
        table.run_other(id, sample, as_integers(sample, dtype), dtype);
      }
    }
  }
  table.check_holes();
  std::cout << "op table: " << table.combinations() << " combinations of row, dtype and layout on "
            << to_string(test_device()) << std::endl;
}

TEST_CASE("op table: no history under no_grad") {
  const uint64_t seed = seed_samples();
  CAPTURE(seed);
  for (size_t k = 0; k < kOps; ++k) {
    const auto id = static_cast<OpId>(k);
    for (const Sample& sample : samples_on_device(id)) {
      CAPTURE(info(id).name);
      CAPTURE(sample.what);
      Tensors leaves;
      for (const Tensor& x : sample.inputs)
        leaves.push_back(x.detach().requires_grad_(is_floating(x.dtype())));
      NoGradGuard guard;
      for (const Tensor& y : sample.run(leaves)) {
        CHECK_FALSE(y.grad_fn());
      }
    }
  }
}
