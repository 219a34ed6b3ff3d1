// A training step as a CUDA graph: recorded once, then replayed by the GPU alone, without the time that the
// CPU takes to launch its kernels one by one. Without a GPU: sh examples/run.sh 06_cuda_graph --emulate
#include <mezzo.h>

#include <iostream>

using namespace mezzo;

namespace {

/// A small regression in mixed precision: everything that a step reads and writes is on the device.
struct Training {
  Tensor inputs = randn({64, 8}).cuda(), targets = inputs.narrow(1, 0, 1) * 2;
  nn::Sequential net{nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 1)};
  optim::Adam adam;
  amp::GradScaler scaler{"cuda"};
  Tensor loss;

  Training() : adam(net.cuda().parameters(), {.lr = 1e-2}) {}

  void step() {
    adam.zero_grad();
    {
      const amp::Autocast autocast("cuda");
      loss = mse_loss(net(inputs), targets);
    }
    scaler.scale(loss).backward();
    scaler.step(adam);  // whether it is skipped is known on the device; asking here would end the recording
    scaler.update();
  }
};

}  // namespace

int main() {
  if (device_count() == 0) {
    std::cout
        << "There is no CUDA device. The emulator has one: sh examples/run.sh 06_cuda_graph --emulate\n";
    return 0;
  }
  manual_seed(0);
  Training eager;
  for (int i = 0; i < 12; ++i) eager.step();
  std::cout << "12 steps, kernel by kernel:        loss " << eager.loss.item<float>() << "\n";

  manual_seed(0);
  Training training;
  const cuda::Graph graph([&] { training.step(); });  // two steps as they are, then the recording
  for (int i = 0; i < 10; ++i) graph.replay();
  std::cout << "2 steps and 10 times a graph:      loss " << training.loss.item<float>() << ", scale "
            << training.scaler.get_scale() << "\n";

  // What a replay reads is what stands in its tensors then, and in the optimizer's options.
  training.adam.groups()[0].options.lr = 0;
  graph.replay();
  const float first = training.loss.item<float>();
  graph.replay();
  std::cout << "two more with a learning rate of 0: loss " << first << " and " << training.loss.item<float>()
            << "\n";

  try {
    cuda::Graph refused(
        [&] {
          training.step();
          if (training.loss.item<float>() < 1e-3f) std::cout << "done\n";
        },
        "cuda", 0);
  } catch (const Error& error) {
    std::cout << "What a graph cannot hold is refused: " << error.what() << "\n";
  }
}
