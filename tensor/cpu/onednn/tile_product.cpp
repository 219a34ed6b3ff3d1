// Products of bfloat16 tiles inside a fused kernel's threads.
#include <omp.h>

#include <array>
#include <map>

#include "tensor/cpu/onednn/plan.h"
#include "tensor/cpu/onednn/products.h"

namespace mezzo::cpu::onednn {

using dnnl::memory;

struct TileProduct::Primitive {
  dnnl::matmul product;
  memory::desc out, a, b, scratchpad;
};

namespace {

/// A primitive keeps the number of threads that it is made for: one, since it runs inside another's.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_ = omp_get_max_threads();
};

}  // namespace

TileProduct::TileProduct(int64_t M, int64_t N, int64_t K, bool transposed_sum) {
  // Looking a primitive up in oneDNN's own cache takes longer than the products of a small layer.
  constexpr size_t kMost = 256;
  thread_local std::map<std::array<int64_t, 4>, std::shared_ptr<const Primitive>> made;
  if (made.size() > kMost) made.clear();
  auto& kept = made[{M, N, K, transposed_sum}];
  if (!kept) kept = make(M, N, K, transposed_sum);
  primitive_ = kept;
}

std::shared_ptr<const TileProduct::Primitive> TileProduct::make(int64_t M, int64_t N, int64_t K,
                                                                bool transposed_sum) {
  const OneThread guard;
  const auto bf16 = memory::data_type::bf16;
  const memory::desc a({M, K}, bf16, transposed_sum ? memory::dims{1, M} : memory::dims{K, 1});
  const memory::desc b({K, N}, bf16, memory::dims{N, 1});
  const memory::desc out({M, N}, memory::data_type::f32, memory::dims{N, 1});
  dnnl::primitive_attr how = attributes();
  if (transposed_sum) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    how.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc desc({a, b, out}, how, engine());
  return std::make_shared<const Primitive>(Primitive{dnnl::matmul(desc), out, a, b, desc.scratchpad_desc()});
}

size_t TileProduct::scratch_bytes() const { return primitive_ ? primitive_->scratchpad.get_size() : 0; }

void TileProduct::run(float* out, const BFloat16* a, const BFloat16* b, void* scratch) const {
  const auto at = [](const memory::desc& desc, const void* data) {
    return memory(desc, engine(), const_cast<void*>(data));
  };
  primitive_->product.execute(stream(), {{DNNL_ARG_SRC, at(primitive_->a, a)},
                                         {DNNL_ARG_WEIGHTS, at(primitive_->b, b)},
                                         {DNNL_ARG_DST, at(primitive_->out, out)},
                                         {DNNL_ARG_SCRATCHPAD, at(primitive_->scratchpad, scratch)}});
}

}  // namespace mezzo::cpu::onednn
