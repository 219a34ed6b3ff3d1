// Matrix products by oneDNN. Its inner product serves the 2-d ones: on tall operands it runs at up to twice
// the rate of its matmul, which serves the batched ones, and with matrix tiles (AMX) long sums.
#include "tensor/cpu/matmul.h"

#include "tensor/cpu/onednn/plan.h"
#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu::onednn {
namespace {

using dnnl::memory;

// Multiply-adds for which waking another thread pays: a few microseconds of one.
constexpr int64_t kParallelTerms = 1 << 18;

enum Operation { inner_product = 101, inner_product_weight_grad, batched };

bool is_row_major(const View& view) { return has_strides(view, contiguous_strides(view.shape)); }

/// out[M, N] = a[M, K] b[K, N] + bias[N] as a forward pass: source a, weights bᵀ [N, K].
void multiply_rows(const View& out, const View& a, const View& b, const View& bias) {
  const View weight = transposed(b);
  plan(Key(inner_product).add(out).add(a).add(weight).add(bias), [&] {
    const memory::desc weight_desc = describe(weight),
                       bias_desc = bias.given() ? describe(bias) : memory::desc();
    const dnnl::inner_product_forward::primitive_desc desc(
        {dnnl::prop_kind::forward_inference, describe(a), any_layout(weight_desc), bias_desc, describe(out)},
        attributes(), engine());
    return Plan(desc, dnnl::inner_product_forward(desc),
                {{DNNL_ARG_SRC, describe(a), desc.src_desc()},
                 {DNNL_ARG_WEIGHTS, weight_desc, desc.weights_desc()},
                 {DNNL_ARG_BIAS, bias_desc, bias_desc}},
                {{DNNL_ARG_DST, describe(out), desc.dst_desc()}});
  })->run({a.data, b.data, bias.data, out.data});
}

/// out[M, N] = aᵀ[M, K] b[K, N], `a` [K, M] being row-major, as the weight gradient of a batch of K.
void multiply_columns(const View& out, const View& a, const View& b) {
  plan(Key(inner_product_weight_grad).add(out).add(a).add(b), [&] {
    const memory::desc a_desc = describe(a), b_desc = describe(b), out_desc = describe(out);
    const memory::desc out_any = any_layout(out_desc);
    const dnnl::inner_product_forward::primitive_desc hint(
        {dnnl::prop_kind::forward_training, b_desc, out_any, a_desc}, attributes(), engine());
    const dnnl::inner_product_backward_weights::primitive_desc desc({b_desc, out_any, a_desc}, attributes(),
                                                                    engine(), hint);
    return Plan(desc, dnnl::inner_product_backward_weights(desc),
                {{DNNL_ARG_DIFF_DST, a_desc, desc.diff_dst_desc()}, {DNNL_ARG_SRC, b_desc, desc.src_desc()}},
                {{DNNL_ARG_DIFF_WEIGHTS, out_desc, desc.diff_weights_desc()}});
  })->run({a.data, b.data, out.data});
}

/// An operand of oneDNN's matmul, which broadcasts batch dimensions of size 1 but takes no stride of 0.
View with_broadcast_batches(View view) {
  for (int d = 0; d < view.shape.dim() - 2; ++d) {
    if (view.strides[d] == 0) view.shape[d] = 1;
  }
  return view;
}

/// bias[N] for every row of an output with `dims` dimensions.
View as_row(const View& bias, int dims) {
  View row = bias;
  row.shape = Shape::filled(dims, 1);
  row.shape[dims - 1] = bias.shape[0];
  row.strides = contiguous_strides(row.shape);
  return row;
}

/// In oneDNN's own layout `b` is read a third faster, which pays for moving it there if `a` has many rows.
bool pays_to_reorder(const View& out) {
  constexpr int64_t kRows = 512;
  return out.shape.dim() == 2 && out.shape[0] >= kRows;
}

void multiply_batches(const View& out, const View& a, const View& b, const View& bias) {
  plan(Key(batched).add(out).add(a).add(b).add(bias), [&] {
    const memory::desc a_desc = describe(with_broadcast_batches(a)),
                       b_desc = describe(with_broadcast_batches(b));
    const memory::desc bias_desc = bias.given() ? describe(as_row(bias, out.shape.dim())) : memory::desc();
    const dnnl::matmul::primitive_desc desc(
        {a_desc, pays_to_reorder(out) ? any_layout(b_desc) : b_desc, bias_desc, describe(out)}, attributes(),
        engine());
    return Plan(desc, dnnl::matmul(desc),
                {{DNNL_ARG_SRC, a_desc, desc.src_desc()},
                 {DNNL_ARG_WEIGHTS, b_desc, desc.weights_desc()},
                 {DNNL_ARG_BIAS, bias_desc, bias_desc}},
                {{DNNL_ARG_DST, describe(out), desc.dst_desc()}});
  })->run({a.data, b.data, bias.data, out.data});
}

}  // namespace

void matmul(const View& out, const View& a, const View& b, const View& bias) {
  const SmallWork alone(out.numel() * a.shape[a.shape.dim() - 1] < kParallelTerms);
  constexpr int64_t kLong = 512;  // sum
  const int64_t K = a.shape[a.shape.dim() - 1];
  const bool in_tiles = has_tiles(a.dtype);
  if (out.shape.dim() == 2 && is_row_major(a) && !(in_tiles && K >= kLong))
    return multiply_rows(out, a, b, bias);
  if (out.shape.dim() == 2 && is_row_major(transposed(a)) && is_row_major(b) && !bias.given() && !in_tiles)
    return multiply_columns(out, transposed(a), b);
  multiply_batches(out, a, b, bias);
}

}  // namespace mezzo::cpu::onednn
