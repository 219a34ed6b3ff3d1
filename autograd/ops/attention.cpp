// Attention: scaled_dot_product_attention.
//   L queries, S keys and values, E elements in a query and a key, EV in a value
// One kernel forward and one backward, neither of which holds the L x S weights. What they do not give,
// second derivatives and the gradient of a mask, comes from the plain ops that they stand for.
#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops/check.h"
#include "autograd/ops/composed.h"
#include "autograd/ops/parts.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct ScaledDotProductAttention : Composed<ScaledDotProductAttention> {
  static constexpr OpId id = OpId::scaled_dot_product_attention;
  bool is_causal;
  std::optional<double> scale;

  ScaledDotProductAttention(const AttentionOptions& options)
      : is_causal(options.is_causal), scale(options.scale) {}

  void check(Inputs in) const {
    const Tensor &query = in[0], &key = in[1], &value = in[2], &mask = in[3];
    const std::initializer_list<Operand> operands = {
        {"query", query}, {"key", key}, {"value", value}, {"attn_mask", mask}};
    const auto wrong = [&](const std::string& fact) { fail("scaled_dot_product_attention", fact, operands); };
    check_floating("scaled_dot_product_attention", {{"query", query}, {"key", key}, {"value", value}});
    if (query.dim() < 2 || key.dim() < 2 || value.dim() < 2)
      wrong("query, key and value must be [..., L, E], [..., S, E] and [..., S, EV]");
    if (query.size(-1) != key.size(-1))
      wrong(text("a query has ", query.size(-1), " elements but a key ", key.size(-1)));
    if (key.size(-2) != value.size(-2))
      wrong(text("there are ", key.size(-2), " keys but ", value.size(-2), " values"));
    Shape batch;
    if (!broadcast(batch_of(query), batch_of(key), batch) || !broadcast(Shape(batch), batch_of(value), batch))
      wrong("batch dimensions do not broadcast");
    if (!mask.defined()) return;
    if (is_causal) wrong("is_causal is a mask already: it goes without attn_mask");
    if (mask.dtype() != bool_ && mask.dtype() != float32 && mask.dtype() != query.dtype())
      wrong(text("attn_mask must be bool", query.dtype() == float32 ? "" : ", float32", " or ",
                 name_of(query.dtype())));
    const Shape scores = with_batch(in, query.size(-2), key.size(-2));
    if (Shape joint; !broadcast(mask.shape(), scores, joint) || joint != scores)
      wrong(text("attn_mask does not broadcast to ", to_string(scores)));
  }

  Tensor forward(Inputs in, Saver& save) const {
    const Tensor& query = in[0];
    const Tensor out = empty_in_order_of(query, with_batch(in, query.size(-2), in[2].size(-1)));
    const Tensor lse = empty(with_batch(in, query.size(-2), 1),
                             {.dtype = compute_type(query.dtype()), .device = query.device()});
    kernels(out.device()).attention(out.view_of_memory(), lse.view_of_memory(), operands(in));
    for (const Tensor& tensor : in) save(tensor);
    save(out);
    save(lse);
    return out;
  }

  Tensors backward(Node& node, Inputs g) const {
    if (grad_enabled() || node.needs(3)) return Composed::backward(node, g);
    const std::array<Tensor, 4> in{node.saved(0), node.saved(1), node.saved(2), node.saved(3)};
    Tensors grads = empty_gradients(in);
    kernels(g[0].device())
        .attention_grad(grads[0].view_of_memory(), grads[1].view_of_memory(), grads[2].view_of_memory(),
                        g[0].view_of_memory(), node.saved(4).view_of_memory(), node.saved(5).view_of_memory(),
                        operands(in));
    grads.emplace_back();
    return grads;  // of operands that were expanded over the batch, summed by the engine
  }

  Tensor compose(Inputs in) const {
    const DType dtype = in[0].dtype();
    const Tensor query = in[0].to(compute_type(dtype)), key = in[1].to(compute_type(dtype)),
                 value = in[2].to(compute_type(dtype));
    const Tensor scores = mul(matmul(query, key.transpose(-2, -1)), factor(query)),
                 weights = softmax_of(scores, in[3]);
    return matmul(weights, value).to(dtype);
  }

 private:
  static Shape batch_of(const Tensor& x) {
    Shape batch = x.shape();
    for (int i = 0; i < 2; ++i) batch.erase(batch.dim() - 1);
    return batch;
  }

  /// Memory for the gradients of query, key and value. Of parts of one tensor [N, 3 H, L, E], as a projection
  /// to all three is cut, they are parts of one too, which split's backward then need not put together.
  static Tensors empty_gradients(Inputs in) {
    const Inputs parts = in.first(3);
    const auto is_third = [&](const Tensor& x) { return x.shape() == parts[0].shape(); };
    if (parts[0].dim() == 4 && std::ranges::all_of(parts, is_third)) {
      if (const Tensor whole = joined(parts, 1); whole.defined())
        return chunk(empty_in_order_of(parts[0], whole.shape()), 3, 1);
    }
    Tensors grads;
    for (const Tensor& x : parts)
      grads.push_back(empty_in_order_of(x, with_batch(in, x.size(-2), x.size(-1))));
    return grads;
  }

  /// Memory in which the heads of a position lie side by side if they do so in x [N, H, L, E]: so the views
  /// that made x of a projection of all heads, [N, L, H * E], lead back to one without a copy.
  static Tensor empty_in_order_of(const Tensor& x, const Shape& shape) {
    TensorOptions options{.dtype = x.dtype(), .device = x.device()};
    if (shape.dim() != 4 || x.dim() != 4) return empty(shape, options);
    if (x.strides()[3] == 1 && x.strides()[1] < x.strides()[2])
      return empty({shape[0], shape[2], shape[1], shape[3]}, options).transpose(1, 2);
    options.format = format_of(x);
    return empty(shape, options);
  }
  /// The joint batch dimensions, then these two.
  static Shape with_batch(Inputs in, int64_t rows, int64_t columns) {
    Shape shape = batch_of(in[0]);
    for (const Tensor& x : {in[1], in[2]}) broadcast(Shape(shape), batch_of(x), shape);
    shape.push_back(rows);
    shape.push_back(columns);
    return shape;
  }
  double factor(const Tensor& query) const {
    return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  }
  AttentionOperands operands(Inputs in) const {
    const auto view = [&](const Tensor& x, int64_t rows, int64_t columns) {
      return x.defined() ? expand(x, with_batch(in, rows, columns)).view_of_memory() : View();
    };
    const int64_t L = in[0].size(-2), S = in[1].size(-2), E = in[0].size(-1);
    return {view(in[0], L, E), view(in[1], S, E), view(in[2], S, in[2].size(-1)),
            view(in[3], L, S), factor(in[0]),     is_causal};
  }

  /// Over the keys that each query sees; 0 for a query that sees none.
  Tensor softmax_of(const Tensor& scores, const Tensor& mask) const {
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    if (is_causal) return softmax(where(before(scores), scores, hidden), -1);
    if (!mask.defined()) return softmax(scores, -1);
    const Tensor masked =
        mask.dtype() == bool_ ? where(mask, scores, hidden) : add(scores, mask.to(scores.dtype()));
    const Tensor sees = any(ne(masked, hidden), -1, true);
    return where(sees, softmax(where(sees, masked, 0), -1), 0);
  }
  /// [L, S], true where key j is not after query i.
  static Tensor before(const Tensor& scores) {
    const TensorOptions options{.device = scores.device()};
    return ge(arange(Scalar(scores.size(-2)), options).unsqueeze(1),
              arange(Scalar(scores.size(-1)), options));
  }
};

}  // namespace ops

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, const AttentionOptions& options) {
  return call(ops::ScaledDotProductAttention(options), query, key, value, attn_mask);
}

template <>
std::vector<Sample> samples<OpId::scaled_dot_product_attention>() {
  const auto attend = [](const AttentionOptions& options) {
    return [=](Inputs in) {
      return Tensors{
          scaled_dot_product_attention(in[0], in[1], in[2], in.size() > 3 ? in[3] : Tensor(), options)};
    };
  };
  const auto masked = [](Inputs in) {  // the second query sees nothing
    const Tensor mask =
        tensor({1, 0, 1, 0, 0, 0, 0, 1, 1}, {3, 3}, {.dtype = bool_, .device = in[0].device()});
    return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], mask)};
  };
  const auto operands = [](const Shape& query, const Shape& key, const Shape& value) {
    return Tensors{uniform_sample(query), uniform_sample(key), uniform_sample(value)};
  };
  Tensors biased = operands({2, 3, 2}, {2, 4, 2}, {2, 4, 3});
  biased.push_back(uniform_sample({3, 4}));
  return {{"heads", operands({2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 3}), attend({})},
          {"causal", operands({2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}), attend({.is_causal = true})},
          {"causal, more keys, scaled", operands({2, 3, 2}, {2, 5, 2}, {2, 5, 2}),
           attend({.is_causal = true, .scale = 0.7})},
          {"mask", operands({2, 3, 4}, {2, 3, 4}, {2, 3, 4}), masked},
          {"bias", biased, attend({})},
          {"broadcast", operands({2, 1, 3, 2}, {3, 4, 2}, {2, 1, 4, 2}), attend({})},
          {"no queries", operands({2, 0, 3}, {2, 4, 3}, {2, 4, 3}), attend({})}};
}

}  // namespace mezzo
