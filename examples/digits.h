// The digits' data and network.
#pragma once

#include <string>

#include "autograd/ops.h"
#include "data/dataset.h"
#include "nn/nn.h"
#include "tensor/io/safetensors.h"

namespace mezzo::examples {

/// Images [N, 1, 8, 8] from 0 to 1, and the digits that they show, int64 [N].
inline data::TensorDataset<2> load_digits(const std::string& path, const Device& device) {
  const StateDict file = load_safetensors(path).tensors;
  return data::TensorDataset(file.at("images").to(device).unsqueeze(1) / 16.0, file.at("labels").to(device));
}

/// From images [N, 1, 8, 8] to logits [N, 10].
struct MyModel : nn::Module {
  nn::Sequential features = add(
      "features",
      nn::Sequential(nn::Conv2d(1, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(),  // [N, 32, 8, 8]
                     nn::Conv2d(32, 64, 3), nn::BatchNorm2d(64), nn::ReLU(),                 // [N, 64, 6, 6]
                     nn::Conv2d(64, 64, 3), nn::BatchNorm2d(64), nn::ReLU()));               // [N, 64, 4, 4]
  nn::Linear classifier = add("classifier", nn::Linear(64 * 4 * 4, 10));

  Tensor forward(const Tensor& x) override { return classifier(features(x).flatten(1)); }
};

}  // namespace mezzo::examples
