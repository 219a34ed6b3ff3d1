#include <algorithm>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/pointwise_loop.h"
#include "tensor/cpu/strided_loop.h"

namespace mezzo::cpu {

namespace {

constexpr int64_t kGrain = 16384;

/// Brings runs of operands of any stride and dtype to `body` and its result to the output.
template <class T, class Out>
void run(Body body, const StridedLoop& loop, const View& out, std::span<const View> in, int64_t begin,
         int64_t end) {
  constexpr size_t kMaxIn = StridedLoop::max_views - 1;
  alignas(64) T operands[kMaxIn][kChunk];
  alignas(64) Out result[kChunk];
  const size_t count = in.size();
  const bool direct_out = out.dtype == dtype_of<Out> && loop.stride(0) == 1;
  bool all_direct = direct_out, direct[kMaxIn];
  int64_t constant_at[kMaxIn];  // offset of the element that fills operands[k], or -1
  for (size_t k = 0; k < count; ++k) {
    direct[k] = in[k].given() && in[k].dtype == dtype_of<T> && loop.stride(static_cast<int>(k) + 1) == 1;
    constant_at[k] = -1;
    all_direct &= direct[k];
    if (!in[k].given()) std::fill(operands[k], operands[k] + kChunk, T{});
  }
  loop.for_runs(begin, end, [&](const StridedLoop::Offsets& offsets, int64_t n) {
    const int64_t step = all_direct ? n : kChunk;
    for (int64_t i = 0; i < n; i += step) {
      const int64_t m = std::min(step, n - i);
      const void* pointers[kMaxIn];
      for (size_t k = 0; k < count; ++k) {
        pointers[k] = operands[k];
        if (!in[k].given()) continue;
        const int64_t stride = loop.stride(static_cast<int>(k) + 1), at = offsets[k + 1] + i * stride;
        const auto* from =
            static_cast<const std::byte*>(in[k].data) + at * static_cast<int64_t>(size_of(in[k].dtype));
        if (direct[k]) {
          pointers[k] = from;
        } else if (stride != 0) {
          load_run(operands[k], from, in[k].dtype, stride, m);
        } else if (constant_at[k] != at) {
          load_run(operands[k], from, in[k].dtype, 0, kChunk);
          constant_at[k] = at;
        }
      }
      auto* to = static_cast<std::byte*>(out.data) +
                 (offsets[0] + i * loop.stride(0)) * static_cast<int64_t>(size_of(out.dtype));
      body(direct_out ? static_cast<void*>(to) : result, pointers, m);
      if (!direct_out) store_run(to, out.dtype, loop.stride(0), result, m);
    }
  });
}

template <class S>
struct Value {
  template <class... T>
  static auto apply(T... x) {
    return S::value(x...);
  }
};

}  // namespace

void run_pointwise(Body body, DType compute, bool boolean, const View& out, std::span<const View> in) {
  std::array<const View*, StridedLoop::max_views> views{&out};
  for (size_t k = 0; k < in.size(); ++k) views[k + 1] = &in[k];
  const StridedLoop loop({views.data(), in.size() + 1});
  dispatch(compute, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) {
      parallel_for(loop.size(), kGrain, [&](int64_t begin, int64_t end) {
        if (boolean)
          run<T, bool>(body, loop, out, in, begin, end);
        else
          run<T, T>(body, loop, out, in, begin, end);
      });
    }
  });
}

void add_pointwise_values(Kernels& table) {
  [&]<class... S>(std::tuple<S...>*) {
    ((table.pointwise[pointwise::index<S>].value =
          &pointwise_kernel<S::arity, Value<S>, S::result == pointwise::Result::floating,
                            S::result == pointwise::Result::boolean>),
     ...);
  }(static_cast<pointwise::Ops*>(nullptr));
}

void add_pointwise(Kernels& table) {
  add_pointwise_values(table);
  add_pointwise_gradients(table);
}

}  // namespace mezzo::cpu
