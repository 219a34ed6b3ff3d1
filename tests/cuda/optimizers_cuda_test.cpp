// CUDA kernels beside the reference ones: optimizer steps and loss scaling.
#include <array>
#include <functional>
#include <limits>
#include <list>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

/// Tensors on both sides. Arithmetic is in double only if `wide`.
struct Tensors {
  std::list<Array> arrays;
  std::vector<double> tolerances;

  Array& add(DType dtype, const Shape& shape, Layout layout, bool wide,
             const std::function<double()>& value) {
    tolerances.push_back(std::max(precision_of(dtype), precision_of(wide ? float64 : float32)));
    arrays.emplace_back(dtype, shape, strides_of(shape, layout), layout == Layout::shifted ? 1 : 0);
    return arrays.back().fill([&](int64_t) { return value(); });
  }
  void check(double factor) const {
    size_t i = 0;
    for (const Array& array : arrays) CHECK(array.agrees(factor * tolerances[i++]));
  }
};

/// A cast for every other parameter of float32, in float16 or bfloat16; else null.
Array* add_cast(Tensors& tensors, size_t number, DType param, const Shape& shape, Layout layout) {
  if (param != float32 || number % 2 == 0) return nullptr;
  return &tensors.add(number % 4 == 1 ? float16 : bfloat16, shape, layout, false, [] { return 7; });
}

/// A parameter's dtype, its gradient's, its state's, and their layouts.
struct Kind {
  DType param, grad, state;
  Layout param_layout = Layout::row_major, grad_layout = Layout::row_major;
};
constexpr Kind kKinds[] = {
    {float32, float32, float32},
    {float16, float16, float32},
    {bfloat16, bfloat16, float32},
    {float64, float64, float64},
    {float32, float16, float32},
    {float32, float32, float64},
    {bfloat16, float32, float64},
    {float32, float32, float32, Layout::permuted, Layout::permuted},
    {float32, float32, float32, Layout::row_major, Layout::permuted},
    {float16, float16, float32, Layout::spread, Layout::row_major},
    {float32, float32, float32, Layout::shifted, Layout::row_major},
};
const Shape kShapes[] = {{3, 5}, {}, {1, 8}, {0, 4}, {37, 11}};

struct AdamCase {
  bool amsgrad;
  double lr, scale, found_inf;
  AdamArgs args;
};

/// A number on both sides.
Array& single(std::list<Array>& arrays, DType dtype, double value) {
  return arrays.emplace_back(dtype, Shape{}).fill([value](int64_t) { return value; });
}

/// What lies on the device in a step, on both sides; a scale and a flag only if they are not 0.
class State {
 public:
  State(double lr, double scale, double found_inf) {
    for (const auto& [dtype, value] : {std::pair(float64, lr), {float32, scale}, {float32, found_inf}})
      single(numbers_, dtype, value);
    given_ = {true, scale != 0, found_inf != 0};
  }
  /// `args` with them; side(array) is its view on one side.
  template <class Args, class Side>
  Args in(Args args, Side side) {
    std::array<View, 3> views;
    auto number = numbers_.begin();
    for (size_t i = 0; i < 3; ++i, ++number) {
      if (given_[i]) views[i] = side(*number);
    }
    args.state = {views[0], views[1], views[2]};
    return args;
  }

 private:
  std::list<Array> numbers_;
  std::array<bool, 3> given_;
};

constexpr auto on_host_side = [](const Array& array) { return array.host(); };
constexpr auto on_device_side = [](const Array& array) { return array.to_device(); };

}  // namespace

TEST_CASE("adam: dtypes, layouts, options") {
  Numbers numbers(1);
  const AdamCase cases[] = {
      {false, .01, 0, 0, {{}, .9, .999, 1e-8, 0, false, false}},
      {true, .02, 0, 0, {{}, .9, .99, 1e-3, .1, false, true}},
      {false, .1, 8, 0, {{}, .8, .9, 1e-8, .1, true, false}},
      {true, .5, 8, 0, {{}, 0, .5, 0, .2, false, false}},
      {true, .5, 8, 1, {{}, 0, .5, 0, .2, false, false}},
  };
  for (const AdamCase& c : cases) {
    CAPTURE(c.amsgrad);
    CAPTURE(c.scale);
    CAPTURE(c.found_inf);
    Tensors tensors;
    State state(c.lr, c.scale, c.found_inf);
    std::vector<AdamTensors> on_host, on_device;
    for (int repeat = 0; repeat < 6; ++repeat) {  // more than a table holds
      for (const Kind& kind : kKinds) {
        for (const Shape& shape : kShapes) {
          const auto add = [&](DType dtype, Layout layout, double low) -> Array& {
            return tensors.add(dtype, shape, layout, kind.param == float64,
                               [&] { return numbers.real(low, 2); });
          };
          const Array* arrays[] = {
              &add(kind.param, kind.param_layout, -2), &add(kind.grad, kind.grad_layout, -2),
              &add(kind.state, kind.param_layout, -2), &add(kind.state, kind.param_layout, .01),
              &add(kind.state, kind.param_layout, .01)};
          static_cast<void>(arrays[4]->to_device());
          const Array& steps = tensors.add(int64, {}, Layout::row_major, false, [&] { return repeat; });
          const auto views = [&](auto side) {
            return AdamTensors{side(0), side(1), side(2), side(3), c.amsgrad ? side(4) : View{}, {}};
          };
          const Array* const cast =
              add_cast(tensors, on_host.size() / std::size(kShapes), kind.param, shape, kind.param_layout);
          on_device.push_back(views([&](int i) { return arrays[i]->to_device(); }));
          on_device.back().steps = steps.to_device();
          on_host.push_back(views([&](int i) { return arrays[i]->host(); }));
          on_host.back().steps = steps.host();
          if (!cast) continue;
          on_device.back().cast = cast->to_device();
          on_host.back().cast = cast->host();
        }
      }
    }
    device_table().adam(on_device, state.in(c.args, on_device_side));
    reference_table().adam(on_host, state.in(c.args, on_host_side));
    tensors.check(2);
  }
}

TEST_CASE("adam: a tensor of several chunks, infinite and NaN state") {
  Numbers numbers(2);
  Tensors tensors;
  const Shape shape{150'001};
  std::vector<const Array*> arrays;
  for (int v = 0; v < 5; ++v)
    arrays.push_back(
        &tensors.add(float32, shape, Layout::row_major, false, [&] { return numbers.real(.1, 2); }));
  tensors.arrays.front().fill([](int64_t i) { return i % 1000 == 3 ? inf : 1; });  // no part of the gradient
  tensors.arrays.back().fill([](int64_t i) { return i % 1000 == 7 ? inf - inf : 1; });
  arrays.push_back(&tensors.add(int64, {}, Layout::row_major, false, [] { return 2; }));
  const auto views = [&](auto side) {
    return std::vector{AdamTensors{side(0), side(1), side(2), side(3), side(4), side(5)}};
  };
  State state(.1, 0, 0);
  const AdamArgs args{{}, .9, .999, 1e-8, 0, false, false};
  device_table().adam(views([&](size_t i) { return arrays[i]->to_device(); }),
                      state.in(args, on_device_side));
  reference_table().adam(views([&](size_t i) { return arrays[i]->host(); }), state.in(args, on_host_side));
  tensors.check(2);
}

TEST_CASE("sgd: dtypes, layouts, options") {
  Numbers numbers(3);
  struct Case {
    bool momentum, first;
    double scale, found_inf;
    SgdArgs args;
  };
  const Case cases[] = {
      {false, false, 0, 0, {{}, 0, 0, 0, false, false}},  {false, false, 3, 0, {{}, 0, 0, .5, false, true}},
      {true, true, 0, 0, {{}, .9, .5, .1, false, false}}, {true, false, 3, 0, {{}, .9, .5, .1, true, false}},
      {true, false, 0, 0, {{}, .9, 0, 0, false, true}},   {true, true, 3, 2, {{}, .9, .5, .1, false, false}},
  };
  for (const Case& c : cases) {
    Tensors tensors;
    State state(.1, c.scale, c.found_inf);
    std::vector<SgdTensors> on_host, on_device;
    for (const Kind& kind : kKinds) {
      for (const Shape& shape : kShapes) {
        const auto add = [&](DType dtype, Layout layout) -> Array& {
          return tensors.add(dtype, shape, layout, kind.param == float64,
                             [&] { return numbers.real(-2, 2); });
        };
        const Array &param = add(kind.param, kind.param_layout), &grad = add(kind.grad, kind.grad_layout),
                    &buffer = add(kind.state, kind.param_layout);
        const Array& steps =
            tensors.add(int64, {}, Layout::row_major, false, [&] { return c.first ? 0 : 3; });
        const View far_steps = steps.to_device(), far_buffer = buffer.to_device();
        on_device.push_back({param.to_device(), grad.to_device(), c.momentum ? far_buffer : View{},
                             c.momentum ? far_steps : View{}});
        on_host.push_back({param.host(), grad.host(), c.momentum ? buffer.host() : View{},
                           c.momentum ? steps.host() : View{}});
        const Array* const cast = add_cast(tensors, on_host.size(), kind.param, shape, kind.param_layout);
        if (!cast) continue;
        on_device.back().cast = cast->to_device();
        on_host.back().cast = cast->host();
      }
    }
    device_table().sgd(on_device, state.in(c.args, on_device_side));
    reference_table().sgd(on_host, state.in(c.args, on_host_side));
    tensors.check(2);
  }
}

TEST_CASE("unscale: gradients, the flag, what counts as overflow") {
  Numbers numbers(4);
  // Elements to put in, the scale, and so whether something is found.
  struct Case {
    double element, scale;
  };
  for (const Case& c : {Case{1, 1024}, Case{inf, 1}, Case{inf - inf, 2}, Case{60000, .5}, Case{65504, .99999},
                        Case{3e38, .1}, Case{1, 0}}) {
    for (const bool write : {false, true}) {
      for (const bool given : {true, false}) {
        CAPTURE(c.element);
        CAPTURE(c.scale);
        for (const DType special : kFloating) {
          CAPTURE(name_of(special));
          Tensors tensors;
          std::vector<View> on_host, on_device;
          for (const DType dtype : kFloating) {
            for (const Layout layout :
                 {Layout::row_major, Layout::spread, Layout::permuted, Layout::shifted}) {
              for (const Shape& shape : {Shape{5, 7}, Shape{}, Shape{0}, Shape{3, 8}}) {
                Array& grad =
                    tensors.add(dtype, shape, layout, dtype == float64, [&] { return numbers.real(-1, 1); });
                if (dtype == special && shape.dim() > 1 && layout == Layout::row_major)
                  reference::set(grad.host(), shape.numel() - 1, c.element);
                on_device.push_back(grad.to_device());
                on_host.push_back(grad.host());
              }
            }
          }
          Array scale(float32, {}), found(float32, {});
          scale.fill([&](int64_t) { return c.scale; });
          found.fill([](int64_t) { return 0; });
          const View scale_to = given ? scale.to_device() : View{}, found_to = found.to_device();
          device_table().unscale(on_device, scale_to, found_to, write);
          reference_table().unscale(on_host, given ? scale.host() : View{}, found.host(), write);
          CHECK(found.agrees());
          tensors.check(0);
        }
      }
    }
  }
  // The flag stays up.
  Array found(float32, {}), grad(float32, {4});
  found.fill([](int64_t) { return 1; });
  grad.fill([](int64_t) { return 1; });
  const View found_to = found.to_device(), grad_to = grad.to_device();
  device_table().unscale({&grad_to, 1}, {}, found_to, true);
  CHECK(found.agrees());
}

TEST_CASE("update_scale: as the rule says") {
  const ScaleRule rule{.growth_factor = 4, .backoff_factor = .25, .growth_interval = 3};
  for (const double start : {1.0, 65536.0, 3e38, 1e-38}) {
    for (const double overflow : {0.0, 1.0}) {
      for (const int64_t steps : {0, 1, 2, 7, std::numeric_limits<int32_t>::max()}) {
        Array scale(float32, {}), tracker(int32, {}), found(float32, {});
        scale.fill([&](int64_t) { return start; });
        tracker.fill([&](int64_t) { return steps; });
        found.fill([&](int64_t) { return overflow; });
        device_table().update_scale(scale.to_device(), tracker.to_device(), found.to_device(), rule);
        reference_table().update_scale(scale.host(), tracker.host(), found.host(), rule);
        CHECK(scale.agrees());
        CHECK(tracker.agrees());
      }
    }
  }
}
