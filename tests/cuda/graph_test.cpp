// cuda::Graph: a captured training step beside the same steps one by one.
#include "tensor/cuda_graph.h"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <vector>

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "examples/checkerboard.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// The checkerboard's network on 16 x 16 pixels, in float16 with a scaler.
struct Training {
  Tensor inputs, targets, loss;
  examples::Net net = seeded_net();
  optim::Adam adam;
  amp::GradScaler scaler;

  explicit Training(const Device& device, double scale = 65536)
      : adam(net.to(device).parameters(), {.lr = 1e-3}),
        scaler(device, {.init_scale = scale, .growth_interval = 7}) {
    inputs = rand({1, 2, 16, 16}).to(device).contiguous(channels_last);
    targets = rand({1, 1, 16, 16}).to(device);
  }

  void step() {
    adam.zero_grad();
    {
      const amp::Autocast autocast(inputs.device(), float16);
      loss = mse_loss(net(inputs), targets);
    }
    scaler.scale(loss).backward();
    scaler.step(adam);
    scaler.update();
  }

 private:
  static examples::Net seeded_net() {
    manual_seed(5);
    return examples::Net(16);
  }
};

}  // namespace

TEST_CASE("float16 on CUDA beside float16 on the CPU: first gradients and 30 losses within 1 %") {
  // The CPU's fused blocks round to float16 less often, so that they are nearer to the truth than its plain
  // layers, by 1 % of a gradient that is nearly cancelled. CUDA's round where the plain layers do.
  Training cpu("cpu", 256), cuda("cuda", 256);
  for (int step = 0; step < 30; ++step) {
    nn::fusion(false);
    cpu.step();
    nn::fusion(true);
    cuda.step();
    if (step == 0) {
      const auto here = cpu.net.named_parameters(), there = cuda.net.named_parameters();
      for (size_t i = 0; i < here.size(); ++i) {
        // Biases before BatchNorms have gradients of rounding alone.
        if (here[i].first == "net.0.bias" || here[i].first == "net.3.bias" || here[i].first == "net.6.bias")
          continue;
        CAPTURE(here[i].first);
        const Tensor g = here[i].second.grad().to(float64),
                     difference = there[i].second.grad().cpu().to(float64) - g;
        CHECK(difference.norm().item<double>() <= 0.01 * g.norm().item<double>());
      }
    }
    CAPTURE(step);
    CHECK(cuda.loss.item<double>() == doctest::Approx(cpu.loss.item<double>()).epsilon(0.01));
  }
  CHECK(cuda.scaler.get_scale() == cpu.scaler.get_scale());
}

TEST_CASE("a captured step gives the losses of the steps one by one, to the bit") {
  // From a scale that overflows, so that steps are skipped on the device, to one that grows.
  for (const double scale : {65536.0, 0x1p40}) {
    CAPTURE(scale);
    Training one_by_one("cuda", scale), captured("cuda", scale);
    const cuda::Graph graph([&] { captured.step(); }, "cuda", 2);
    for (int step = 0; step < 2; ++step) one_by_one.step();
    for (int step = 2; step < 30; ++step) {
      one_by_one.step();
      graph.replay();
      CAPTURE(step);
      REQUIRE(captured.loss.item<float>() == one_by_one.loss.item<float>());
      REQUIRE(captured.scaler.get_scale() == one_by_one.scaler.get_scale());
    }
    const StateDict state = captured.adam.state_dict(), expected = one_by_one.adam.state_dict();
    CHECK(state.at("state.0.step").item<int64_t>() == expected.at("state.0.step").item<int64_t>());
  }
}

TEST_CASE("a replay reads its tensors as they are, and the learning rate of the options") {
  for (const bool momentum : {false, true}) {
    Tensor w = make({1, 2}, float32).requires_grad_(), x = make({3, 4}, float32);
    optim::SGD sgd({w}, {.lr = .1, .momentum = momentum ? .5 : 0.});
    const cuda::Graph graph(
        [&] {
          sgd.zero_grad();
          (w * x).sum().backward();
          sgd.step();
        },
        "cuda", 1);
    Tensor v = make({1, 2}, float32).requires_grad_();
    optim::SGD beside({v}, {.lr = .1, .momentum = momentum ? .5 : 0.});
    const auto step_beside = [&] {
      beside.zero_grad();
      (v * x).sum().backward();
      beside.step();
    };
    step_beside();
    for (const double lr : {.1, .2, 0., 1.}) {
      CAPTURE(lr);
      x.copy_(make({lr, -lr}, float32));
      sgd.groups()[0].options.lr = beside.groups()[0].options.lr = lr;
      graph.replay();
      step_beside();
      CHECK(values(w) == values(v));
    }
  }
}

TEST_CASE("a weight's 16-bit cast is made of the weight as it is, in a graph and beside it") {
  const Tensor x = ones({2, 2}, {.device = "cuda"});
  Tensor w = make({1, 2, 3, 4}, {2, 2}, float32).requires_grad_(), inside;
  const auto evaluate = [&] {
    const amp::Autocast autocast("cuda");
    return linear(x, w);
  };
  const auto change_to = [&](double value) {
    const NoGradGuard guard;
    w.fill_(value);
  };
  SUBCASE("an evaluation in the graph, after changes outside") {
    evaluate();
    const cuda::Graph graph([&] { inside = evaluate(); });
    CHECK(values(evaluate()) == Values{3, 7, 3, 7});  // not what the graph is yet to make
    for (const double value : {5., 6.}) {
      change_to(value);
      graph.replay();
      CHECK(values(inside) == Values(4, 2 * value));
      CHECK(values(evaluate()) == Values(4, 2 * value));
    }
  }
  SUBCASE("evaluations outside, after changes in the graph") {
    optim::SGD sgd({w}, {.lr = 1});
    const cuda::Graph graph([&] {
      sgd.zero_grad();
      evaluate().sum().backward();  // the gradient of each element is 2
      sgd.step();
    });
    CHECK(values(evaluate()) == Values{-5, -1, -5, -1});
    graph.replay();
    CHECK(values(evaluate()) == Values{-9, -5, -9, -5});
    graph.replay();
    CHECK(values(evaluate()) == Values{-13, -9, -13, -9});
  }
}

TEST_CASE("a replay changes the versions of what it writes") {
  Tensor x = make({1, 2}, float32), w = make({1, 1}, float32).requires_grad_();
  const cuda::Graph graph([&] { x.add_(1); });
  const Tensor y = (w * x).sum();
  graph.replay();
  CHECK(error_text([&] { y.backward(); }).find("changed in place") != std::string::npos);
}

TEST_CASE("a replay draws the numbers that the step would") {
  Generator& generator = default_generator();
  Tensor numbers, more, dice, x = ones({7, 9}, {.device = "cuda"}), dropped;
  const auto step = [&] {
    numbers = rand({5, 3}, {.device = "cuda"});
    dropped = x * empty({7, 9}, {.device = "cuda"}).uniform_(0, 2);
    more = randn({1001}, {.dtype = float64, .device = "cuda"}).permute({0});
    dice = randint(1, 7, {40}, {.device = "cuda"});
  };
  const auto all_values = [&] {
    return std::array{values(numbers), values(dropped), values(more), values(dice)};
  };
  manual_seed(11);
  const cuda::Graph graph(step);  // two steps as they are; the recording draws nothing
  const Tensor recorded = more;
  const uint64_t begin = generator.offset();
  std::vector<std::array<Values, 4>> replayed;
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    replayed.push_back(all_values());
  }
  const uint64_t end = generator.offset();
  generator.set_offset(begin);
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    step();
    CHECK(all_values() == replayed[static_cast<size_t>(i)]);
  }
  CHECK(generator.offset() == end);
  CHECK(replayed[0] != replayed[1]);

  // A seed that is set in between counts, and another graph takes its turn.
  const cuda::Graph other([&] { numbers = rand({5, 3}, {.device = "cuda"}); }, "cuda", 0);
  manual_seed(12);
  other.replay();
  const Values first = values(numbers);
  graph.replay();
  const Values second = values(recorded);
  manual_seed(12);
  CHECK(values(rand({5, 3}, {.device = "cuda"})) == first);
  step();
  CHECK(values(more) == second);
}

TEST_CASE("a graph outlives what it was made with") {
  std::optional<cuda::Graph> graph;
  Tensor sum;
  {
    Tensor w = make({1, 2}, float32).requires_grad_();
    optim::Adam adam({w});
    graph.emplace([&] {
      adam.zero_grad();
      sum = (w * w).sum();
      sum.backward();
      adam.step();
    });
  }
  // Its parameters and moments are out of use, but nobody else's.
  const Tensor others = full({64, 64}, 7.0, {.device = "cuda"});
  graph->replay();
  const float first = sum.item<float>();
  graph->replay();
  CHECK(sum.item<float>() < first);
  CHECK(others.ne(7).any().item<bool>() == false);
  const size_t live = memory_stats("cuda").live;
  graph.reset();
  sum = {};
  CHECK(memory_stats("cuda").live < live);
}

TEST_CASE("what cannot be captured is refused by name, and leaves the device usable") {
  Tensor x = make({1, 2, 3}, float32);
  const auto refusal = [](const std::function<void()>& step) {
    return error_text([&] { cuda::Graph graph(step, "cuda", 0); });
  };
  CHECK(refusal([&] { x.sum().item<float>(); }) ==
        "cuda::Graph: reading a value on the CPU cannot be captured; keep it on the device, and read it "
        "after a replay");
  CHECK(refusal([&] { nonzero(x); }).find("reading a value on the CPU cannot be captured") !=
        std::string::npos);
  CHECK(refusal([&] { make({1}); }).find("a copy from the CPU cannot be captured") != std::string::npos);
  CHECK(refusal([&] { cuda::Graph inner([] {}, "cuda", 0); }).find("another capture cannot be captured") !=
        std::string::npos);
  Tensor w = make({1, 2}, float32).requires_grad_();
  optim::Adam adam({w});
  CHECK(refusal([&] {
          w.sum().backward();
          adam.step();
        }).find("the first step of an optimizer cannot be captured") != std::string::npos);
  Training training("cuda");
  training.step();
  CHECK(refusal([&] {
          training.adam.zero_grad();
          training.scaler.scale(mse_loss(training.net(training.inputs), training.targets)).backward();
          static_cast<void>(training.scaler.step(training.adam).skipped());
        }).find("reading a value on the CPU cannot be captured") != std::string::npos);
  CHECK(error_text([] { cuda::Graph graph([] {}, "cpu"); }) == "cuda::Graph: work on cpu has no graph");
  CHECK(values(x + 1) == Values{2, 3, 4});
  cuda::Graph graph([&] { x.add_(1); }, "cuda", 0);
  CHECK(values(x) == Values{1, 2, 3});
  graph.replay();
  CHECK(values(x) == Values{2, 3, 4});
}
