// Several threads at once: what they may share (modules, parameters, the generator, the memory's and oneDNN's
// caches) and what each has for itself (grad mode, module paths). A program of its own, for ThreadSanitizer.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <latch>
#include <thread>

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

constexpr size_t kThreads = 4;
constexpr int kRounds = 10;

/// Calls f(i) in thread i, all of them from one moment on, and throws what one of them threw.
void in_threads(const std::function<void(size_t)>& f) {
  std::latch start(kThreads);
  std::array<std::exception_ptr, kThreads> errors;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        f(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// f(i) by itself for each i.
std::vector<Tensors> one_by_one(const std::function<Tensors(size_t)>& f) {
  std::vector<Tensors> results;
  for (size_t i = 0; i < kThreads; ++i) results.push_back(f(i));
  return results;
}

/// Checks that f(i), called again and again in thread i, gives what it gives by itself.
void check_threads(const std::function<Tensors(size_t)>& f) {
  std::array<std::vector<Tensors>, kThreads> found;
  in_threads([&](size_t i) {  // before anything is cached
    for (int round = 0; round < kRounds; ++round) found[i].push_back(f(i));
  });
  const std::vector<Tensors> expected = one_by_one(f);
  for (size_t i = 0; i < kThreads; ++i) {
    for (const Tensors& tensors : found[i]) {
      REQUIRE(tensors.size() == expected[i].size());
      for (size_t k = 0; k < tensors.size(); ++k) {
        CHECK(close(tensors[k].detach(), expected[i][k].detach(), 1e-5));
      }
    }
  }
}

struct Net : nn::Module {
  nn::Sequential body =
      add("body", nn::Sequential(nn::Conv2d(2, 8, {3, 2}, {.padding = "same"}), nn::BatchNorm2d(8),
                                 nn::ReLU(), nn::Conv2d(8, 8, 3, {.groups = 4}), nn::GELU()));
  nn::Linear head = add("head", nn::Linear(8, 3));

  Net() { to(test_device()); }
  Tensor forward(const Tensor& x) override { return head(body(x).mean({2, 3})); }
};

TensorOptions on_device(bool requires_grad = false) {
  return {.device = test_device(), .requires_grad = requires_grad};
}

Tensors inputs(bool requires_grad = false) {
  Tensors all;
  for (size_t i = 0; i < kThreads; ++i) {
    all.push_back(rand({2, 2, 6 + static_cast<int64_t>(i), 7}, on_device(requires_grad)));
  }
  return all;
}

}  // namespace

TEST_CASE("threads: forward of one module") {
  Net net;
  std::atomic<int> calls = 0;
  net.body.register_forward_hook([&](const Tensor&, const Tensor&) { return ++calls, Tensor(); });
  net.eval();
  const auto x = inputs();
  check_threads([&](size_t i) {
    const GradModeGuard recording(i % 2 == 0);
    const Tensor y = net(x[i]);
    if (y.requires_grad() != (i % 2 == 0)) throw Error("one thread's grad mode is another's");
    return Tensors{y};
  });
  CHECK(calls == kThreads * (kRounds + 1));
}

TEST_CASE("threads: backward of separate graphs over shared parameters") {
  Net net;
  net.eval();
  const auto x = inputs(true);
  const auto loss = [&](size_t i) {
    return cross_entropy(net(x[i]), zeros({2}, {.dtype = int64, .device = test_device()}));
  };
  check_threads([&](size_t i) {
    const auto parameters = net.parameters();
    Tensors wanted(parameters.begin(), parameters.end());
    wanted.push_back(x[i]);
    return grad(Tensors{loss(i)}, wanted);
  });
  check_threads([&](size_t i) {
    const Tensor slope = grad(Tensors{loss(i)}, Tensors{x[i]}, {}, {.create_graph = true})[0];
    return grad(Tensors{slope.square().sum()}, Tensors{net.head.weight});
  });
  for (const Tensor& parameter : net.parameters()) CHECK_FALSE(parameter.grad().defined());

  net.requires_grad_(false);
  check_threads([&](size_t i) {
    Tensor own = x[i].detach().requires_grad_();
    net(own).square().sum().backward();
    return Tensors{own.grad()};
  });
}

TEST_CASE("threads: each trains a network of its own") {
  const auto x = inputs();
  Net first;
  check_threads([&](size_t i) {
    Net net;
    net.load_state_dict(first.state_dict());
    optim::Adam adam(net.parameters(), {.lr = 1e-2});
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      net(x[i]).square().mean().backward();
      adam.step();
    }
    const auto parameters = net.parameters();
    Tensors all(parameters.begin(), parameters.end());
    for (const auto& named : net.named_buffers()) all.push_back(named.second);
    return all;
  });
}

TEST_CASE("threads: a graph is built in one, run in another, and freed in a third") {
  const size_t before = memory_stats(test_device()).live;
  {
    Net net;
    net.requires_grad_(false);
    net.eval();
    std::array<Tensor, kThreads> losses;
    const auto x = inputs(true);
    in_threads([&](size_t i) { losses[i] = net(x[i]).square().sum(); });
    in_threads([&](size_t i) { losses[(i + 1) % kThreads].backward(); });
    for (size_t i = 0; i < kThreads; ++i) CHECK(x[i].grad().defined());
    in_threads([&](size_t i) { losses[(i + 2) % kThreads] = {}; });
  }
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("threads: the default generator gives each number once") {
  constexpr int64_t kNumbers = 8;
  const auto draw = [](std::vector<float>& numbers) {
    for (int round = 0; round < kRounds; ++round) {
      for (const float number : rand({kNumbers}, on_device()).to_vector<float>()) numbers.push_back(number);
    }
  };
  std::array<std::vector<float>, kThreads> apart;
  manual_seed(3);
  in_threads([&](size_t i) { draw(apart[i]); });
  std::vector<float> together, expected;
  for (const auto& numbers : apart) together.insert(together.end(), numbers.begin(), numbers.end());
  manual_seed(3);
  for (size_t i = 0; i < kThreads; ++i) draw(expected);
  std::ranges::sort(together);
  std::ranges::sort(expected);
  CHECK(together == expected);
}

TEST_CASE("threads: memory is nobody else's, also while the cache is emptied") {
  const size_t before = memory_stats(test_device()).live;
  std::atomic<int> wrong = 0;
  in_threads([&](size_t i) {
    std::vector<Tensor> held;
    for (int64_t round = 0; round < 20 * kRounds; ++round) {
      held.push_back(full({1 + round * 37 % 500}, static_cast<double>(i), on_device()));
      if (held.size() < 8) continue;
      const Tensor oldest = held.front();
      held.erase(held.begin());
      for (const double value : oldest.to_vector<double>()) wrong += value != static_cast<double>(i);
      if (i == 0 && round % 16 == 0) {
        empty_cache(test_device());
        reset_peak_memory(test_device());
      }
    }
  });
  CHECK(wrong == 0);
  CHECK(memory_stats(test_device()).live == before);
}

TEST_CASE("threads: products of new shapes, more of them than are kept prepared") {
  constexpr int64_t kRows = 400;
  const Tensor weight = rand({5, 3}, on_device());
  std::array<Tensors, kThreads> found;
  in_threads([&](size_t i) {
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const int64_t own = rows + kRows * static_cast<int64_t>(i) * (rows % 4 != 0);  // a quarter is shared
      found[i].push_back(linear(ones({own, 3}, on_device()), weight));
    }
  });
  const Tensor expected = weight.sum(1);
  for (const Tensors& tensors : found) {
    for (const Tensor& y : tensors) CHECK(close(y.narrow(0, y.size(0) - 1, 1), expected.view({1, 5}), 1e-5));
  }
}

TEST_CASE("threads: errors name the path of the module that their own thread is in") {
  struct Wrong : nn::Module {
    nn::Linear layer;
    Wrong(const std::string& name, int64_t features) : layer(add(name, nn::Linear(features, 1))) {
      to(test_device());
    }
    Tensor forward(const Tensor& x) override { return layer(x); }
  };
  std::array<std::string, kThreads> texts;
  in_threads([&](size_t i) {
    Wrong net(text("layer", i), static_cast<int64_t>(i) + 2);
    for (int round = 0; round < kRounds; ++round)
      texts[i] = error_text([&] { net(ones({1, 1}, on_device())); });
  });
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(texts[i].starts_with(text("linear: input has 1 features but weight expects ", i + 2)));
    CHECK(texts[i].find(text("; in layer", i)) != std::string::npos);
  }
}
