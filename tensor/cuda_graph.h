// A training step of a GPU without the CPU: recorded once, replayed as often as wanted.
//
//   cuda::Graph step([&] {
//     adam.zero_grad();
//     { amp::Autocast autocast("cuda"); loss = mse_loss(net(inputs), targets); }
//     scaler.scale(loss).backward();
//     scaler.step(adam);
//     scaler.update();
//   });
//   for (...) { inputs.copy_(batch); step.replay(); }
//
// Each replay works on the same memory: what the step read stands in the tensors that it read, what it made
// in the tensors that were there at its end. Numbers of the CPU's are part of the recording, but for learning
// rates: those that the optimizer's options have when it is replayed; and a replay draws random numbers of
// its own, those that the step would draw. What cannot be replayed is refused by name: reading a value on the
// CPU (item, nonzero, skipped), a copy from there, an optimizer's first step. Positions and labels are not
// checked in it. What the step changes in place, each replay changes again: version() counts it.
#pragma once

#include <functional>
#include <memory>

#include "tensor/device.h"

namespace mezzo::cuda {

class Graph {
 public:
  /// Runs `step` `warm_up` times, as it is, so that plans and state are there; then records it, which
  /// computes nothing. Throws Error if the device is not there or the step does what cannot be recorded.
  explicit Graph(const std::function<void()>& step, const Device& device = Device::Type::cuda,
                 int warm_up = 2);

  /// Does the step's work, after what the thread has asked for by now; returns without waiting for it.
  void replay() const;

 private:
  Device device_;
  std::shared_ptr<void> recording_;
};

}  // namespace mezzo::cuda
