// The product kernels of the CPU against the naive ones, and against numbers from PyTorch, over plain views.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/element.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"

namespace mezzo {
namespace {

using Random = std::mt19937_64;

Kernels filled(std::initializer_list<void (*)(Kernels&)> families) {
  Kernels table;
  for (const auto family : families) family(table);
  return table;
}
const Kernels cpu_table = filled({cpu::add_matmul, cpu::add_conv});
const Kernels reference_table = filled({reference::add_products});

enum class Layout { row_major, channels_last, transposed, padded, strided, expanded, overlapping };
std::string name_of(Layout layout) {
  const char* const names[] = {"row_major", "channels_last", "transposed", "padded",
                               "strided",   "expanded",      "overlapping"};
  return names[static_cast<int>(layout)];
}

Shape strides_of(const Shape& shape, Layout layout) {
  if (layout == Layout::channels_last) return channels_last_strides(shape);
  Shape enclosing = shape;
  const int last = shape.dim() - 1;
  if (layout == Layout::transposed) std::swap(enclosing[last], enclosing[last - 1]);
  if (layout == Layout::padded) enclosing[last] += 3;
  Shape strides = contiguous_strides(enclosing);
  if (layout == Layout::transposed) std::swap(strides[last], strides[last - 1]);
  for (int d = 0; layout == Layout::strided && d <= last; ++d) strides[d] *= 2;
  if (layout == Layout::expanded) strides[0] = 0;
  if (layout == Layout::overlapping) strides[0] = 1;  // batches, like windows, one element apart
  return strides;
}

/// A view and the memory under it.
struct Array {
  std::vector<std::byte> memory;
  View view;

  Array() = default;
  Array(Array&&) = default;  // the view stays right, as it would not in a copy
  Array& operator=(Array&&) = default;
  Array(DType dtype, const Shape& shape, Layout layout = Layout::row_major)
      : view{nullptr, dtype, shape, strides_of(shape, layout)} {
    int64_t elements = 1;
    for (int d = 0; d < shape.dim(); ++d) elements += std::max<int64_t>(0, shape[d] - 1) * view.strides[d];
    memory.resize(static_cast<size_t>(elements) * size_of(dtype));
    view.data = memory.data();
    // An element that a kernel forgets to write stays what no sum is.
    const double poison = is_floating(dtype) ? std::numeric_limits<double>::quiet_NaN() : 99;
    for (int64_t i = 0; i < view.numel(); ++i) set(i, poison);
  }

  double at(int64_t i) const { return reference::load<double>(view, reference::offset_of(view, i)); }
  void set(int64_t i, double value) { reference::store(view, reference::offset_of(view, i), value); }
};

Array random_array(Random& random, DType dtype, const Shape& shape, Layout layout = Layout::row_major) {
  Array array(dtype, shape, layout);
  std::uniform_real_distribution<double> uniform(is_floating(dtype) ? -1 : -9, is_floating(dtype) ? 1 : 9);
  for (int64_t i = 0; i < array.view.numel(); ++i) array.set(i, uniform(random));
  return array;
}

/// Fails unless the arrays agree to what rounding explains, relative to the largest entry.
void check_close(const Array& actual, const Array& expected) {
  double tolerance = 0;
  if (actual.view.dtype == float64) tolerance = 1e-13;
  if (actual.view.dtype == float32) tolerance = 1e-5;
  if (actual.view.dtype == float16) tolerance = 0x1p-10;
  if (actual.view.dtype == bfloat16) tolerance = 0x1p-7;
  double largest = 0;
  for (int64_t i = 0; i < expected.view.numel(); ++i) largest = std::max(largest, std::abs(expected.at(i)));
  for (int64_t i = 0; i < expected.view.numel(); ++i) {
    const bool close = std::abs(actual.at(i) - expected.at(i)) <= tolerance * largest;
    if (!close) FAIL("element ", i, " is ", actual.at(i), ", expected ", expected.at(i));
  }
}

void check_equal(const Array& actual, const std::vector<double>& expected) {
  REQUIRE(actual.view.numel() == static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < actual.view.numel(); ++i) {
    CAPTURE(i);
    CHECK(actual.at(i) == expected[static_cast<size_t>(i)]);
  }
}

constexpr DType kFloating[] = {float64, float32, float16, bfloat16};

struct MatmulShapes {
  Shape a, b;
};

void check_matmul(uint64_t seed, DType dtype, const MatmulShapes& shapes, Layout a_layout, Layout b_layout,
                  Layout out_layout, bool with_bias) {
  INFO("seed ", seed, ", ", name_of(dtype), ", a ", to_string(shapes.a), " ", name_of(a_layout), ", b ",
       to_string(shapes.b), " ", name_of(b_layout), ", out ", name_of(out_layout), ", bias ", with_bias);
  Random random(seed);
  const Array a = random_array(random, dtype, shapes.a, a_layout),
              b = random_array(random, dtype, shapes.b, b_layout);
  const int64_t columns = shapes.b[shapes.b.dim() - 1];
  const Array bias = with_bias ? random_array(random, dtype, {columns}, Layout::strided) : Array();
  Shape shape = shapes.a;
  shape[shape.dim() - 1] = columns;
  const Array actual(dtype, shape, out_layout), expected(dtype, shape);
  cpu_table.matmul(actual.view, a.view, b.view, bias.view);
  reference_table.matmul(expected.view, a.view, b.view, bias.view);
  check_close(actual, expected);
}

struct ConvCase {
  Shape input, weight;
  ConvGeometry geometry;

  Shape out() const {
    Shape result{input[0], weight[0], 0, 0};
    for (int d = 0; d < 2; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t reach = geometry.dilation[i] * (weight[d + 2] - 1) + 1;
      result[d + 2] =
          (input[d + 2] + 2 * geometry.padding[i] + geometry.padding_after[i] - reach) / geometry.stride[i] +
          1;
    }
    return result;
  }
};

const ConvCase kConvCases[] = {
    {{2, 3, 7, 6}, {4, 3, 3, 3}, {}},
    {{2, 5, 6, 7}, {7, 5, 3, 2}, {{2, 1}, {1, 2}, {1, 2}, 1}},
    {{1, 32, 9, 9}, {48, 32, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},  // by Winograd, as the next three
    {{2, 16, 4, 5}, {32, 16, 3, 3}, {}},
    {{3, 16, 6, 3}, {16, 16, 3, 3}, {{1, 1}, {2, 1}, {1, 1}, 1}},
    {{2, 16, 7, 8}, {16, 16, 3, 3}, {{1, 1}, {0, 1}, {1, 1}, 1, {1, 0}}},
    {{2, 6, 8, 8}, {8, 3, 3, 3}, {{2, 2}, {1, 1}, {1, 1}, 2}},     // groups
    {{2, 32, 6, 6}, {32, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 32}},  // depthwise
    {{2, 3, 6, 6}, {6, 1, 3, 3}, {{1, 1}, {2, 2}, {2, 2}, 3}},     // depthwise, two outputs a channel
    {{2, 17, 5, 4}, {33, 17, 1, 1}, {}},                           // 1x1
    {{1, 2, 5, 5}, {16, 2, 1, 1}, {}},
    {{1, 16, 5, 5}, {1, 16, 1, 1}, {}},
    {{2, 8, 5, 5}, {4, 8, 1, 1}, {{2, 2}, {0, 0}, {1, 1}, 1}},
    {{3, 4, 1, 1}, {5, 4, 1, 1}, {}},
    {{2, 1, 8, 8}, {4, 1, 5, 5}, {{1, 1}, {2, 2}, {1, 1}, 1}},
    {{2, 4, 7, 8}, {8, 2, 2, 4}, {{1, 2}, {0, 1}, {1, 1}, 2, {1, 1}}},  // more padding at the end
};

/// Runs the three kernels; `layout` is that of out and grad_input, input_layout of input and grad_out.
void check_conv(uint64_t seed, DType dtype, const ConvCase& c, Layout layout, Layout input_layout,
                Layout weight_layout, bool with_bias) {
  INFO("seed ", seed, ", ", name_of(dtype), ", input ", to_string(c.input), " ", name_of(input_layout),
       ", weight ", to_string(c.weight), " ", name_of(weight_layout), ", groups ", c.geometry.groups,
       ", out ", name_of(layout), ", bias ", with_bias);
  Random random(seed);
  const Array input = random_array(random, dtype, c.input, input_layout);
  const Array weight = random_array(random, dtype, c.weight, weight_layout);
  const Array grad_out = random_array(random, dtype, c.out(), input_layout);
  const Shape channels{c.weight[0]};
  const Array bias = with_bias ? random_array(random, dtype, channels, Layout::strided) : Array();
  struct Results {
    Array out, grad_input, grad_weight;
  };
  const auto run = [&](const Kernels& table, Layout out_layout, Layout grad_weight_layout) {
    Results results{Array(dtype, c.out(), out_layout), Array(dtype, c.input, out_layout),
                    Array(dtype, c.weight, grad_weight_layout)};
    table.conv2d(results.out.view, input.view, weight.view, bias.view, c.geometry);
    table.conv2d_input_grad(results.grad_input.view, grad_out.view, weight.view, c.geometry);
    table.conv2d_weight_grad(results.grad_weight.view, grad_out.view, input.view, c.geometry);
    return results;
  };
  const Results actual = run(cpu_table, layout, weight_layout);
  const Results expected = run(reference_table, Layout::row_major, Layout::row_major);
  check_close(actual.out, expected.out);
  check_close(actual.grad_input, expected.grad_input);
  check_close(actual.grad_weight, expected.grad_weight);
}

/// i -> (i * step) % modulus - modulus / 2: small integers, whose sums are exact.
Array series(const Shape& shape, int64_t step, int64_t modulus) {
  Array array(float32, shape);
  for (int64_t i = 0; i < array.view.numel(); ++i)
    array.set(i, static_cast<double>(i * step % modulus - modulus / 2));
  return array;
}

struct ConvGolden {
  std::vector<double> out, grad_input, grad_weight;
};

void check_golden(const Kernels& table, const ConvCase& c, const ConvGolden& golden) {
  const Array input = series(c.input, 7, 11), weight = series(c.weight, 5, 7),
              bias = series({c.weight[0]}, 2, 5);
  const Array grad_out = series(c.out(), 3, 5);
  const Array out(float32, c.out()), grad_input(float32, c.input), grad_weight(float32, c.weight);
  table.conv2d(out.view, input.view, weight.view, bias.view, c.geometry);
  table.conv2d_input_grad(grad_input.view, grad_out.view, weight.view, c.geometry);
  table.conv2d_weight_grad(grad_weight.view, grad_out.view, input.view, c.geometry);
  check_equal(out, golden.out);
  check_equal(grad_input, golden.grad_input);
  check_equal(grad_weight, golden.grad_weight);
}

}  // namespace

TEST_CASE("matmul: every dtype and layout of two matrices") {
  uint64_t seed = 1;
  const MatmulShapes shapes[] = {{{5, 7}, {7, 3}},    {{1, 9}, {9, 17}}, {{33, 1}, {1, 2}},
                                 {{64, 48}, {48, 1}}, {{1, 1}, {1, 1}},  {{70, 33}, {33, 65}}};
  const Layout layouts[] = {Layout::row_major, Layout::transposed, Layout::padded, Layout::strided,
                            Layout::expanded};
  for (const DType dtype : {float64, float32, float16, bfloat16, int64, int32, uint8})
    for (const MatmulShapes& s : shapes)
      for (const Layout a : layouts)
        for (const Layout b : layouts)
          for (const bool bias : {false, true}) check_matmul(seed++, dtype, s, a, b, Layout::row_major, bias);
}

TEST_CASE("matmul: batches, shared and expanded operands, results of any layout") {
  uint64_t seed = 1;
  const MatmulShapes shapes[] = {
      {{3, 5, 7}, {3, 7, 4}}, {{2, 3, 8, 16}, {2, 3, 16, 8}}, {{1, 4, 6}, {1, 6, 5}}};
  const Layout layouts[] = {Layout::row_major, Layout::transposed, Layout::padded,
                            Layout::strided,   Layout::expanded,   Layout::overlapping};
  for (const DType dtype : {float64, float32, float16, bfloat16, int64})
    for (const MatmulShapes& s : shapes)
      for (const Layout a : layouts)
        for (const Layout b : layouts)
          for (const Layout out : {Layout::row_major, Layout::transposed, Layout::strided}) {
            check_matmul(seed, dtype, s, a, b, out, seed % 2 == 0);
            ++seed;
          }
}

TEST_CASE("matmul: the heads of an attention, interleaved in memory") {
  const uint64_t seed = 7;
  CAPTURE(seed);
  Random random(seed);
  for (const DType dtype : kFloating) {
    CAPTURE(name_of(dtype));
    const int64_t B = 2, T = 5, H = 3, D = 4;
    const Array packed =
        random_array(random, dtype, {B, T, 3, H, D});  // queries, keys and values of each position
    const auto part = [&](int64_t i) {
      View view = packed.view;
      view.data = packed.view.as<std::byte>() + static_cast<size_t>(i * H * D) * size_of(dtype);
      view.shape = {B, H, T, D};
      view.strides = {T * 3 * H * D, D, 3 * H * D, 1};
      return view;
    };
    View keys = part(1);
    std::swap(keys.shape[2], keys.shape[3]);
    std::swap(keys.strides[2], keys.strides[3]);
    const Array actual(dtype, {B, H, T, T}), expected(dtype, {B, H, T, T});
    cpu_table.matmul(actual.view, part(0), keys, {});
    reference_table.matmul(expected.view, part(0), keys, {});
    check_close(actual, expected);
    const Array actual_mix(dtype, {B, H, T, D}), expected_mix(dtype, {B, H, T, D});
    cpu_table.matmul(actual_mix.view, expected.view, part(2), {});
    reference_table.matmul(expected_mix.view, expected.view, part(2), {});
    check_close(actual_mix, expected_mix);
  }
}

TEST_CASE("matmul: no terms give the bias or zeros, no rows nothing") {
  uint64_t seed = 1;
  for (const DType dtype : {float64, float32, float16, bfloat16, int64})
    for (const MatmulShapes& s : {MatmulShapes{{3, 0}, {0, 2}},
                                  {{2, 3, 0}, {2, 0, 4}},
                                  {{0, 4}, {4, 3}},
                                  {{3, 4}, {4, 0}},
                                  {{0, 3, 4}, {0, 4, 2}}})
      for (const bool bias : {false, true})
        check_matmul(seed++, dtype, s, Layout::row_major, Layout::row_major, Layout::row_major, bias);
}

TEST_CASE("conv2d and its gradients: every dtype and layout") {
  uint64_t seed = 1;
  const Layout layouts[] = {Layout::row_major, Layout::channels_last, Layout::strided};
  for (const DType dtype : kFloating)
    for (const ConvCase& c : kConvCases)
      for (const Layout layout : layouts)
        for (const Layout input :
             {Layout::row_major, Layout::channels_last, Layout::padded, Layout::expanded}) {
          check_conv(seed, dtype, c, layout, input, layouts[seed % 3], seed % 5 < 3);
          ++seed;
        }
}

TEST_CASE("conv2d: empty operands") {
  uint64_t seed = 1;
  const ConvCase cases[] = {{{0, 3, 5, 5}, {4, 3, 3, 3}, {}},
                            {{2, 3, 5, 5}, {0, 3, 3, 3}, {}},
                            {{2, 0, 5, 5}, {4, 0, 3, 3}, {}},
                            {{2, 3, 0, 5}, {4, 3, 1, 1}, {{1, 1}, {1, 0}, {1, 1}, 1}}};
  for (const DType dtype : kFloating)
    for (const ConvCase& c : cases)
      for (const Layout layout : {Layout::row_major, Layout::channels_last})
        check_conv(seed++, dtype, c, layout, layout, layout, true);
}

// torch 2.15: torch.conv2d on the same series, and backward with the series as the gradient.
TEST_CASE("conv2d: PyTorch's numbers, with stride, padding and dilation") {
  const ConvCase c{{1, 2, 4, 5}, {3, 2, 3, 2}, {{2, 1}, {1, 2}, {1, 2}, 1}};
  const ConvGolden golden{
      {20, 1,   -20, 4,  -5, -18, 3,  -26, 25, 13, -53, 13, 2,  -27, -13, -1, 33, 9,   7,   -9, -1,
       16, -16, 11,  48, -3, 13,  -6, -11, 4,  16, -35, -9, 21, -12, -12, -1, 2,  -12, -26, -4, 15},
      {-3, -2, -1,  -5, 11, 0, 18,  -14, 4,  -8,  -1,  -5, 11, -3, -2, -4, -6, -3, 5,  8,
       -7, 14, -10, 6,  -3, 8, -11, 5,   11, -13, -10, 6,  -3, -7, 14, 8,  5,  -3, -6, -4},
      {2,  22, 24,  24,  24,  -9,  -9, -11, -9, 24,  -9, 24,  -13, -13, -26, -11, -15, 22,
       20, -2, -15, -22, -15, -22, 22, 2,   24, -11, -9, -22, -11, 2,   24,  22,  24,  22}};
  check_golden(cpu_table, c, golden);
  check_golden(reference_table, c, golden);
}

TEST_CASE("conv2d: PyTorch's numbers, with groups") {
  const ConvCase c{{2, 4, 3, 3}, {4, 2, 2, 2}, {{1, 2}, {0, 1}, {1, 1}, 2}};
  const ConvGolden golden{
      {-25, -27, -1, -13, 16, 13, 12, 0,  10, -15, 14, 18, 2, -1, 0,   12,
       -1,  -13, 1,  -10, 12, 0,  8,  -2, 14, 18,  18, 18, 0, 12, -24, -8},
      {-4, -7, 2, 2,  -4, -4, 5, 2, -7,  -2,  1,  3, 4, 10, -4, 5,  1, -8, -7,  -4, 6, 7, 6,  -10,
       -2, 1,  3, -8, -6, 4,  8, 5, -11, 0,   2,  4, 2, 5,  -2, -4, 2, 5,  -7,  -4, 6, 3, -2, -2,
       -4, 0,  3, -8, -6, 4,  6, 0, 4,   -10, -8, 3, 3, -2, -2, 4,  2, 6,  -11, -6, 5, 4, -2, -2},
      {3, 13, 1,  -11, -3, -4, -5, 5,  -4, -13, -4,  -11, -4, 15, -4, -5,
       0, -3, -9, -2,  -5, 0,  -3, 12, 7,  5,   -16, 5,   4,  5,  3,  -17}};
  check_golden(cpu_table, c, golden);
  check_golden(reference_table, c, golden);
}

TEST_CASE("convolutions of several threads at once are those of one") {
  const uint64_t seed = 3;
  CAPTURE(seed);
  Random random(seed);
  const ConvCase c{{2, 16, 12, 12}, {16, 16, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}};
  const Array weight = random_array(random, float32, c.weight);
  std::vector<Array> inputs(4), results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = random_array(random, float32, c.input);
    results[i] = Array(float32, c.out());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 50; ++repeat)
        cpu_table.conv2d(results[i].view, inputs[i].view, weight.view, {}, c.geometry);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Array expected(float32, c.out());
    reference_table.conv2d(expected.view, inputs[i].view, weight.view, {}, c.geometry);
    check_close(results[i], expected);
  }
}

TEST_CASE("float64 products have the same bits for any number of threads") {
  const uint64_t seed = 5;
  CAPTURE(seed);
  Random random(seed);
  const Array a = random_array(random, float64, {150, 90}), b = random_array(random, float64, {90, 130});
  const ConvCase c{{1, 12, 20, 20}, {70, 12, 3, 3}, {}};
  const Array input = random_array(random, float64, c.input),
              weight = random_array(random, float64, c.weight);
  std::vector<std::vector<std::byte>> results;
  const int threads = num_threads();
  for (const int n : {1, 2, 3}) {
    set_num_threads(n);
    const Array product(float64, {150, 130}), out(float64, c.out());
    cpu_table.matmul(product.view, a.view, b.view, {});
    cpu_table.conv2d(out.view, input.view, weight.view, {}, c.geometry);
    results.push_back(product.memory);
    results.back().insert(results.back().end(), out.memory.begin(), out.memory.end());
  }
  set_num_threads(threads);
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

}  // namespace mezzo
