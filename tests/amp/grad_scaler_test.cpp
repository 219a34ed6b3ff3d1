// What each call of the scaler does, in every order, by PyTorch's GradScaler; and what it refuses.
#include "amp/grad_scaler.h"

#include <doctest/doctest.h>

#include <cmath>

#include "amp/autocast.h"
#include "tensor/backend.h"
#include "tests/amp/scaler_rig.h"
#include "tests/error_text.h"

using namespace mezzo;

namespace {
constexpr double inf = INFINITY;
}

TEST_CASE("scale: the scale is made by the first loss, on its device") {
  amp::GradScaler scaler;
  CHECK(scaler.get_scale() == 65536);
  const Tensor w = leaf({3}, Shape{}, float32);
  const Tensor scaled = scaler.scale(w * 2);
  CHECK(scaled.item<float>() == 6 * 65536);
  CHECK(scaled.device() == test_device());
  scaled.backward();
  CHECK(w.grad().item<float>() == 2 * 65536);
}

TEST_CASE("scale: dtypes") {
  amp::GradScaler scaler;
  // 0.01 * 65536 in float16, where a scale rounded to float16 would be infinite.
  const Tensor loss = scaler.scale(scalar(.01, float16));
  CHECK(loss.dtype() == float32);
  CHECK(loss.item<float>() == doctest::Approx(655.5).epsilon(1e-3));
  const Tensor vector = scaler.scale(make({.01, 1}, float16));
  CHECK(vector.dtype() == float16);
  CHECK(values(vector)[0] == doctest::Approx(655.5).epsilon(1e-3));
  CHECK(values(vector)[1] == inf);
  CHECK(scaler.scale(scalar(1, bfloat16)).dtype() == float32);
  CHECK(scaler.scale(make({1}, bfloat16)).dtype() == bfloat16);
  CHECK(scaler.scale(scalar(1, float64)).item<double>() == 65536);
  CHECK(scaler.scale(scalar(1, float64)).dtype() == float64);
  {
    const amp::Autocast autocast(test_device(), float16);
    CHECK(scaler.scale(scalar(1, float32)).dtype() == float32);
  }
}

TEST_CASE("scale: several outputs, each with its history") {
  amp::GradScaler scaler({.init_scale = 4});
  const Tensor a = leaf({1}, float32), b = leaf({2}, float32);
  const Tensors scaled = scaler.scale({a * 3, b * 5});
  REQUIRE(scaled.size() == 2);
  (scaled[0] + scaled[1]).backward();
  CHECK(gradients({a, b}) == Values{12, 20});
  CHECK(scaler.scale(Tensors{}).empty());
}

TEST_CASE("scale: what is refused makes no scale") {
  amp::GradScaler scaler;
  CHECK(error_text([&] { scaler.scale(scalar(1, int64)); }).starts_with("GradScaler.scale: "));
  CHECK_THROWS_AS(scaler.scale(scalar(1, bool_)), Error);
  CHECK_THROWS_AS(scaler.scale(Tensor()), Error);
  UsersSgd sgd(with_gradients({1}));
  CHECK(error_text([&] { scaler.step(sgd); }) ==
        "GradScaler.step: nothing has been scaled yet; call scale(loss) before backward()");
}

TEST_CASE("a loss scaled before an update cannot be used after it") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {inf});
    const Tensor loss = rig.scaler.scale(leaf({1}, float32) * 2);
    rig.scaler.step(*rig.optimizer);
    rig.scaler.update();
    CHECK(error_text([&] { loss.backward(); }).find("changed") != std::string::npos);
  });
}

TEST_CASE("unscale_: gradients of every dtype but float16 are multiplied by the reciprocal") {
  for_both_kinds([](bool by_itself) {
    for (const DType dtype : {bfloat16, float32, float64}) {
      CAPTURE(name_of(dtype));
      Rig rig(by_itself, {512}, {}, dtype);
      const uint32_t version = rig.parameters[0].grad().version();
      rig.scaler.unscale_(*rig.optimizer);
      CHECK(gradients(rig.parameters) == Values{512. / 65536});
      CHECK(rig.parameters[0].grad().version() > version);
    }
    Rig thirds(by_itself, {1}, {.init_scale = 3});
    thirds.scaler.unscale_(*thirds.optimizer);
    CHECK(gradients(thirds.parameters) == Values{static_cast<float>(1 / 3.0)});
  });
}

TEST_CASE("float16 gradients are refused before anything changes") {
  for_both_kinds([](bool by_itself) {
    std::vector<Tensor> parameters = with_gradients({1, 2});
    parameters.push_back(with_gradients({6.55e-4}, float16)[0]);
    const auto optimizer = make_sgd(by_itself, parameters);
    amp::GradScaler scaler;
    scaler.scale(scalar(0, float32));
    const std::string operand = text("; gradient [1] float16 ", to_string(test_device()));
    CHECK(error_text([&] { scaler.step(*optimizer); })
              .starts_with("GradScaler.step: float16 gradients lose in unscaling what scaling had saved" +
                           operand));
    CHECK(error_text([&] { scaler.unscale_(*optimizer); }).starts_with("GradScaler.unscale_: float16"));
    CHECK(values(parameters) == Values{1, 1, 1});
    CHECK(gradients({parameters[0], parameters[1]}) == Values{1, 2});
    CHECK_THROWS_AS(scaler.update(), Error);  // nothing was recorded either

    parameters[2].set_grad({});  // a float16 parameter that is not trained is no harm
    CHECK_FALSE(scaler.step(*optimizer).skipped());
  });
}

TEST_CASE("calls out of order are refused, until the next update") {
  for_both_kinds([](bool by_itself) {
    const auto said = [&](std::initializer_list<const char*> calls) {
      Rig rig(by_itself, {1});
      return error_text([&] {
        for (const std::string_view call : calls) {
          if (call == "unscale_") rig.scaler.unscale_(*rig.optimizer);
          if (call == "step") rig.scaler.step(*rig.optimizer);
          if (call == "update") rig.scaler.update();
        }
      });
    };
    CHECK(said({"unscale_", "unscale_"}) ==
          "GradScaler.unscale_: has already been called on this optimizer since the last update()");
    CHECK(said({"step", "unscale_"}) == "GradScaler.unscale_: is called after step()");
    CHECK(said({"unscale_", "step", "unscale_"}) == "GradScaler.unscale_: is called after step()");
    const char* twice = "GradScaler.step: has already been called on this optimizer since the last update()";
    CHECK(said({"step", "step"}) == twice);
    CHECK(said({"unscale_", "step", "step"}) == twice);
    const std::string nothing = "GradScaler.update: no gradient has been checked since the last update()";
    CHECK(said({"update"}).starts_with(nothing));
    CHECK(said({"step", "update", "update"}).starts_with(nothing));
    CHECK(said({"step", "update", "step", "update"}).empty());
    CHECK(said({"unscale_", "update", "unscale_", "step", "update"}).empty());

    amp::GradScaler fresh;
    Rig rig(by_itself, {1});
    const std::string none = ": nothing has been scaled yet; call scale(loss) before backward()";
    CHECK(error_text([&] { fresh.unscale_(*rig.optimizer); }) == "GradScaler.unscale_" + none);
    CHECK(error_text([&] { fresh.step(*rig.optimizer); }) == "GradScaler.step" + none);
    CHECK(error_text([&] { fresh.update(); }) == "GradScaler.update" + none);
    CHECK(error_text([&] { fresh.update(4.); }) == "GradScaler.update" + none);
  });
}

TEST_CASE("step: unscales, updates, and tells") {
  for_both_kinds([](bool by_itself) {
    for (const bool unscale_first : {false, true}) {
      CAPTURE(unscale_first);
      Rig rig(by_itself, {2, -4}, {.init_scale = 4});
      if (unscale_first) rig.scaler.unscale_(*rig.optimizer);
      const amp::StepResult result = rig.scaler.step(*rig.optimizer);
      CHECK(result.had_gradients());
      CHECK_FALSE(result.skipped());
      CHECK(values(rig.parameters) == Values{.5, 2});
      CHECK(gradients(rig.parameters) == Values{.5, -1});  // on either path
      rig.scaler.update();
      CHECK(rig.scaler.get_scale() == 4);
      CHECK(rig.tracker() == 1);
    }
  });
}

TEST_CASE("step: one gradient that is not finite, and no parameter moves") {
  for_both_kinds([](bool by_itself) {
    for (const double bad : {inf, -inf, double{NAN}}) {
      for (const bool unscale_first : {false, true}) {
        Rig rig(by_itself, {bad, 1}, {.init_scale = 4});
        if (unscale_first) rig.scaler.unscale_(*rig.optimizer);
        const uint32_t version = rig.parameters[0].version();
        const amp::StepResult result = rig.scaler.step(*rig.optimizer);
        CHECK(result.had_gradients());
        CHECK(result.skipped());
        CHECK(values(rig.parameters) == Values{1, 1});
        // Elsewhere the CPU does not know, and a change must be reckoned with.
        if (in_host_memory(test_device())) CHECK(rig.parameters[0].version() == version);
        rig.scaler.update();
        CHECK(rig.scaler.get_scale() == 2);
        CHECK(rig.tracker() == 0);
        CHECK(result.skipped());  // of its own iteration, whenever it is asked
      }
    }
  });
}

TEST_CASE("step: a gradient that is finite only with its scale counts as overflow") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {3e38}, {.init_scale = .25});
    CHECK(rig.scaler.step(*rig.optimizer).skipped());
    CHECK(values(rig.parameters) == Values{1});
  });
}

TEST_CASE("step: infinities that appear after unscale_ are not looked for again") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {1});
    rig.scaler.unscale_(*rig.optimizer);
    rig.parameters[0].set_grad(make({inf}, float32));
    CHECK_FALSE(rig.scaler.step(*rig.optimizer).skipped());
    CHECK(values(rig.parameters) == Values{-inf});
    rig.scaler.update();
    CHECK(rig.scaler.get_scale() == 65536);
  });
}

TEST_CASE("step: an optimizer without gradients is no error, and no success either") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {1});
    const Tensor idle = leaf({1}, float32);
    const auto second = make_sgd(by_itself, {idle});
    const amp::StepResult result = rig.scaler.step(*second);
    CHECK_FALSE(result.had_gradients());
    CHECK(result.skipped());
    CHECK(error_text([&] { rig.scaler.update(); }).find("no gradient has been checked") != std::string::npos);
    CHECK_THROWS_AS(rig.scaler.step(*second), Error);  // it has had its step all the same
    rig.scaler.step(*rig.optimizer);
    rig.scaler.update();
    CHECK(rig.scaler.get_scale() == 65536);
    CHECK(rig.tracker() == 1);

    rig.scaler.unscale_(*second);
    CHECK_FALSE(rig.scaler.step(*second).had_gradients());
    CHECK_THROWS_AS(rig.scaler.update(), Error);

    rig.scaler.unscale_(*rig.optimizer);
    Tensor empty = leaf({}, float32);  // a gradient of no elements is a gradient
    empty.set_grad(make({}, float32));
    const auto third = make_sgd(by_itself, {empty});
    const amp::StepResult nothing_bad = rig.scaler.step(*third);
    CHECK(nothing_bad.had_gradients());
    CHECK_FALSE(nothing_bad.skipped());
  });
}

TEST_CASE("step: an optimizer that throws can be tried again") {
  const std::vector<Tensor> parameters = with_gradients({8});
  optim::SGD sgd(parameters, {.lr = .5});
  amp::GradScaler scaler({.init_scale = 4});
  scaler.scale(scalar(0, float32));
  sgd.groups()[0].options.lr = -1;
  CHECK(error_text([&] { scaler.step(sgd); }) == "SGD: invalid learning rate: -1");
  CHECK(gradients(parameters) == Values{8});
  sgd.groups()[0].options.lr = .5;
  CHECK_FALSE(scaler.step(sgd).skipped());
  CHECK(values(parameters) == Values{0});
  CHECK(gradients(parameters) == Values{2});
}

TEST_CASE("two optimizers: each steps or skips by itself, and the scale backs off once") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {inf, 1});
    const std::vector<Tensor> others = with_gradients({65536});
    const auto clean = make_sgd(by_itself, others);
    CHECK_FALSE(rig.scaler.step(*clean).skipped());
    CHECK(rig.scaler.step(*rig.optimizer).skipped());
    rig.scaler.update();
    CHECK(values(rig.parameters) == Values{1, 1});
    CHECK(values(others) == Values{0});
    CHECK(gradients(others) == Values{1});
    CHECK(rig.scaler.get_scale() == 32768);

    // unscale_ of both and overflow in both: once.
    Tensor(others[0]).set_grad(make({NAN}, float32));
    rig.scaler.unscale_(*rig.optimizer);
    rig.scaler.unscale_(*clean);
    rig.scaler.step(*clean);
    rig.scaler.update();
    CHECK(rig.scaler.get_scale() == 16384);
  });
}

TEST_CASE("a step that is not taken by choice still needs its update") {
  for_both_kinds([](bool by_itself) {
    Rig rig(by_itself, {1});
    rig.scaler.unscale_(*rig.optimizer);
    CHECK_THROWS_AS(rig.scaler.unscale_(*rig.optimizer), Error);
    rig.scaler.update();
    rig.scaler.unscale_(*rig.optimizer);
    CHECK(rig.tracker() == 1);
  });
}

TEST_CASE("what is known of an optimizer does not pass to the next one at its address") {
  for_both_kinds([](bool by_itself) {
    amp::GradScaler scaler({.init_scale = 4});
    scaler.scale(scalar(0, float32));
    const std::vector<Tensor> parameters = with_gradients({8});
    const auto make_one = [&] {
      // Always the same address.
      alignas(UsersSgd) alignas(optim::SGD) static std::byte memory[sizeof(UsersSgd) + sizeof(optim::SGD)];
      optim::Optimizer* optimizer =
          by_itself ? static_cast<optim::Optimizer*>(new (memory) optim::SGD(parameters, {.lr = 1}))
                    : new (memory) UsersSgd(parameters);
      return std::unique_ptr<optim::Optimizer, void (*)(optim::Optimizer*)>(
          optimizer, [](optim::Optimizer* o) { o->~Optimizer(); });
    };
    const void* first = nullptr;
    {
      const auto optimizer = make_one();
      first = optimizer.get();
      scaler.step(*optimizer);
    }
    CHECK(gradients(parameters) == Values{2});
    const auto optimizer = make_one();
    CHECK(optimizer.get() == first);
    scaler.step(*optimizer);  // and the gradient is unscaled already
    CHECK(gradients(parameters) == Values{2});
    CHECK(values(parameters) == Values{-3});
  });
}
