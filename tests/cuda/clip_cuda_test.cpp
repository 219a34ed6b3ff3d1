// Kernels over all gradients, that limit them by their norm or zero them: CUDA's and the CPU's beside the
// reference ones.
#include <list>

#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

namespace {

/// Copies of tensors for each of the three.
struct Copies {
  std::list<Array> on_cpu, on_device;  ///< the latter's host side is the reference's
  std::vector<View> cpu, device, reference;

  template <class F>
  void add(DType dtype, const Shape& shape, Layout layout, F&& value) {
    const Shape strides = strides_of(shape, layout);
    const int64_t offset = layout == Layout::shifted ? 1 : 0;
    Array& first = on_cpu.emplace_back(dtype, shape, strides, offset);
    Array& second = on_device.emplace_back(dtype, shape, strides, offset);
    first.fill(value);
    second.fill([&](int64_t i) { return reference::get(first.host(), i); });
    cpu.push_back(first.host());
    reference.push_back(second.host());
    device.push_back(second.to_device());
  }
};

/// The norm in `dtype`, and what clipping by it makes of the tensors.
void check_clip(Copies& copies, double p, double max_norm, DType dtype) {
  CAPTURE(p);
  CAPTURE(max_norm);
  CAPTURE(name_of(dtype));
  const Kernels &on_cpu = kernels(Device::Type::cpu), &plain = reference_table(), &on_device = device_table();
  const Array total(dtype, {}), cpu_total(dtype, {});
  const View total_to = total.to_device();
  on_device.norm(total_to, copies.device, p);
  plain.norm(total.host(), copies.reference, p);
  on_cpu.norm(cpu_total.host(), copies.cpu, p);
  const double tolerance = 2 * std::max(precision_of(dtype), precision_of(float32));
  CHECK(total.agrees(tolerance));
  static_cast<void>(cpu_total.to_device());
  reference::set(cpu_total.host(), 0, reference::get(total.host(), 0));
  CHECK(cpu_total.agrees(tolerance));

  on_device.clip(copies.device, total.to_device(), max_norm);
  plain.clip(copies.reference, total.host(), max_norm);
  on_cpu.clip(copies.cpu, total.host(), max_norm);
  auto on_cpu_it = copies.on_cpu.begin();
  for (const Array& array : copies.on_device) {
    const double precision = std::max(precision_of(array.host().dtype), precision_of(float32));
    CHECK(array.agrees(precision));
    static_cast<void>(on_cpu_it->to_device());
    for (int64_t i = 0; i < array.shape().numel(); ++i)
      reference::set(on_cpu_it->host(), i, reference::get(array.host(), i));
    CHECK(on_cpu_it++->agrees(precision));
  }
}

void check_zero(Copies& copies) {
  device_table().zero(copies.device);
  reference_table().zero(copies.reference);
  for (const Array& array : copies.on_device) {
    CHECK(array.agrees(0));
    bool zeros = true;
    for (int64_t i = 0; i < array.shape().numel(); ++i) zeros &= reference::get(array.host(), i) == 0;
    CHECK(zeros);
  }
}

}  // namespace

TEST_CASE("norm and clip: dtypes, layouts, powers") {
  Numbers numbers(1);
  for (const double p : {2.0, 1.0, 3.0, .5, inf}) {
    for (const double max_norm : {1.0, 0.0, 1e6, inf}) {
      for (const DType total : {float64, float32, float16}) {
        Copies copies;
        for (const DType dtype : kFloating) {
          for (const Layout layout : {Layout::row_major, Layout::spread, Layout::permuted, Layout::shifted}) {
            for (const Shape& shape : {Shape{3, 7}, Shape{}, Shape{0, 2}})
              copies.add(dtype, shape, layout, [&](int64_t) { return numbers.real(-2, 2); });
          }
        }
        check_clip(copies, p, max_norm, total);
        check_zero(copies);
      }
    }
  }
}

TEST_CASE("norm and clip: nothing, many tensors, several chunks") {
  Numbers numbers(2);
  Copies nothing, many;
  check_clip(nothing, 2, 1, float32);
  for (int i = 0; i < 200; ++i)
    many.add(float32, {3}, Layout::row_major, [&](int64_t) { return numbers.real(-2, 2); });
  many.add(float16, {150'001}, Layout::row_major, [&](int64_t) { return numbers.real(-2, 2); });
  check_clip(many, 2, 1, float32);
  check_clip(many, inf, .5, float32);
  check_zero(many);
}

TEST_CASE("norm and clip: infinity and NaN") {
  for (const double special : {inf, -inf, inf - inf}) {
    for (const double p : {2.0, 3.0, inf}) {
      for (const double max_norm : {1.0, inf}) {
        Copies copies;
        copies.add(float32, {5}, Layout::row_major, [](int64_t i) { return static_cast<double>(i); });
        copies.add(float16, {300}, Layout::row_major, [&](int64_t i) { return i == 200 ? special : 1; });
        check_clip(copies, p, max_norm, float32);
      }
    }
  }
}
