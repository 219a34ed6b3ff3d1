// CUDA's matrix products and linear maps beside the reference ones.
#include "cuda/gemm.h"
#include "tensor/cuda_settings.h"
#include "tensor/error.h"
#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

constexpr DType kNumbers[] = {float64, float32, float16, bfloat16, int64, int32, uint8};
constexpr Layout kOutLayouts[] = {Layout::row_major, Layout::permuted, Layout::spread, Layout::shifted};

/// Sums of products below 1 are compared to a few roundings, of what they pass through too.
double tolerance_of(DType dtype) { return is_floating(dtype) ? 4 * precision_of(dtype) : 0; }

/// What a not given operand looks like on both sides.
View host_of(const Array* array) { return array ? array->host() : View(); }
View device_of(const Array* array) { return array ? array->to_device() : View(); }

class Operands {
 public:
  explicit Operands(unsigned seed) : numbers_(seed) {}
  Array& fill(Array& array) {
    const DType dtype = array.host().dtype;
    return array.fill([&](int64_t) {
      return is_floating(dtype) ? numbers_.real(-1, 1) : static_cast<double>(numbers_.whole(0, 9));
    });
  }

 private:
  Numbers numbers_;
};

bool multiplies(unsigned seed, const Array& out, Array& a, Array& b, Array* bias) {
  Operands operands(seed);
  operands.fill(a);
  operands.fill(b);
  if (bias) operands.fill(*bias);
  device_table().matmul(out.to_device(), a.to_device(), b.to_device(), device_of(bias));
  reference_table().matmul(out.host(), a.host(), b.host(), host_of(bias));
  return out.agrees(tolerance_of(out.host().dtype));
}

}  // namespace

TEST_CASE("matmul on CUDA: every dtype and layout") {
  const Shape shapes[] = {{5, 7, 3}, {1, 9, 17}, {33, 1, 2}, {8, 16, 1}, {1, 1, 1}, {20, 33, 35}};
  unsigned seed = 0;
  for (const DType dtype : kNumbers)
    for (const Shape& s : shapes)
      for (const Layout a_layout : kLayouts)
        for (const Layout b_layout : kLayouts) {
          const Layout out_layout = kOutLayouts[seed % 4];
          INFO(name_of(dtype), " ", to_string(s), " layouts ", int(a_layout), int(b_layout), int(out_layout));
          Array a = array_of(dtype, {s[0], s[1]}, a_layout), b = array_of(dtype, {s[1], s[2]}, b_layout);
          Array bias = array_of(dtype, {s[2]}, seed % 2 ? Layout::spread : Layout::row_major);
          const Array out = array_of(dtype, {s[0], s[2]}, out_layout);
          CHECK(multiplies(seed, out, a, b, seed % 3 ? &bias : nullptr));
          ++seed;
        }
}

TEST_CASE("matmul on CUDA: batches in any strides") {
  const Shape batches[] = {{3}, {2, 3}, {1, 4}, {2, 1, 3}};
  unsigned seed = 0;
  for (const DType dtype : {float64, float32, bfloat16, int32})
    for (const Shape& batch : batches)
      for (const Layout a_layout : kLayouts)
        for (const Layout b_layout : kLayouts)
          for (const int64_t rows : {1, 4}) {
            const Layout out_layout = kOutLayouts[seed % 4];
            INFO(name_of(dtype), " ", to_string(batch), " layouts ", int(a_layout), int(b_layout),
                 int(out_layout));
            const auto shape = [&](int64_t m, int64_t n) {
              Shape result = batch;
              result.push_back(m);
              result.push_back(n);
              return result;
            };
            Array a = array_of(dtype, shape(rows, 6), a_layout), b = array_of(dtype, shape(6, 5), b_layout);
            Array bias = array_of(dtype, {5});
            CHECK(multiplies(seed, array_of(dtype, shape(rows, 5), out_layout), a, b,
                             seed % 2 ? &bias : nullptr));
            ++seed;
          }
}

TEST_CASE("matmul on CUDA: heads of an attention, and a matrix for all batches") {
  const int64_t B = 2, H = 3, T = 5, D = 4;
  const Shape heads{B, H, T, D}, packed{T * 3 * H * D, D, 3 * H * D, 1};
  for (const DType dtype : kFloating) {
    INFO(name_of(dtype));
    Array query(dtype, heads, packed), key(dtype, {B, H, D, T}, {packed[0], packed[1], packed[3], packed[2]});
    CHECK(multiplies(1, array_of(dtype, {B, H, T, T}), query, key, nullptr));
    // Results interleaved again: [B, T, H, D] in memory.
    Array scores(dtype, {B, H, T, T}), value(dtype, heads, packed);
    CHECK(multiplies(2, Array(dtype, heads, {T * H * D, D, H * D, 1}), scores, value, nullptr));
    Array rows(dtype, {B, T, D}), shared(dtype, {B, D, 7}, {0, 7, 1}),
        shared_transposed(dtype, {B, D, 7}, {0, 1, D});
    CHECK(multiplies(3, Array(dtype, {B, T, 7}), rows, shared, nullptr));
    CHECK(multiplies(4, Array(dtype, {B, T, 7}), rows, shared_transposed, nullptr));
    Array row(dtype, {B, 1, D}), expanded(dtype, {B, 3, D}, {0, D, 1});
    CHECK(multiplies(5, Array(dtype, {B, 1, 7}), row, shared, nullptr));
    CHECK(multiplies(6, Array(dtype, {B, 3, 7}), expanded, shared, nullptr));
    // Windows that overlap, one element apart.
    Array windows(dtype, {4, 3, D}, {1, D, 1});
    Array columns(dtype, {4, D, 2});
    CHECK(multiplies(7, Array(dtype, {4, 3, 2}), windows, columns, nullptr));
  }
}

TEST_CASE("matmul on CUDA: no terms, no rows") {
  for (const DType dtype : kNumbers)
    for (const Shape& s : {Shape{3, 0, 2}, {0, 4, 3}, {3, 4, 0}, {0, 0, 0}})
      for (const bool with_bias : {false, true}) {
        INFO(name_of(dtype), " ", to_string(s));
        Array a(dtype, {s[0], s[1]}), b(dtype, {s[1], s[2]}), bias(dtype, {s[2]});
        CHECK(multiplies(1, Array(dtype, {s[0], s[2]}), a, b, with_bias ? &bias : nullptr));
        Array left(dtype, {2, s[0], s[1]}), right(dtype, {2, s[1], s[2]});
        CHECK(multiplies(1, Array(dtype, {2, s[0], s[2]}), left, right, with_bias ? &bias : nullptr));
      }
}

TEST_CASE("matmul on CUDA: integers wrap") {
  const Array out(int32, {1, 1}), a(int32, {1, 2}), b(int32, {2, 1});
  const_cast<Array&>(a).fill([](int64_t) { return 1 << 30; });
  const_cast<Array&>(b).fill([](int64_t) { return 3; });
  device_table().matmul(out.to_device(), a.to_device(), b.to_device(), {});
  reference::set(out.host(), 0, -2147483648.0);  // 6 * 2^30 modulo 2^32
  CHECK(out.agrees());
}

TEST_CASE("gemm adds to what is there") {
  unsigned seed = 0;
  for (const DType dtype : kFloating)
    for (const Layout layout : kOutLayouts)
      for (const int64_t terms : {6, 0}) {
        INFO(name_of(dtype), " layout ", int(layout), " terms ", terms);
        Operands operands(seed++);
        Array out = array_of(dtype, {2, 4, 5}, layout), a(dtype, {2, 4, terms}), b(dtype, {2, terms, 5});
        Array expected(dtype, {2, 4, 5});
        operands.fill(out);
        operands.fill(a);
        operands.fill(b);
        gemm(out.to_device(), a.to_device(), b.to_device(), true);
        reference_table().matmul(expected.host(), a.host(), b.host(), {});
        for (int64_t i = 0; i < 40; ++i)
          reference::set(out.host(), i, reference::get(out.host(), i) + reference::get(expected.host(), i));
        CHECK(out.agrees(tolerance_of(dtype)));
      }
}

namespace {

constexpr LinearWith kWith[] = {LinearWith::nothing, LinearWith::gelu_before, LinearWith::relu_after};

struct LinearCase {
  int64_t P, C, O;
};
constexpr LinearCase kLinears[] = {{7, 5, 3},  {16, 8, 16}, {130, 3, 40}, {1, 9, 1},
                                   {5, 16, 8}, {0, 4, 3},   {3, 0, 4},    {4, 3, 0}};

}  // namespace

TEST_CASE("linear on CUDA and its gradients: every dtype and layout") {
  unsigned seed = 0;
  for (const DType dtype : kFloating)
    for (const LinearCase& c : kLinears)
      for (const LinearWith with : kWith)
        for (const Layout layout : kOutLayouts)
          for (const bool with_bias : {false, true}) {
            INFO(name_of(dtype), " [", c.P, ", ", c.C, "] to ", c.O, " with ", int(with), " layout ",
                 int(layout), " bias ", with_bias);
            Operands operands(seed++);
            const Layout other = kOutLayouts[seed % 4];
            Array x = array_of(dtype, {c.P, c.C}, layout), weight = array_of(dtype, {c.O, c.C}, other),
                  bias = array_of(dtype, {c.O}, layout), out = array_of(dtype, {c.P, c.O}, other);
            operands.fill(x);
            operands.fill(weight);
            operands.fill(bias);
            device_table().linear(out.to_device(), x.to_device(), weight.to_device(),
                                  device_of(with_bias ? &bias : nullptr), with);
            reference_table().linear(out.host(), x.host(), weight.host(),
                                     host_of(with_bias ? &bias : nullptr), with);
            CHECK(out.agrees(tolerance_of(dtype)));

            Array grad_out = array_of(dtype, {c.P, c.O}, kLayouts[seed % 5]);
            operands.fill(grad_out);
            const bool all = seed % 3 != 0;  // else one of the three
            const Array dx = array_of(dtype, {c.P, c.C}, other), dw = array_of(dtype, {c.O, c.C}, layout),
                        db = array_of(dtype, {c.O}, layout);
            const unsigned one = seed / 3 % 3;
            const auto wanted = [&](unsigned i, const Array& a) { return all || one == i ? &a : nullptr; };
            const Array *gx = wanted(0, dx), *gw = wanted(1, dw), *gb = wanted(2, db);
            const Array* y = with == LinearWith::relu_after ? &out : nullptr;
            const Array* read = all || gw || with == LinearWith::gelu_before ? &x : nullptr;
            device_table().linear_grad({device_of(gx), device_of(gw), device_of(gb)}, grad_out.to_device(),
                                       device_of(y), device_of(read), weight.to_device(), with);
            reference_table().linear_grad({host_of(gx), host_of(gw), host_of(gb)}, grad_out.host(),
                                          host_of(y), host_of(read), weight.host(), with);
            const double factor = std::sqrt(static_cast<double>(std::max<int64_t>(c.P, 1)));
            for (const Array* result : {gx, gw, gb}) {
              if (result) CHECK(result->agrees(factor * tolerance_of(dtype)));
            }
          }
}

TEST_CASE("linear on CUDA: the sum of many rows") {
  for (const DType dtype : {float32, bfloat16}) {
    for (const int64_t columns : {8, 5, 16, 300}) {
      const int64_t rows = 1000, padded = columns == 16 ? 19 : columns;
      Operands operands(1);
      Array grad_out(dtype, {rows, columns}, {padded, 1}), out(dtype, {rows, columns}),
          weight(dtype, {columns, 1});
      operands.fill(grad_out);
      operands.fill(out);
      for (const bool relu : {false, true}) {
        const Array bias(dtype, {columns});
        const LinearWith with = relu ? LinearWith::relu_after : LinearWith::nothing;
        device_table().linear_grad({{}, {}, bias.to_device()}, grad_out.to_device(),
                                   relu ? out.to_device() : View(), {}, weight.to_device(), with);
        reference_table().linear_grad({{}, {}, bias.host()}, grad_out.host(), relu ? out.host() : View(), {},
                                      weight.host(), with);
        CHECK(bias.agrees(dtype == float32 ? 1e-4 : precision_of(dtype)));
      }
    }
  }
}

TEST_CASE("linear on CUDA: NaN passes the relu forward, and stops backward") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double values[] = {nan, inf, -inf, 2};
  for (const DType dtype : kFloating) {
    INFO(name_of(dtype));
    Array x(dtype, {4, 1}), weight(dtype, {1, 1}), bias(dtype, {1}), out(dtype, {4, 1});
    x.fill([&](int64_t i) { return values[i]; });
    weight.fill([](int64_t) { return 1; });
    bias.fill([](int64_t) { return 0.5; });
    device_table().linear(out.to_device(), x.to_device(), weight.to_device(), bias.to_device(),
                          LinearWith::relu_after);
    reference_table().linear(out.host(), x.host(), weight.host(), bias.host(), LinearWith::relu_after);
    CHECK(out.agrees());
    const Array dx(dtype, {4, 1}), db(dtype, {1});
    Array grad_out(dtype, {4, 1});
    grad_out.fill([](int64_t i) { return static_cast<double>(i + 1); });
    device_table().linear_grad({dx.to_device(), {}, db.to_device()}, grad_out.to_device(), out.to_device(),
                               {}, weight.to_device(), LinearWith::relu_after);
    reference_table().linear_grad({dx.host(), {}, db.host()}, grad_out.host(), out.host(), {}, weight.host(),
                                  LinearWith::relu_after);
    CHECK(dx.agrees());
    CHECK(db.agrees());
  }
}

TEST_CASE("TF32 is off for matrix products, unless told otherwise") {
  CHECK_FALSE(tf32_matmul_allowed());
  // 1 + 2^-12 is 1 in TF32.
  const double value = 1 + 0x1p-12;
  for (const bool allowed : {false, true}) {
    allow_tf32_matmul(allowed);
    Array a(float32, {1, 1}), b(float32, {1, 1});
    const Array out(float32, {1, 1});
    a.fill([&](int64_t) { return value; });
    b.fill([&](int64_t) { return 1; });
    device_table().matmul(out.to_device(), a.to_device(), b.to_device(), {});
    reference::set(out.host(), 0, allowed ? 1 : value);
    if (!allowed) CHECK(out.agrees());
    if (allowed) CHECK(out.agrees(0x1p-11));  // it may, and on cards before Ampere does not
  }
  allow_tf32_matmul(false);
}
