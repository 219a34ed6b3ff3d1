// What only a device with memory of its own has: copies to it and from it, numbers of the CPU's beside its
// tensors, errors about it, its memory. On a GPU or on the emulator.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "tensor/backend.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// Row-major numbers 0, 1, 2, ... in float32 on the CPU.
Tensor counted(const Shape& shape) { return arange(shape.numel()).to(float32).reshape(shape); }

}  // namespace

TEST_CASE("to(cuda) and back: layouts, dtypes, sizes beyond a part of the staging memory") {
  for (const Tensor& x :
       {counted({3, 4, 5}), counted({3, 4, 5}).permute({2, 0, 1}), counted({6, 8}).narrow(1, 2, 3),
        counted({1}).expand({4, 3}), counted({2, 3, 4, 5}).contiguous(channels_last), counted({}),
        counted({0, 3}), counted({1'500'000})}) {
    CAPTURE(to_string(x.shape()));
    const Tensor far = x.cuda();
    CHECK(far.device() == Device("cuda"));
    CHECK(values(far.cpu()) == values(x));
    CHECK(values(far) == values(x));
    for (const DType dtype : {float64, float16, int64, bool_}) {
      CHECK(values(x.to(dtype).cuda().to(float32)) == values(x.to(dtype)));
      CHECK(far.to(dtype).cpu().dtype() == dtype);
    }
  }
  const Tensor strided = zeros({4, 6}, {.device = "cuda"});
  strided.narrow(1, 1, 3).copy_(counted({4, 3}));
  CHECK(values(strided.narrow(1, 1, 3)) == values(counted({4, 3})));
  CHECK(strided.sum().item<double>() == 66);
  const Tensor near = zeros({4, 6});
  near.narrow(1, 1, 3).copy_(counted({4, 3}).cuda());
  CHECK(near.sum().item<double>() == 66);
}

TEST_CASE("a batch is copied over the last one, which a step still reads") {
  Tensor host = empty({3, 1 << 19}), batch = empty({3, 1 << 19}, {.device = "cuda"});  // three parts of 2 MiB
  std::vector<Tensor> sums;
  for (int i = 0; i < 6; ++i) {
    host.fill_(i);
    batch.copy_(host);
    sums.push_back(batch.amax(1) + batch.amin(1));
  }
  for (int i = 0; i < 6; ++i) CHECK(values(sums[static_cast<size_t>(i)]) == Values(3, 2. * i));
}

TEST_CASE("a gradient comes back over the device's border") {
  Tensor x = leaf({1, 2, 3}).cpu().detach().requires_grad_();
  (x.cuda() * 2).sum().backward();
  CHECK(x.grad().device() == Device());
  CHECK(values(x.grad()) == Values{2, 2, 2});
}

TEST_CASE("a 0-d tensor of the CPU's goes with CUDA tensors, in pointwise ops alone") {
  const Tensor x = counted({3}).cuda();
  Tensor two = tensor({2}).reshape({}).requires_grad_();
  const Tensor y = x * two, z = two - x;
  CHECK(y.device() == Device("cuda"));
  CHECK(values(y) == Values{0, 2, 4});
  CHECK(values(z) == Values{2, 1, 0});
  (y.sum() + z.sum()).backward();
  CHECK(two.grad().device() == Device());
  CHECK(two.grad().item<double>() == 6);
  Tensor changed = x.clone();
  changed.add_(two.detach());
  CHECK(values(changed) == Values{2, 3, 4});
  CHECK(values(where(x.gt(0.5), two.detach(), x)) == Values{0, 2, 2});
  CHECK(values(x.to(float16) * two.detach()) == Values{0, 2, 4});

  CHECK(error_text([&] { add(x, counted({3})); }) ==
        "add: tensors are on cuda and on cpu; one [3] float32 cuda, other [3] float32 cpu; move them to one "
        "device "
        "with to(device)");
  CHECK(error_text([&] {
          matmul(counted({2, 3}).cuda(), counted({3, 2}));
        }).find("on cuda and on cpu") != std::string::npos);
  CHECK(error_text([&] { two.detach().add_(x); }).find("the result is on cuda and cannot be kept on cpu") !=
        std::string::npos);
}

TEST_CASE("a layer left on the CPU is refused by the devices' names, also under autocast") {
  nn::Linear layer(3, 2);
  const Tensor x = counted({4, 3}).cuda();
  const amp::Autocast autocast("cuda");
  const std::string text = error_text([&] { layer(x); });
  CHECK(text.find("tensors are on cuda and on cpu") != std::string::npos);
}

TEST_CASE("a module moves with its buffers, in place") {
  nn::BatchNorm2d norm(3);
  const Tensor weight = norm.weight;
  norm.cuda();
  CHECK(weight.device() == Device("cuda"));
  CHECK(norm.state_dict().at("running_mean").device() == Device("cuda"));
  norm.cpu();
  CHECK(weight.device() == Device());
}

TEST_CASE("devices: how many there are, and what the others are told") {
  const int count = device_count();
  REQUIRE(count >= 1);
  CHECK(device_count(Device::Type::cpu) == 1);
  const Device beyond(Device::Type::cuda, count);
  const std::string expected =
      text(to_string(beyond), ": the last CUDA device is ", to_string(Device(Device::Type::cuda, count - 1)),
           "; the devices cpu and reference are always there");
  CHECK(error_text([&] { zeros({2}, {.device = beyond}); }) == expected);
  CHECK(error_text([&] { counted({2}).to(beyond); }) == expected);
  CHECK(error_text([&] { amp::Autocast autocast(beyond); }).find("the last CUDA device is") !=
        std::string::npos);
  synchronize("cuda");
}

TEST_CASE("a tensor in CUDA's memory shows the CPU no pointer") {
  CHECK(error_text([] { counted({2}).cuda().data<float>(); }) ==
        "data: the tensor is not in the CPU's memory; tensor [2] float32 cuda");
}

TEST_CASE("from_blob: memory of the device, and none of the CPU's") {
  std::vector<float> numbers{1, 2, 3};
  CHECK(error_text([&] {
          from_blob({numbers.data(), sizeof(float) * 3}, {3}, {.device = "cuda"});
        }) ==
        "from_blob: the memory is not that of cuda; make the tensor on the CPU, and move it with to(device)");
  const Tensor x = counted({4}).cuda();
  const Tensor same = from_blob({x.view_of_memory().data, 16}, {2, 2}, {.device = "cuda"});
  CHECK(values(same + 1) == Values{1, 2, 3, 4});
}

TEST_CASE("memory: counted, kept for reuse, given back") {
  if (!caches_memory()) return skip("memory is not cached");
  const Device device("cuda");
  synchronize(device);
  empty_cache(device);
  const MemoryStats before = memory_stats(device);
  reset_peak_memory(device);
  {
    const Tensor x = empty({3 << 20}, {.device = device});
    const MemoryStats with = memory_stats(device);
    CHECK(with.live >= before.live + (12 << 20));
    CHECK(with.system_allocations == before.system_allocations + 1);
  }
  const MemoryStats after = memory_stats(device);
  CHECK(after.live == before.live);
  CHECK(after.peak >= before.live + (12 << 20));
  CHECK(after.cached >= before.cached + (12 << 20));
  { const Tensor x = empty({3 << 20}, {.device = device}); }
  CHECK(memory_stats(device).system_allocations == after.system_allocations);
  empty_cache(device);
  CHECK(memory_stats(device).cached <= before.cached);
}

TEST_CASE("more memory than the device has: an error with the figures, and the program goes on") {
  const Device device("cuda");
  const std::string said = error_text([&] { empty({int64_t{1} << 50}, {.device = device}); });
  CHECK(said.find(text("allocate: no memory on cuda for ", int64_t{1} << 52, " bytes; of ")) == 0);
  CHECK(said.find("tensors hold") != std::string::npos);
  CHECK((ones({3}, {.device = device}) + 1).sum().item<double>() == 6);
}

TEST_CASE("random numbers: the CPU's bits for uniform ones, normal ones within two units in the last place") {
  for (const DType dtype : {float64, float32, float16, bfloat16}) {
    CAPTURE(name_of(dtype));
    manual_seed(3);
    const Tensor uniform = rand({1003}, {.dtype = dtype}), normal = randn({1003}, {.dtype = dtype});
    manual_seed(3);
    CHECK(values(rand({1003}, {.dtype = dtype, .device = "cuda"})) == values(uniform));
    const Values far = values(randn({1003}, {.dtype = dtype, .device = "cuda"})), near = values(normal);
    const double unit = dtype == float64   ? 0x1p-52
                        : dtype == float32 ? 0x1p-23
                        : dtype == float16 ? 0x1p-10
                                           : 0x1p-7;
    for (size_t i = 0; i < near.size(); ++i) {
      // A factor that is close to 0 has an error of its size before the cosine, not after.
      REQUIRE(std::abs(far[i] - near[i]) <= 2 * unit * std::max(1.0, std::abs(near[i])));
    }
  }
  Tensor columns = empty({5, 4}, {.device = "cuda"}).permute({1, 0}), same = empty({5, 4}).permute({1, 0});
  manual_seed(4);
  columns.uniform_(0, 1);
  manual_seed(4);
  same.uniform_(0, 1);
  CHECK(values(columns) == values(same));
}

TEST_CASE("bfloat16 is asked of a card that has it, and otherwise float16 is named") {
  const amp::Support found = amp::support("cuda", bfloat16);
  if (backend("cuda").capability(0) >= 80) {
    CHECK(found.level == amp::Level::native);
    return;
  }
  CHECK(error_text([] {
          amp::Autocast autocast("cuda", bfloat16);
        }).find("has no bfloat16; float16 with a GradScaler does the same work") != std::string::npos);
}

TEST_CASE("an optimizer with parameters on the CPU and on CUDA: steps, and is skipped as a whole") {
  for (const bool on_cpu : {false, true}) {
    for (const bool on_cuda : {false, true}) {
      CAPTURE(on_cpu);
      CAPTURE(on_cuda);
      Tensor here = tensor({1}).requires_grad_(), there = tensor({1}).cuda().detach().requires_grad_();
      optim::Adam adam({here, there}, {.lr = 0.5});
      amp::GradScaler scaler({.init_scale = 4});
      scaler.scale(here.cuda() + there).sum().backward();
      if (on_cpu) here.set_grad(tensor({INFINITY}));
      if (on_cuda) there.set_grad(tensor({INFINITY}).cuda());
      const bool overflows = on_cpu || on_cuda;
      CHECK(scaler.step(adam).skipped() == overflows);
      scaler.update();
      CHECK(scaler.get_scale() == (overflows ? 2 : 4));
      CHECK(here.item<double>() == doctest::Approx(overflows ? 1 : 0.5));
      CHECK(there.item<double>() == doctest::Approx(overflows ? 1 : 0.5));
    }
  }
}

// In a process of its own, which has no device afterwards (meson.build).
TEST_CASE("a kernel that fails is reported by the op that launched it" * doctest::skip()) {
  Tensor lost;
  {
    const Tensor x = zeros({2000}, {.device = "cuda"});
    lost = from_blob({x.view_of_memory().data, 16}, {4}, {.device = "cuda"});
  }
  empty_cache("cuda");
  const std::string said = error_text([&] { lost.sum(); });
  CHECK(said.starts_with("sum: CUDA: "));
  CHECK(said.find("cudaErrorIllegalAddress") != std::string::npos);
  CHECK(said.find("; input [4] float32 cuda; ") != std::string::npos);
}

TEST_CASE("two devices: copies between them, and no mixing") {
  if (device_count() < 2) return skip("there is one CUDA device");
  const Tensor x = counted({70, 30}).cuda(0), y = x.cuda(1);
  CHECK(values(y + 1) == values(x + 1));
  CHECK(values(y.permute({1, 0}).to("cuda:0")) == values(x.permute({1, 0})));
  CHECK(error_text([&] { add(x, y); }).find("tensors are on cuda and on cuda:1") != std::string::npos);
  nn::Linear layer(30, 4);
  layer.cuda(1);
  layer(y).sum().backward();
  CHECK(layer.weight.grad().device() == Device("cuda:1"));
}
