// Copies between layouts, CUDA's kernels beside the reference ones.
#include "tests/cuda/two_devices.h"

using namespace mezzo;
using namespace mezzo::cuda;

TEST_CASE("a batch of transposed matrices: more tiles than blocks, tiles that are cut off") {
  Numbers numbers(3);
  for (const DType dtype : kAll) {
    CAPTURE(name_of(dtype));
    const Shape shape{3, 170, 130};  // 90 tiles of 32 x 32; the emulated device has 64 blocks for them
    Array in(dtype, shape, {170 * 130, 1, 170});
    in.fill([&](int64_t) { return numbers.of(dtype); });
    const Array out(dtype, shape);
    const View to = out.to_device();
    device_table().copy(to, in.to_device());
    reference_table().copy(out.host(), in.host());
    CHECK(out.agrees());
  }
}
