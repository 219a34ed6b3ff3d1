// The checkerboard's data and network, as in the PyTorch tutorial "Faster training with mixed precision".
#pragma once

#include "autograd/ops.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

namespace mezzo::examples {

/// [2, height, width]: column / width and row / height of each pixel.
inline Tensor grid(int width, int height) {
  const Tensor hrange = arange(width).unsqueeze(0).repeat({height, 1}).div(width);
  const Tensor vrange = arange(height).unsqueeze(1).repeat({1, width}).div(height);
  return stack({hrange, vrange}, 0);
}

/// [height, width] of 0 and 1: a board of freq x freq fields.
inline Tensor checker(int width, int height, double freq) {
  const Tensor hrange = arange(width).reshape({1, width}).mul(freq / width / 2.0).fmod(1.0).gt(0.5);
  const Tensor vrange = arange(height).reshape({height, 1}).mul(freq / height / 2.0).fmod(1.0).gt(0.5);
  return hrange.logical_xor(vrange).to(float32);
}

/// The output of one pixel from its coordinates, [N, 2, H, W] to [N, 1, H, W].
struct Net : nn::Module {
  nn::Sequential net;

  explicit Net(int channels) {
    net = add("net", nn::Sequential(                                                                //
                         nn::Conv2d(2, channels, 1), nn::BatchNorm2d(channels), nn::ReLU(),         //
                         nn::Conv2d(channels, channels, 1), nn::BatchNorm2d(channels), nn::ReLU(),  //
                         nn::Conv2d(channels, channels, 1), nn::BatchNorm2d(channels), nn::ReLU(),  //
                         nn::Conv2d(channels, 1, 1)));
  }
  Tensor forward(const Tensor& x) override { return net(x); }
};

}  // namespace mezzo::examples
