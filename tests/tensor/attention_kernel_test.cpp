// The attention kernels of the CPU beside the naive ones: layouts, dtypes, masks, blocks, numbers of threads.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/ops.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/reference/kernel_families.h"
#include "tensor/threads.h"
#include "tests/tensor/kernel_views.h"
#include "tests/values.h"

namespace mezzo {
namespace {

Kernels table(bool reference) {
  Kernels kernels;
  reference ? reference::add_attention(kernels) : cpu::add_attention(kernels);
  return kernels;
}

struct Case {
  int64_t queries, keys, elements, value_elements;
  DType mask;  ///< uint8: none
  bool is_causal;
};

/// Within `epsilons` of the dtype, beside the largest finite entry.
bool agree(Elements& actual, Elements& expected, double epsilons) {
  double largest = 1;
  for (int64_t i = 0; i < expected.numel(); ++i) {
    if (std::isfinite(expected[i])) largest = std::max(largest, std::abs(expected[i]));
  }
  bool all = true;
  for (int64_t i = 0; i < expected.numel(); ++i)
    all &= near(actual[i], expected[i], epsilons * epsilon(actual.dtype()) * largest);
  return all;
}

void check_kernels(const Case& c, DType dtype, Layout from, Layout to, std::mt19937& random) {
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(name_of(c.mask));
  CAPTURE(c.is_causal);
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(from));
  CAPTURE(name_of(to));
  const Shape q{2, 3, c.queries, c.elements}, k{2, 3, c.keys, c.elements}, v{2, 3, c.keys, c.value_elements},
      o{2, 3, c.queries, c.value_elements}, l{2, 3, c.queries, 1}, s{2, 3, c.queries, c.keys};
  Elements query(dtype, q, from), key(dtype, k, from), value(dtype, v, from), mask(c.mask, s, from),
      g(dtype, o, from);
  for (Elements* x : {&query, &key, &value, &g}) x->randomize(random);
  // Every 7th query sees nothing.
  mask.fill([&](int64_t i) {
    const bool sees = i / c.keys % 7 != 3 && random() % 4 != 0;
    return c.mask == bool_ ? sees : sees ? std::ldexp(static_cast<double>(random() % 64), -5) : -INFINITY;
  });
  const AttentionOperands in{query.view(),
                             key.view(),
                             value.view(),
                             c.mask == uint8 ? View{} : mask.view(),
                             1 / std::sqrt(static_cast<double>(c.elements)),
                             c.is_causal};
  Elements out(dtype, o, to), lse(compute_type(dtype), l, to), naive_out(dtype, o),
      naive_lse(compute_type(dtype), l);
  const auto unset = [](int64_t) { return NAN; };  // what is not written shows
  for (Elements* x : {&out, &lse}) x->fill(unset);
  table(false).attention(out.view(), lse.view(), in);
  table(true).attention(naive_out.view(), naive_lse.view(), in);
  CHECK(agree(out, naive_out, 8));
  CHECK(agree(lse, naive_lse, 8));

  Elements dq(dtype, q, to), dk(dtype, k, to), dv(dtype, v, to), naive_dq(dtype, q), naive_dk(dtype, k),
      naive_dv(dtype, v);
  for (Elements* x : {&dq, &dk, &dv}) x->fill(unset);
  table(false).attention_grad(dq.view(), dk.view(), dv.view(), g.view(), out.view(), lse.view(), in);
  table(true).attention_grad(naive_dq.view(), naive_dk.view(), naive_dv.view(), g.view(), out.view(),
                             lse.view(), in);
  CHECK(agree(dq, naive_dq, 16));
  CHECK(agree(dk, naive_dk, 16));
  CHECK(agree(dv, naive_dv, 16));
}

}  // namespace

TEST_CASE("attention kernels: every layout, dtype and mask gives the naive kernel's values") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Layout from : kLayouts) {
    for (const Layout to : kResultLayouts) {
      for (const DType mask : {uint8, bool_, float32}) {
        for (const DType dtype : {float64, float32, float16, bfloat16})
          check_kernels({9, 11, 5, 6, mask, false}, dtype, from, to, random);
      }
      check_kernels({9, 11, 5, 6, uint8, true}, float32, from, to, random);
    }
  }
}

TEST_CASE("attention kernels: several blocks of queries and keys") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const Case& c : {Case{70, 300, 8, 8, uint8, false},
                        {150, 150, 8, 4, uint8, true},
                        {70, 300, 8, 8, uint8, true},
                        {200, 64, 3, 8, uint8, true},
                        {64, 129, 8, 8, bool_, false},
                        {65, 260, 8, 8, float32, false},
                        {64, 128, 32, 64, uint8, true},  // results where they lie, as whole panels
                        {136, 136, 64, 32, uint8, true},
                        {72, 264, 32, 32, float32, false},
                        {40, 264, 32, 64, uint8, true},  // keys that no query sees
                        {0, 8, 32, 32, uint8, false},
                        {8, 0, 32, 32, uint8, false},
                        {1, 1, 1, 1, uint8, true}})
    check_kernels(c, float32, Layout::row_major, Layout::row_major, random);
}

TEST_CASE("scaled_dot_product_attention: the same bits for any number of threads") {
  const Tensor x = randn({2, 3, 140, 8}, {.device = test_device()});
  const int threads = num_threads();
  const auto run = [&] {
    const Tensor leaf = x.clone().requires_grad_();
    const Tensor y = scaled_dot_product_attention(leaf, leaf, leaf, {}, {.is_causal = true});
    y.square().sum().backward();
    return std::array{values(y), values(leaf.grad())};
  };
  set_num_threads(1);
  const auto one = run();
  set_num_threads(4);
  CHECK((run() == one));
  set_num_threads(threads);
}

TEST_CASE("scaled_dot_product_attention: memory grows with the queries, not with their pairs") {
  if (test_device().type == Device::Type::cuda) return skip("CUDA's attention is not fused yet");
  const Tensor x = randn({1, 1024, 4}, {.device = test_device()});
  const size_t before = memory_stats(test_device()).live;
  reset_peak_memory(test_device());
  const Tensor y = scaled_dot_product_attention(x, x, x);
  CHECK(memory_stats(test_device()).peak - before < 1024 * 1024 * sizeof(float) / 8);
}

}  // namespace mezzo
