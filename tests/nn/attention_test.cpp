// Rules of scaled_dot_product_attention that PyTorch's recorded numbers do not cover.
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/nn/layers.h"
#include "tests/values.h"

using namespace mezzo;

TEST_CASE("scaled_dot_product_attention: what is refused") {
  const Tensor q = uniform({2, 5, 4}), k = uniform({2, 6, 4}), v = uniform({2, 6, 3});
  const auto refusal = [&](const Tensor& query, const Tensor& key, const Tensor& value,
                           const Tensor& mask = {}, const AttentionOptions& options = {}) {
    const std::string said =
        error_text([&] { scaled_dot_product_attention(query, key, value, mask, options); });
    const std::string start = "scaled_dot_product_attention: ";
    CHECK(said.starts_with(start));
    CHECK(said.find(text("query ", describe(query))) != std::string::npos);
    return said.substr(start.size(), said.find(';') - start.size());
  };
  CHECK(refusal(q[0][0], k, v) == "query, key and value must be [..., L, E], [..., S, E] and [..., S, EV]");
  CHECK(refusal(q.narrow(2, 0, 3), k, v) == "a query has 3 elements but a key 4");
  CHECK(refusal(q, k, v.narrow(1, 0, 5)) == "there are 6 keys but 5 values");
  CHECK(refusal(q, k, uniform({3, 6, 3})) == "batch dimensions do not broadcast");
  CHECK(refusal(q, k.to(float64), v) == "key is float64 but query is float32");
  CHECK(refusal(q.to(int64), k.to(int64), v.to(int64)) == "needs a floating dtype");
  const Tensor mask = zeros({5, 6}, {.device = test_device()});
  CHECK(refusal(q, k, v, mask, {.is_causal = true}) ==
        "is_causal is a mask already: it goes without attn_mask");
  CHECK(refusal(q, k, v, mask.to(int64)) == "attn_mask must be bool or float32");
  CHECK(refusal(q, k, v, mask.to(float64)) == "attn_mask must be bool or float32");
  CHECK(refusal(q, k, v, mask.narrow(0, 0, 4)) == "attn_mask does not broadcast to [2, 5, 6]");
  CHECK(refusal(q, k, v, zeros({2, 2, 5, 6}, {.device = test_device()})) ==
        "attn_mask does not broadcast to [2, 5, 6]");
}

TEST_CASE("scaled_dot_product_attention: a query that sees nothing gives 0, and no gradient") {
  const Tensor q = uniform({3, 4}).requires_grad_(), k = uniform({2, 4}).requires_grad_(),
               v = uniform({2, 5}).requires_grad_();
  const double hidden = -std::numeric_limits<double>::infinity();
  for (const Tensor& mask :
       {make({1, 1, 0, 0, 0, 1}, {3, 2}, bool_), make({0, 0, hidden, hidden, hidden, 0}, {3, 2}, float32)}) {
    const Tensor y = scaled_dot_product_attention(q, k, v, mask);
    CHECK(values(y.select(0, 1)) == Values(5, 0));
    CHECK(close(y.select(0, 2).detach(), v.select(0, 1).detach(), 1e-6));
    for (const Tensor& leaf : {q, k, v}) Tensor(leaf).set_grad({});
    y.sum().backward();
    CHECK(values(q.grad().select(0, 1)) == Values(4, 0));
    for (const Tensor& leaf : {q, k, v}) CHECK(all(isfinite(leaf.grad())).item<bool>());
  }
}

TEST_CASE("scaled_dot_product_attention: large products do not overflow") {
  const Tensor q = make({100, 0, 0, 100}, {2, 2}, float32), v = make({1, 2, 3, 4}, {2, 2}, float32);
  CHECK(close(scaled_dot_product_attention(q, q, v), v, 1e-6));
}

TEST_CASE("scaled_dot_product_attention: gradients of parts of one tensor are made in one memory") {
  const int64_t N = 2, L = 5, H = 3, E = 4;
  const auto heads = [&](const Tensor& part) { return part.view({N, L, H, E}).transpose(1, 2); };
  const auto attend = [](const Tensors& parts) {
    return scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, {.is_causal = true}).square().sum();
  };
  const Tensor whole = uniform({N, L, 3 * H * E}).requires_grad_();
  Tensors parts = chunk(whole, 3, -1), apart;
  for (Tensor& part : parts) {
    apart.push_back(heads(part.detach().clone()).requires_grad_());
    part = heads(part);
  }
  attend(apart).backward();
  const Tensor loss = attend(parts);
  const Tensors g = grad({&loss, 1}, parts, {}, {.retain_graph = true});
  for (size_t i = 0; i < 3; ++i) {
    CHECK(values(g[i]) == values(apart[i].grad()));
    CHECK(g[i].strides() == parts[i].strides());
  }
  loss.backward({}, true);
  loss.backward();
  Tensor(whole.grad()).mul_(0.5);  // a gradient like any other
  const Tensors cut = chunk(whole.grad(), 3, -1);
  for (size_t i = 0; i < 3; ++i) CHECK(values(heads(cut[i])) == values(apart[i].grad()));
}
