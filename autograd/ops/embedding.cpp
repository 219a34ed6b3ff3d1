// Rows of a table: what an embedding layer looks up.
#include "autograd/call.h"
#include "autograd/ops/check.h"
#include "autograd/samples.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace ops {

struct Embedding {
  static constexpr OpId id = OpId::embedding;
  std::optional<int64_t> padding_idx;

  void check(Inputs in) const {
    const Tensor &weight = in[0], &ids = in[1];
    const std::initializer_list<Operand> operands = {{"weight", weight}, {"ids", ids}};
    if (weight.dim() != 2) fail("embedding", "weight must be [V, D]", operands);
    if (!is_integral(ids.dtype())) fail("embedding", "ids must have an integer dtype", operands, "to(int64)");
    const int64_t rows = weight.size(0);
    if (padding_idx && (*padding_idx < -rows || *padding_idx >= rows)) {
      fail("embedding", text("padding_idx ", *padding_idx, " is outside [", -rows, ", ", rows, ")"),
           operands);
    }
    check_range("embedding", "id", ids, rows, operands);
  }
  Tensor forward(Inputs in, Saver& save) const {
    const Tensor &weight = in[0], &ids = in[1];
    save(ids);
    const Shape rows{ids.numel(), weight.size(1)};
    const Tensor out = empty(rows, {.dtype = weight.dtype(), .device = weight.device()});
    kernels(out.device())
        .gather(out.view_of_memory(), weight.view_of_memory(), beside(ids, rows).view_of_memory(), 0);
    Shape shape = ids.shape();
    shape.push_back(weight.size(1));
    return out.view(shape);
  }
  Tensors backward(Node& node, Inputs g) const {
    const Tensor ids = node.saved(0);
    const Shape table = node.input_info(0).shape;
    Tensor rows = reshape(g[0], {ids.numel(), table[1]});
    if (padding_idx) {
      const Tensor padding = eq(ids.flatten(), *padding_idx < 0 ? *padding_idx + table[0] : *padding_idx);
      rows = where(padding.unsqueeze(1), 0, rows);
    }
    const Tensor zero = zeros({}, {.dtype = rows.dtype(), .device = rows.device()});
    return {scatter_add(zero.expand(table), 0, beside(ids, rows.shape()), rows), {}};
  }

 private:
  /// ids as a position for each element of `rows`, without a copy.
  static Tensor beside(const Tensor& ids, const Shape& rows) {
    return ids.to(int64).flatten().unsqueeze(1).expand(rows);
  }
};

}  // namespace ops

Tensor embedding(const Tensor& weight, const Tensor& ids, std::optional<int64_t> padding_idx) {
  return call(ops::Embedding{padding_idx}, weight, ids);
}

template <>
std::vector<Sample> samples<OpId::embedding>() {
  const auto ids = [](const Shape& shape) {
    std::vector<double> values;  // from 0 to 5, each several times if there are more than six
    for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i * 5 % 7 % 6));
    return tensor(values, shape, {.dtype = int64});
  };
  const auto look_up = [](std::optional<int64_t> padding_idx) {
    return [=](Inputs in) { return Tensors{embedding(in[0], in[1], padding_idx)}; };
  };
  return {{"sequences", {uniform_sample({6, 3}), ids({2, 4})}, look_up({})},
          {"padding that no id names", {uniform_sample({7, 3}), ids({8})}, look_up(6)},
          {"images", {uniform_sample({6, 2}), ids({2, 2, 2, 3})}, look_up({})},
          {"0-d ids, padding from the end", {uniform_sample({6, 3}), ids({})}, look_up(-1)},
          {"nothing", {uniform_sample({6, 3}), ids({0, 2})}, look_up({})}};
}

}  // namespace mezzo
