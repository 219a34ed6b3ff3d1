// Changes in place: what they do to gradients, and what they refuse.
#include <functional>

#include "autograd/call.h"
#include "autograd/engine.h"
#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// Central difference of f in the only element of a.
double difference(double (*f)(double), double at) { return (f(at + 1e-6) - f(at - 1e-6)) / 2e-6; }

}  // namespace

TEST_CASE("in place: every change counts") {
  const Tensor a = leaf({2}), b = leaf({5});
  Tensor h = a * a;
  h += b;
  h *= 3;
  h -= a;
  h /= 2;
  CHECK(values(h) == Values{(3 * (4 + 5) - 2) / 2.0});
  h.sum().backward();
  CHECK(values(a.grad()) == Values{(3 * 4 - 1) / 2.0});
  CHECK(values(b.grad()) == Values{1.5});
}

TEST_CASE("in place: a product's gradients read both factors as they were") {
  const Tensor a = leaf({2}), b = leaf({5});
  Tensor h = a * 3;
  h *= b;
  h /= b;
  h *= b;
  h.sum().backward();
  CHECK(values(a.grad())[0] == doctest::Approx(15));
  CHECK(values(b.grad())[0] == doctest::Approx(6));
}

TEST_CASE("in place: the tensor and the operand are the same memory") {
  const Tensor a = leaf({2});
  Tensor h = a * 1;
  h *= h;
  h += h.view({1});
  CHECK(values(h) == Values{8});
  h.sum().backward();
  CHECK(values(a.grad())[0] == doctest::Approx(difference([](double x) { return 2 * x * x; }, 2)));

  Tensor rows = make({1, 2, 3, 4}, {2, 2});
  rows -= rows[0];  // the first row is read after it was written
  CHECK(values(rows) == Values{0, 0, 2, 2});
  Tensor square = make({1, 2, 3, 4}, {2, 2});
  square.copy_(square.t());
  CHECK(values(square) == Values{1, 3, 2, 4});
}

TEST_CASE("in place: every op has the gradient of the op that makes a new tensor") {
  struct Pair {
    std::string_view name;
    std::function<void(Tensor&)> change;
    std::function<Tensor(const Tensor&)> function;
  };
  const Tensor b = make({2, 3, 0.5}), flags = make({1, 0, 1}, bool_);
  const std::vector<Pair> pairs = {
      {"floor_divide", [&](Tensor& x) { x.floor_divide_(b); },
       [&](const Tensor& x) { return x.floor_divide(b); }},
      {"remainder", [&](Tensor& x) { x.remainder_(b); }, [&](const Tensor& x) { return x.remainder(b); }},
      {"fmod", [&](Tensor& x) { x.fmod_(b); }, [&](const Tensor& x) { return x.fmod(b); }},
      {"pow", [&](Tensor& x) { x.pow_(b); }, [&](const Tensor& x) { return x.pow(b); }},
      {"clamp", [](Tensor& x) { x.clamp_(1.5, 3); }, [](const Tensor& x) { return x.clamp(1.5, 3); }},
      {"clamp from below", [&](Tensor& x) { x.clamp_(b); }, [&](const Tensor& x) { return x.clamp(b); }},
      {"clamp from above", [&](Tensor& x) { x.clamp_({}, b); },
       [&](const Tensor& x) { return x.clamp({}, b); }},
      {"masked_fill", [&](Tensor& x) { x.masked_fill_(flags, 7); },
       [&](const Tensor& x) { return x.masked_fill(flags, 7); }},
      {"neg", [](Tensor& x) { x.neg_(); }, [](const Tensor& x) { return x.neg(); }},
      {"abs", [](Tensor& x) { x.abs_(); }, [](const Tensor& x) { return x.abs(); }},
      {"exp", [](Tensor& x) { x.exp_(); }, [](const Tensor& x) { return x.exp(); }},
      {"log", [](Tensor& x) { x.log_(); }, [](const Tensor& x) { return x.log(); }},
      {"sqrt", [](Tensor& x) { x.sqrt_(); }, [](const Tensor& x) { return x.sqrt(); }},
      {"tanh", [](Tensor& x) { x.tanh_(); }, [](const Tensor& x) { return x.tanh(); }},
      {"sigmoid", [](Tensor& x) { x.sigmoid_(); }, [](const Tensor& x) { return x.sigmoid(); }},
      {"relu", [](Tensor& x) { x.relu_(); }, [](const Tensor& x) { return x.relu(); }},
      {"floor", [](Tensor& x) { x.floor_(); }, [](const Tensor& x) { return x.floor(); }},
      {"ceil", [](Tensor& x) { x.ceil_(); }, [](const Tensor& x) { return x.ceil(); }},
      {"round", [](Tensor& x) { x.round_(); }, [](const Tensor& x) { return x.round(); }},
      {"trunc", [](Tensor& x) { x.trunc_(); }, [](const Tensor& x) { return x.trunc(); }},
  };
  for (const Pair& pair : pairs) {
    CAPTURE(pair.name);
    const Tensor there = leaf({1.25, 2, 4.5}), here = leaf({1.25, 2, 4.5});
    const Tensor made = pair.function(there * 1);
    Tensor changed = here * 1;
    const void* memory = changed.view_of_memory().data;
    pair.change(changed);
    CHECK(changed.view_of_memory().data == memory);
    CHECK(changed.version() > 0);
    CHECK(values(changed) == values(made));
    (made * made).sum().backward();
    (changed * changed).sum().backward();
    CHECK(values(here.grad()) == values(there.grad()));
  }
}

TEST_CASE("in place: what does not fit is refused, and nothing has changed") {
  Tensor x = make({1, 2, 3}), whole = make({1, 2, 3}, int64);
  CHECK_THROWS_WITH_AS(x.clamp_(2, make({1, 2})), doctest::Contains("clamp_: shapes do not broadcast"),
                       Error);
  CHECK_THROWS_WITH_AS(x.clamp_({}), doctest::Contains("clamp_: needs a bound"), Error);
  CHECK_THROWS_WITH_AS(whole.exp_(), doctest::Contains("exp_: the result is float32"), Error);
  CHECK_THROWS_WITH_AS(whole.pow_(-1), doctest::Contains("negative power"), Error);
  CHECK_THROWS_WITH_AS(whole.clamp_(2, 2.5), doctest::Contains("clamp_: the result is float32"), Error);
  CHECK_THROWS_WITH_AS(whole.remainder_(0), doctest::Contains("division by zero"), Error);
  CHECK_THROWS_AS(x.masked_fill_(make({1, 0, 1}), 0), Error);
  CHECK(values(x) == Values{1, 2, 3});
  CHECK(values(whole) == Values{1, 2, 3});
  CHECK(x.version() + whole.version() == 0);
  Tensor weight = leaf({1, 2});
  CHECK_THROWS_WITH_AS(weight.relu_(), doctest::Contains("relu_: a leaf that requires grad"), Error);
  CHECK_THROWS_WITH_AS(weight.masked_fill_(make({1, 0}, bool_), 0),
                       doctest::Contains("masked_fill_: a leaf that requires grad"), Error);
}

TEST_CASE("in place: second derivatives") {
  const Tensor a = leaf({3});
  Tensor h = a * 1;
  h *= a;  // a^2
  const Tensor first = grad(Tensors{h.sum()}, Tensors{a}, {}, {.create_graph = true})[0];
  CHECK(values(first) == Values{6});
  CHECK(values(grad(Tensors{first.sum()}, Tensors{a})[0]) == Values{2});
}

TEST_CASE("in place: refused on a leaf that requires grad, unless nothing is recorded") {
  Tensor a = leaf({1, 2});
  CHECK_THROWS_WITH_AS(a += 1, doctest::Contains("add_: a leaf that requires grad is changed in place"),
                       Error);
  CHECK_THROWS_AS(a.fill_(0), Error);
  CHECK_THROWS_AS(a.copy_(make({3, 4})), Error);
  CHECK_THROWS_AS(a.uniform_(), Error);
  CHECK(values(a) == Values{1, 2});
  CHECK(a.version() == 0);
  NoGradGuard guard;
  a += 1;
  CHECK(values(a) == Values{2, 3});
  CHECK(a.is_leaf());
  CHECK(a.requires_grad());
}

TEST_CASE("in place: refused where several elements are one place in memory") {
  const Tensor small = make({1, 2}, {2, 1});
  Tensor wide = small.expand({2, 3});
  CHECK_THROWS_WITH_AS(wide.add_(1), doctest::Contains("share one place"), Error);
  CHECK_THROWS_AS(wide.copy_(make({1})), Error);
  CHECK_THROWS_AS(wide.zero_(), Error);
  CHECK(values(small) == Values{1, 2});
}

TEST_CASE("in place: a saved tensor that changed is noticed, through any of its views") {
  const Tensor a = leaf({1, 2});
  const auto message_after = [&](auto change, Tensor (*f)(const Tensor&)) -> std::string {
    Tensor input = a * 1;
    const Tensor y = f(input);
    change(input, y);
    try {
      y.sum().backward();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto input_changes = [](Tensor& input, const Tensor&) { input += 1; };
  const auto output_changes = [](Tensor&, const Tensor& y) { y.detach() += 1; };
  const std::string fact = "it is at version 1 but was saved at version 0";
  CHECK(message_after(input_changes, &square).find("square: a tensor saved for backward") == 0);
  CHECK(message_after(input_changes, &square).find(fact) != std::string::npos);
  CHECK(message_after(output_changes, &exp).find("exp: ") == 0);
  CHECK(message_after(input_changes, &exp) == "");  // it saved its output
  CHECK(message_after(output_changes, &square) == "");
  CHECK(message_after(
            [](Tensor& input, const Tensor&) {
              input.detach().view({2, 1})[0].fill_(5);
            },
            &log) != "");
  CHECK(message_after([](Tensor& input, const Tensor&) { input.detach().copy_(make({5, 6})); }, &log) != "");
}

TEST_CASE("in place: an optimizer's update between forward and backward is noticed") {
  Tensor weight = leaf({1});
  const Tensor loss = (weight * weight).sum();
  {
    NoGradGuard guard;
    weight -= 0.1;
  }
  CHECK_THROWS_WITH_AS(loss.backward(),
                       doctest::Contains("changed in place: it is at version 1 but was saved at version 0"),
                       Error);
  CHECK_FALSE(weight.grad().defined());
  (weight * weight).sum().backward();
  CHECK(values(weight.grad())[0] == doctest::Approx(1.8));
}

TEST_CASE("in place: detach and views share the version, clones do not") {
  Tensor a = make({1, 2});
  Tensor view = a.view({2, 1}), detached = a.detach(), copy = a.clone();
  detached += 1;
  CHECK(a.version() == 1);
  CHECK(view.version() == 1);
  CHECK(copy.version() == 0);
  CHECK(values(view) == Values{2, 3});
  CHECK(values(copy) == Values{1, 2});
}

TEST_CASE("in place: a view is refused in a recorded op, and so is a view from before the change") {
  const Tensor a = leaf({1, 2});
  Tensor h = a * 1, view = h[0];
  CHECK_THROWS_WITH_AS(view += 1, doctest::Contains("a view is changed in place"), Error);
  CHECK_THROWS_AS(view.zero_(), Error);
  CHECK(values(h) == Values{1, 2});
  h *= 2;
  CHECK_THROWS_WITH_AS(view * 1, doctest::Contains("make the view again"), Error);
  h[0].sum().backward();
  CHECK(values(a.grad()) == Values{2, 0});
}

TEST_CASE("in place: a view of memory that then takes part in a recorded change loses no gradient silently") {
  const Tensor a = leaf({1, 2});
  Tensor buffer = make({0, 0});
  const Tensor view = buffer[0];
  buffer.copy_(a);
  CHECK_THROWS_WITH_AS(view * 1, doctest::Contains("make the view again"), Error);
  Tensor filled = a * 1;
  const Tensor before = filled[0];
  filled.fill_(7);
  CHECK_THROWS_AS(before * 1, Error);

  Tensor product = make({1, 2});
  Tensor stale = product.view({2});
  product.mul_(leaf({3, 5}));
  const std::function<void()> writes[] = {[&] { stale.zero_(); }, [&] { stale.fill_(2); },
                                          [&] { stale.uniform_(); }, [&] { stale.normal_(); },
                                          [&] {
                                            stale.copy_(make({8, 8}));
                                          }};
  for (const auto& write : writes)
    CHECK_THROWS_WITH_AS(write(), doctest::Contains("make the view again"), Error);
  CHECK(values(product) == Values{3, 10});
  const NoGradGuard guard;
  stale.zero_();
  CHECK(values(product) == Values{0, 0});
}

TEST_CASE("copy_: the gradient goes to what was copied, and none to what was there") {
  const Tensor a = leaf({1, 2}), b = leaf({3}, float32);
  Tensor h = a * 2;
  h.copy_(b);  // expanded and converted
  CHECK(values(h) == Values{3, 3});
  CHECK(h.dtype() == float64);
  (h * make({1, 10})).sum().backward();
  CHECK(values(b.grad()) == Values{11});
  CHECK(b.grad().dtype() == float32);
  CHECK_FALSE(a.grad().defined());

  Tensor buffer = make({0, 0});
  buffer.copy_(a);
  CHECK(buffer.requires_grad());
  buffer.sum().backward();
  CHECK(values(a.grad()) == Values{1, 1});
}

TEST_CASE("fill_, zero_ and random fills end the history") {
  const Tensor a = leaf({1, 2});
  Tensor h = a * 2;
  h.zero_();
  CHECK_FALSE(h.requires_grad());
  CHECK(h.version() == 1);
  CHECK(values(h) == Values{0, 0});
  h.normal_(3, 0);
  CHECK(values(h) == Values{3, 3});
  CHECK(h.version() == 2);
  CHECK_THROWS_AS(h.normal_(0, -1), Error);
  CHECK_THROWS_AS(h.uniform_(1, 0), Error);
  CHECK(h.version() == 2);
}

TEST_CASE("in place: the result's kind and shape must fit") {
  Tensor i = make({1, 2}, int32), b = make({1, 0}, bool_), h = make({1, 2}, float16),
         u = make({1, 255}, uint8);
  CHECK_THROWS_WITH_AS(i += 1.5, doctest::Contains("float32 and cannot be kept in int32"), Error);
  CHECK_THROWS_WITH_AS(b += 1, doctest::Contains("int64 and cannot be kept in bool"), Error);
  CHECK_THROWS_AS(i /= 2, Error);
  CHECK_THROWS_WITH_AS(h += make({1, 2, 3, 4}, {2, 2}), doctest::Contains("does not fit in place"), Error);
  CHECK(values(i) == Values{1, 2});
  CHECK(i.version() == 0);
  h += make({1, 2}, float32);
  CHECK(h.dtype() == float16);
  CHECK(values(h) == Values{2, 4});
  u += make({300, 2}, int64);
  CHECK(u.dtype() == uint8);
  CHECK(values(u) == Values{45, 1});
}

TEST_CASE("in place: retain_grad speaks of the tensor as it is after the change") {
  const Tensor a = leaf({2});
  Tensor h = a * 1;
  h.retain_grad();
  h *= 3;
  h.sum().backward();
  CHECK(values(h.grad()) == Values{1});
  CHECK(values(a.grad()) == Values{3});
}

TEST_CASE("in place: filling ends the history while recording, and keeps it under no_grad") {
  const Tensor a = leaf({2});
  Tensor recorded = a * 1, unrecorded = a * 1;
  recorded.fill_(5);
  CHECK_FALSE(recorded.requires_grad());
  {
    const NoGradGuard guard;
    unrecorded.fill_(5);
  }
  unrecorded.sum().backward();
  CHECK(values(a.grad()) == Values{1});
}

TEST_CASE("in place: a source that copy_ cannot use changes nothing") {
  Tensor x = make({1, 2});
  CHECK(error_text([&] { x.copy_(make({1, 2, 3})); }).find("copy_: ") == 0);
  CHECK(error_text([&] { x.copy_({}); }).find("copy_: ") == 0);
  CHECK(values(x) == Values{1, 2});

  const Tensor a = leaf({1, 2});
  Tensor h = a * 1;
  const Tensor stale = h.view({2});
  h *= 2;
  CHECK(error_text([&] { x.copy_(stale); }).find("copy_: ") == 0);
}

TEST_CASE("in place: random numbers need a floating dtype") {
  Tensor x = make({1, 2}, int64);
  CHECK(error_text([&] { x.uniform_(); }).find("uniform_: ") == 0);
  CHECK(error_text([&] { x.normal_(); }).find("normal_: ") == 0);
}

TEST_CASE("a tensor that was saved and then given other data is refused") {
  Tensor w = leaf({2});
  const Tensor x = leaf({3});
  const Tensor y = x * w;
  w.set_data(make({7}));
  CHECK(error_text([&] { y.sum().backward(); }).find("mul: ") == 0);
  CHECK_FALSE(x.grad().defined());
}
