// The run of 50 steps whose losses PyTorch wrote (make_checkerboard in tests/golden/training.py).
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "examples/checkerboard.h"
#include "optim/adam.h"
#include "tests/golden.h"
#include "tests/values.h"

namespace mezzo {

/// The checkerboard's network with PyTorch's initial weights, on the device under test.
inline examples::Net initial_net(const Golden& golden, DType dtype) {
  examples::Net net(16);
  const std::string prefix = "initial.";
  StateDict state;
  for (const std::string& key : golden.keys(prefix))
    state.insert(key.substr(prefix.size()), golden.tensor(key));
  net.load_state_dict(state);
  net.to(dtype).to(test_device());
  return net;
}

/// Losses of 50 steps of Adam.
inline Values train(examples::Net& net, const std::function<Tensor()>& forward) {
  optim::Adam optimizer(net.parameters(), {.lr = 0.001});
  Values losses;
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    const Tensor loss = forward();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// Checks the losses against run.NAME.losses; `allowed` is the relative difference at a step, counted from 1.
inline void check_losses(const Values& losses, const Golden& golden, std::string_view name,
                         const std::function<double(size_t)>& allowed) {
  const Values expected = values(golden.tensor(text("run.", name, ".losses")));
  REQUIRE(losses.size() == expected.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    CAPTURE(i + 1);
    CHECK(std::abs(losses[i] - expected[i]) <= allowed(i + 1) * expected[i]);
  }
}

}  // namespace mezzo
