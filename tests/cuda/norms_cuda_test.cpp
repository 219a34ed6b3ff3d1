// CUDA kernels beside the reference ones: batch and layer normalisation.
#include <cmath>
#include <limits>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

/// How [N, C, ...] lies in memory.
constexpr Layout kImages[] = {Layout::row_major, Layout::channels_last, Layout::permuted, Layout::shifted,
                              Layout::spread};

/// Calls run(table, view) for both devices, where view(array) is the array's View there; and for arrays that
/// are not given, view(nullptr).
template <class Run>
void on_both(Run&& run) {
  run(device_table(), [](const Array* array) { return array ? array->to_device() : View(); });
  run(reference_table(), [](const Array* array) { return array ? array->host() : View(); });
}

struct Normal {
  std::mt19937 engine{1};
  void operator()(Array& array, double mean = 0, double std = 1) {
    std::normal_distribution<double> normal(mean, std);
    array.fill([&](int64_t) { return normal(engine); });
  }
};

/// What n float additions and a few products may be off by.
double sums_tolerance(DType dtype, int64_t n) {
  return precision_of(dtype) + precision_of(compute_type(dtype)) * std::sqrt(static_cast<double>(n));
}

/// `optional`: whether weight, bias and grad_input are given.
void check_batch_norm(DType dtype, DType parameter, const Shape& shape, Layout from, Layout to, bool optional,
                      Normal& random) {
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(parameter));
  CAPTURE(to_string(shape));
  CAPTURE(static_cast<int>(from));
  CAPTURE(static_cast<int>(to));
  CAPTURE(optional);
  const DType compute = compute_type(dtype);
  const Shape channel{shape[1]};
  Array x = array_of(dtype, shape, from), g = array_of(dtype, shape, to),
        residual = array_of(dtype, shape, from);
  Array mean(compute, channel, {2}), var(compute, channel), invstd(compute, channel);
  Array weight_array(parameter, channel, {3}), bias_array(parameter, channel);
  random(x, 3, 2);
  random(g);
  random(residual);
  random(invstd, 0.5, 0.05);
  random(weight_array, 1, 0.2);
  random(bias_array);
  const Array *weight = optional ? &weight_array : nullptr, *bias = optional ? &bias_array : nullptr;

  on_both([&](const Kernels& table, auto view) {
    table.batch_norm_statistics(view(&mean), view(&var), view(&x));
  });
  CHECK(mean.agrees(sums_tolerance(compute, 10)));
  CHECK(var.agrees(sums_tolerance(compute, 10)));

  const double near = 4 * precision_of(dtype);
  Array y = array_of(dtype, shape, to), relu = array_of(dtype, shape, to), added = array_of(dtype, shape, to);
  on_both([&](const Kernels& table, auto view) {
    table.batch_norm(view(&y), view(&x), view(&mean), view(&invstd), view(weight), view(bias));
    table.batch_norm_relu(view(&relu), view(&x), view(&mean), view(&invstd), view(weight), view(bias), {});
    table.batch_norm_relu(view(&added), view(&x), view(&mean), view(&invstd), view(weight), view(bias),
                          view(&residual));
  });
  CHECK(y.agrees(near));
  CHECK(relu.agrees(near));
  CHECK(added.agrees(near));

  const double sums = 4 * sums_tolerance(dtype, shape.numel());
  Array dw(parameter, channel, {2}), db(parameter, channel);
  for (const bool batch_statistics : {true, false}) {
    Array dx = array_of(dtype, shape, to);
    const Array* wanted = optional ? &dx : nullptr;
    on_both([&](const Kernels& table, auto view) {
      table.batch_norm_grad(view(wanted), view(&dw), view(&db), view(&g), view(&x), view(&mean),
                            view(&invstd), view(weight), batch_statistics);
    });
    if (wanted) CHECK(dx.agrees(near));
    CHECK(dw.agrees(sums));
    CHECK(db.agrees(sums));
    for (const bool with_residual : {true, false}) {
      Array dr = array_of(dtype, shape, from);
      on_both([&](const Kernels& table, auto view) {
        table.batch_norm_relu_grad(view(wanted), view(&dw), view(&db), view(with_residual ? &dr : nullptr),
                                   view(&g), view(with_residual ? &added : nullptr), view(&x), view(&mean),
                                   view(&invstd), view(weight), view(bias), batch_statistics);
      });
      if (wanted) CHECK(dx.agrees(near));
      if (with_residual) CHECK(dr.agrees());
      CHECK(dw.agrees(sums));
      CHECK(db.agrees(sums));
    }
  }
}

}  // namespace

TEST_CASE("batch_norm: every dtype and layout") {
  Normal random;
  const Shape shapes[] = {{5, 3}, {300, 24}, {2, 16, 9}, {2, 3, 5, 7}, {3, 32, 8, 16}, {1, 130, 2, 2}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : kFloating) {
      for (const Layout layout : kImages) {
        check_batch_norm(dtype, is_half(dtype) ? float32 : dtype, shape, layout, layout, true, random);
        if (shape.dim() == 4) check_batch_norm(dtype, dtype, shape, layout, kImages[1], false, random);
      }
    }
  }
}

TEST_CASE("batch_norm: channels of many values, and many channels") {
  Normal random;
  for (const Shape& shape :
       {Shape{4, 8, 70, 64}, Shape{3, 2, 131, 90}, Shape{2, 1, 100, 100}, Shape{3, 1040}}) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
      check_batch_norm(float32, float32, shape, layout, layout, true, random);
      check_batch_norm(bfloat16, float32, shape, layout, layout, true, random);
    }
  }
}

TEST_CASE("batch_norm: a large mean does no harm, NaN stays in its channel, no values have no mean") {
  Normal random;
  for (const Layout layout : kImages) {
    CAPTURE(static_cast<int>(layout));
    Array x = array_of(float32, {4, 8, 40, 32}, layout), mean(float32, {8}), var(float32, {8});
    random(x, 1e4, 1);
    on_both([&](const Kernels& table, auto view) {
      table.batch_norm_statistics(view(&mean), view(&var), view(&x));
    });
    CHECK(mean.agrees(1e-6));
    CHECK(var.agrees(1e-4));
    reference::set(x.host(), 40 * 32 * 3 + 5, std::numeric_limits<double>::quiet_NaN());
    on_both([&](const Kernels& table, auto view) {
      table.batch_norm_statistics(view(&mean), view(&var), view(&x));
    });
    CHECK(std::isnan(reference::get(mean.host(), 3)));
    CHECK(mean.agrees(1e-6));
    CHECK(var.agrees(1e-4));
  }
  check_batch_norm(float32, float32, {0, 3, 4, 4}, Layout::row_major, Layout::row_major, true, random);
  check_batch_norm(float32, float32, {2, 0, 4, 4}, Layout::row_major, Layout::row_major, true, random);
}

TEST_CASE("batch_norm_relu_grad: the gradient of the input in the memory of that of the output") {
  Normal random;
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Shape shape{2, 16, 6, 8}, channel{16};
    Array x = array_of(float16, shape, layout), g = array_of(float16, shape, layout);
    Array mean(float32, channel), invstd(float32, channel), dw(float32, channel), db(float32, channel);
    random(x);
    random(g);
    random(mean, 0, 0.1);
    random(invstd, 1, 0.1);
    on_both([&](const Kernels& table, auto view) {
      const View gradient = view(&g);
      table.batch_norm_relu_grad(gradient, view(&dw), view(&db), {}, gradient, {}, view(&x), view(&mean),
                                 view(&invstd), {}, {}, true);
    });
    CHECK(g.agrees(4 * precision_of(float16)));
  }
}

namespace {

void check_layer_norm(const Shape& shape, int row_dims, DType dtype, DType parameter, Layout from, Layout to,
                      bool given, Normal& random) {
  CAPTURE(to_string(shape));
  CAPTURE(row_dims);
  CAPTURE(name_of(dtype));
  CAPTURE(name_of(parameter));
  CAPTURE(static_cast<int>(from));
  CAPTURE(static_cast<int>(to));
  CAPTURE(given);
  Shape statistics = shape, row;
  for (int d = shape.dim() - row_dims; d < shape.dim(); ++d) {
    statistics[d] = 1;
    row.push_back(shape[d]);
  }
  const DType compute = compute_type(dtype);
  Array x = array_of(dtype, shape, from), g = array_of(dtype, shape, from), y = array_of(dtype, shape, to);
  Array weight_array = array_of(parameter, row, from), bias_array(parameter, row);
  Array mean = array_of(compute, statistics, to), rstd(compute, statistics);
  random(x, 3, 2);
  random(g);
  random(weight_array, 1, 0.5);
  random(bias_array);
  const Array *weight = given ? &weight_array : nullptr, *bias = given ? &bias_array : nullptr;
  on_both([&](const Kernels& table, auto view) {
    table.layer_norm(view(&y), view(&mean), view(&rstd), view(&x), view(weight), view(bias), 1e-5);
  });
  // Rows of a few elements may all be near their mean, which costs digits.
  const double lost = row.numel() < 8 ? 300 : 4;
  CHECK(y.agrees(lost * precision_of(dtype)));
  CHECK(mean.agrees(2 * precision_of(compute)));
  CHECK(rstd.agrees(lost * precision_of(compute)));

  Array dx = array_of(dtype, shape, to), dw = array_of(parameter, row, to), db(parameter, row);
  on_both([&](const Kernels& table, auto view) {
    table.layer_norm_grad(view(&dx), view(&dw), view(&db), view(&g), view(&x), view(&mean), view(&rstd),
                          view(weight));
  });
  const double sums = lost * sums_tolerance(dtype, shape.numel());
  CHECK(dx.agrees(lost * precision_of(dtype)));
  CHECK(dw.agrees(sums));
  CHECK(db.agrees(sums));
}

}  // namespace

TEST_CASE("layer_norm: every dtype and layout, rows of one or several dimensions") {
  Normal random;
  for (const DType dtype : kFloating) {
    const DType parameter = is_half(dtype) ? float32 : dtype;
    for (const Layout from :
         {Layout::row_major, Layout::permuted, Layout::spread, Layout::shifted, Layout::expanded}) {
      for (const Layout to : {Layout::row_major, Layout::permuted, Layout::spread, Layout::shifted}) {
        check_layer_norm({3, 4, 24}, 1, dtype, dtype, from, to, true, random);
        check_layer_norm({3, 4, 19}, 1, dtype, parameter, from, to, true, random);
        check_layer_norm({3, 4, 8, 2}, 2, dtype, parameter, from, to, from != Layout::spread, random);
      }
    }
    check_layer_norm({64}, 1, dtype, parameter, Layout::row_major, Layout::row_major, true, random);
    check_layer_norm({70, 1, 256}, 1, dtype, parameter, Layout::row_major, Layout::row_major, true, random);
  }
}

TEST_CASE("layer_norm: many rows, long rows, and rows whose sums do not fit shared memory") {
  Normal random;
  for (const DType dtype : {float32, bfloat16}) {
    for (const Shape& shape :
         {Shape{5, 1304}, Shape{9, 7001}, Shape{9, 8192}, Shape{3000, 9}, Shape{1, 40000}})
      check_layer_norm(shape, 1, dtype, float32, Layout::row_major, Layout::row_major, true, random);
  }
  check_layer_norm({7, 4096}, 1, float64, float64, Layout::row_major, Layout::row_major, true, random);
}

TEST_CASE("layer_norm: a large mean does no harm; no rows have gradients of zero") {
  Normal random;
  Array x(float32, {20, 96}), y(float32, {20, 96}), mean(float32, {20, 1}), rstd(float32, {20, 1});
  random(x, 1e4, 1);
  on_both([&](const Kernels& table, auto view) {
    table.layer_norm(view(&y), view(&mean), view(&rstd), view(&x), {}, {}, 0);
  });
  CHECK(mean.agrees(1e-6));
  CHECK(rstd.agrees(1e-4));
  check_layer_norm({0, 8}, 1, float32, float32, Layout::row_major, Layout::row_major, true, random);
  check_layer_norm({4, 0}, 1, float32, float32, Layout::row_major, Layout::row_major, false, random);
}
