// CUDA's attention beside the reference kernels.
#include <cmath>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

struct Case {
  Shape batch;
  int64_t queries, keys, elements, values;
  DType mask = uint8;  ///< uint8: none
  bool is_causal = false;
};

Shape with(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

void check(const Case& c, DType dtype, Layout from, Layout to, Numbers& numbers) {
  CAPTURE(to_string(c.batch));
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(name_of(c.mask));
  CAPTURE(c.is_causal);
  CAPTURE(name_of(dtype));
  CAPTURE(static_cast<int>(from));
  CAPTURE(static_cast<int>(to));
  const DType compute = compute_type(dtype);
  const Shape q = with(c.batch, c.queries, c.elements), k = with(c.batch, c.keys, c.elements),
              v = with(c.batch, c.keys, c.values), o = with(c.batch, c.queries, c.values);
  Array query = array_of(dtype, q, from), key = array_of(dtype, k, from), value = array_of(dtype, v, from),
        mask = array_of(c.mask, with(c.batch, c.queries, c.keys), from), g = array_of(dtype, o, from);
  for (Array* array : {&query, &key, &value, &g}) array->fill([&](int64_t) { return numbers.of(dtype); });
  // Every 7th query sees nothing.
  mask.fill([&](int64_t i) {
    const bool sees = i / c.keys % 7 != 3 && numbers.whole(0, 3) != 0;
    return c.mask == bool_ ? sees : sees ? numbers.real(0, 2) : -inf;
  });
  const auto operands = [&](bool reference) {
    const auto at = [&](const Array& array) { return reference ? array.host() : array.to_device(); };
    return AttentionOperands{at(query), at(key),    at(value), c.mask == uint8 ? View() : at(mask),
                             0.6,       c.is_causal};
  };
  const double tolerance = 16 * precision_of(dtype);
  Array out = array_of(dtype, o, to), lse = array_of(compute, with(c.batch, c.queries, 1), to);
  device_table().attention(out.to_device(), lse.to_device(), operands(false));
  reference_table().attention(out.host(), lse.host(), operands(true));
  CHECK(out.agrees(tolerance));
  CHECK(lse.agrees(16 * precision_of(compute)));

  Array dq = array_of(dtype, q, to), dk = array_of(dtype, k, to), dv = array_of(dtype, v, to);
  device_table().attention_grad(dq.to_device(), dk.to_device(), dv.to_device(), g.to_device(),
                                out.to_device(), lse.to_device(), operands(false));
  reference_table().attention_grad(dq.host(), dk.host(), dv.host(), g.host(), out.host(), lse.host(),
                                   operands(true));
  CHECK(dq.agrees(2 * tolerance));
  CHECK(dk.agrees(2 * tolerance));
  CHECK(dv.agrees(2 * tolerance));
}

}  // namespace

TEST_CASE("attention: every dtype, layout and mask") {
  Numbers numbers(1);
  for (const DType dtype : kFloating) {
    for (const Layout from : kLayouts) {
      for (const Layout to : {Layout::row_major, Layout::permuted, Layout::spread}) {
        for (const DType mask : {uint8, bool_, float32})
          check({{2, 3}, 9, 11, 5, 6, mask}, dtype, from, to, numbers);
        check({{2, 3}, 9, 11, 5, 6, uint8, true}, dtype, from, to, numbers);
      }
    }
    check({{2}, 9, 12, 8, 8, dtype}, dtype, Layout::row_major, Layout::row_major, numbers);
  }
}

TEST_CASE("attention: long rows, one query, no batch dimension, nothing to see") {
  Numbers numbers(2);
  for (const DType dtype : {float32, float16}) {
    for (const Case& c :
         {Case{{3}, 70, 600, 8, 8}, Case{{}, 150, 150, 8, 4, uint8, true}, Case{{1, 2}, 65, 260, 8, 8, bool_},
          Case{{2}, 1, 33, 8, 8}, Case{{2}, 5, 1, 8, 8, uint8, true}, Case{{2}, 5, 0, 4, 4},
          Case{{2}, 0, 5, 4, 4}, Case{{0}, 5, 5, 4, 4}})
      check(c, dtype, Layout::row_major, Layout::row_major, numbers);
  }
}
