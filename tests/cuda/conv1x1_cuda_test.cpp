// CUDA's 1x1 convolutions with statistics beside the reference kernels.
#include <cmath>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

const Kernels& table(bool reference) { return reference ? reference_table() : device_table(); }

struct Given {
  bool norm, parameters, bias, grad_out, grad_mean, grad_var;
};

void check(int64_t pixels, int64_t in, int64_t out, DType dtype, Layout layout, const Given& given,
           Numbers& numbers) {
  CAPTURE(pixels);
  CAPTURE(in);
  CAPTURE(out);
  CAPTURE(name_of(dtype));
  CAPTURE(static_cast<int>(layout));
  CAPTURE(given.norm);
  CAPTURE(given.parameters);
  CAPTURE(given.grad_out);
  CAPTURE(given.grad_mean);
  CAPTURE(given.grad_var);
  const DType compute = compute_type(dtype);
  Array x = array_of(dtype, {pixels, in}, layout), weight = array_of(dtype, {out, in}, layout),
        bias(dtype, {out}), y = array_of(dtype, {pixels, out}, layout),
        g = array_of(dtype, {pixels, out}, layout);
  Array norm_mean(compute, {in}), norm_invstd(compute, {in}), norm_weight(compute, {in}),
      norm_bias(compute, {in}), mean(compute, {out}), var(compute, {out}), g_mean(compute, {out}),
      g_var(compute, {out});
  for (Array* array : {&x, &weight, &bias, &g, &norm_mean, &norm_bias, &g_mean, &g_var})
    array->fill([&](int64_t) { return numbers.real(-1, 1); });
  for (Array* array : {&norm_invstd, &norm_weight})
    array->fill([&](int64_t) { return numbers.real(0.5, 1.5); });

  const auto on = [&](bool reference) {
    return [reference](const Array& array, bool is_given = true) {
      return !is_given ? View() : reference ? array.host() : array.to_device();
    };
  };
  const auto norm = [&](auto view) {
    const bool parameters = given.norm && given.parameters;
    return NormRelu{view(norm_mean, given.norm), view(norm_invstd, given.norm), view(norm_weight, parameters),
                    view(norm_bias, parameters)};
  };
  for (const bool reference : {false, true}) {
    const auto view = on(reference);
    table(reference).conv1x1_stats(view(y), view(mean), view(var), view(x), norm(view), view(weight),
                                   view(bias, given.bias));
  }
  const double product = 2 * precision_of(dtype) * std::sqrt(static_cast<double>(in + 10));
  CHECK(y.agrees(product));
  CHECK(mean.agrees(product));
  CHECK(var.agrees(2 * product));

  Array dx = array_of(dtype, {pixels, in}, layout), dw = array_of(dtype, {out, in}, layout), db(dtype, {out}),
        d_norm_weight(compute, {in}), d_norm_bias(compute, {in});
  for (const bool reference : {false, true}) {
    const auto view = on(reference);
    const Conv1x1Grads grads{view(dx), view(dw), view(db), view(d_norm_weight, given.norm),
                             view(d_norm_bias, given.norm)};
    table(reference).conv1x1_stats_grad(grads, view(g, given.grad_out), view(g_mean, given.grad_mean),
                                        view(g_var, given.grad_var), view(y), view(mean), view(x), norm(view),
                                        view(weight));
  }
  const double sums = 2 * precision_of(dtype) * std::sqrt(static_cast<double>(pixels + out + 10));
  CHECK(dx.agrees(sums));
  CHECK(dw.agrees(sums));
  CHECK(db.agrees(sums));
  if (!given.norm) return;
  CHECK(d_norm_weight.agrees(2 * sums));
  CHECK(d_norm_bias.agrees(2 * sums));
}

}  // namespace

TEST_CASE("conv1x1_stats: every dtype and layout, with what may be not given") {
  Numbers numbers(1);
  const Given cases[] = {{true, true, true, true, true, true},     {true, true, false, true, true, true},
                         {true, false, false, true, false, false}, {false, false, true, true, false, false},
                         {false, false, false, true, true, false}, {true, true, false, false, true, true},
                         {false, false, true, false, false, true}, {true, true, false, false, false, false}};
  for (const DType dtype : kFloating) {
    for (const Given& given : cases) {
      for (const Layout layout : {Layout::row_major, Layout::permuted, Layout::spread, Layout::shifted}) {
        check(70, 16, 24, dtype, layout, given, numbers);
        check(33, 5, 7, dtype, layout, given, numbers);
      }
    }
    check(1200, 8, 16, dtype, Layout::row_major, cases[0], numbers);
    check(0, 8, 16, dtype, Layout::row_major, cases[0], numbers);
  }
}

TEST_CASE("conv1x1_stats_grad: the gradient of x in the memory of that of the result") {
  Numbers numbers(2);
  for (const bool normalised : {false, true}) {
    Array x(float32, {40, 16}), y(float32, {40, 16}), weight(float32, {16, 16}), dw(float32, {16, 16}),
        g(float32, {40, 16}), mean(float32, {16}), invstd(float32, {16}), d_norm_weight(float32, {16}),
        d_norm_bias(float32, {16});
    for (Array* array : {&x, &y, &weight, &g, &mean, &invstd})
      array->fill([&](int64_t) { return numbers.real(-1, 1); });
    const auto run = [&](bool reference) {
      const auto view = [&](const Array& array, bool given = true) {
        return !given ? View() : reference ? array.host() : array.to_device();
      };
      const View gradient = view(g);
      table(reference).conv1x1_stats_grad(
          {gradient, view(dw), {}, view(d_norm_weight, normalised), view(d_norm_bias, normalised)}, gradient,
          {}, {}, view(y), view(mean), view(x), {view(mean, normalised), view(invstd, normalised), {}, {}},
          view(weight));
    };
    run(false);
    run(true);
    CHECK(g.agrees(1e-5));
    CHECK(dw.agrees(1e-5));
  }
}
