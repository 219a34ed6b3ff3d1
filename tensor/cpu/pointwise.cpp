#include <algorithm>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/kernel_families.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/pointwise_loop.h"
#include "tensor/cpu/stream.h"
#include "tensor/strided_loop.h"

namespace mezzo::cpu {

namespace {

constexpr int64_t kGrain = 16384;

/// Whether a result is to be written past the caches: it is large, and does not take an operand's place.
bool streams(const View& out, std::span<const View> in) {
  return is_streamed(out) &&
         std::ranges::none_of(in, [&](const View& view) { return view.data == out.data; });
}

/// Brings runs of operands of any stride and dtype to `body` and its result to the output.
template <class T, class Out>
void run(Body body, const StridedLoop& loop, const View& out, std::span<const View> in, int64_t begin,
         int64_t end) {
  constexpr size_t kMaxIn = StridedLoop::max_views - 1;
  alignas(64) T operands[kMaxIn][kChunk];
  alignas(64) Out result[kChunk];
  const size_t count = in.size();
  const bool direct_out = out.dtype == dtype_of<Out> && loop.stride(0) == 1;
  const bool past_caches = direct_out && streams(out, in);
  bool all_direct = direct_out && !past_caches, direct[kMaxIn];
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
      body(direct_out && !past_caches ? static_cast<void*>(to) : result, pointers, m);
      if (past_caches)
        stream(to, result, static_cast<size_t>(m) * sizeof(Out));
      else if (!direct_out)
        store_run(to, out.dtype, loop.stride(0), result, m);
    }
  });
  if (past_caches) finish_streams();
}

template <class S>
struct Value {
  template <class... T>
  static auto apply(T... x) {
    return S::value(x...);
  }
};

/// Whether `view` is a row-major array of `dtype`.
bool is_array(const View& view, DType dtype) {
  int64_t expected = 1;
  for (int d = view.shape.dim() - 1; d >= 0; --d) {
    if (view.shape[d] != 1 && view.strides[d] != expected) return false;
    expected *= view.shape[d];
  }
  return view.dtype == dtype;
}

/// Runs `body` where every view is an array of what it reads and writes: most calls, and for small tensors
/// the loop over strides would be most of the work. False if one is not, or the result is to pass the caches.
bool run_arrays(Body body, DType compute, DType written, const View& out, std::span<const View> in) {
  bool arrays = is_array(out, written) && in[0].given();
  for (const View& view : in) arrays = arrays && (!view.given() || is_array(view, compute));
  if (!arrays || streams(out, in)) return false;
  parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    std::array<const void*, StridedLoop::max_views> pointers;
    const int64_t offset = begin * static_cast<int64_t>(size_of(compute));
    for (size_t k = 0; k < in.size(); ++k)
      pointers[k] = (in[k].given() ? in[k] : in[0]).as<std::byte>() + offset;
    body(out.as<std::byte>() + begin * static_cast<int64_t>(size_of(written)), pointers.data(), end - begin);
  });
  return true;
}

}  // namespace

void run_pointwise(Body body, DType compute, bool boolean, const View& out, std::span<const View> in) {
  if (run_arrays(body, compute, boolean ? DType::bool_ : compute, out, in)) return;
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
