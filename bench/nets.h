// The networks that are timed, with the names of torch_workloads.py, so that weights travel between the two.
#pragma once

#include "mezzo.h"

namespace mezzo::nets {

/// y = relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), 3x3 convolutions; He et al., "Deep residual
/// learning for image recognition" (2015).
struct BasicBlock : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d bn1, bn2;
  nn::Sequential shortcut;

  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : conv1(add("conv1", nn::Conv2d(in, out, 3, {.stride = stride, .padding = 1, .bias = false}))),
        conv2(add("conv2", nn::Conv2d(out, out, 3, {.padding = 1, .bias = false}))),
        bn1(add("bn1", nn::BatchNorm2d(out))),
        bn2(add("bn2", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out)
      shortcut =
          nn::Sequential(nn::Conv2d(in, out, 1, {.stride = stride, .bias = false}), nn::BatchNorm2d(out));
    add("short", shortcut);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = nn::conv_bn_relu(x, conv1, bn1);
    return nn::conv_bn_relu(y, conv2, bn2, shortcut(x));
  }
};

/// ResNet-18 for images of 32 x 32: a 3x3 stem without pooling, 10 classes.
struct ResNet18 : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(3, 64, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d bn = add("bn", nn::BatchNorm2d(64));
  nn::Sequential blocks =
      add("blocks", nn::Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1), BasicBlock(64, 128, 2),
                                   BasicBlock(128, 128, 1), BasicBlock(128, 256, 2), BasicBlock(256, 256, 1),
                                   BasicBlock(256, 512, 2), BasicBlock(512, 512, 1)));
  nn::Linear fc = add("fc", nn::Linear(512, 10));

  Tensor forward(const Tensor& x) override { return fc(blocks(nn::conv_bn_relu(x, conv, bn)).mean({2, 3})); }
};

/// Two convolutions and two linear layers for digits of 28 x 28.
struct LeNet : nn::Module {
  nn::Sequential features =
      add("features", nn::Sequential(nn::Conv2d(1, 32, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                                     nn::Conv2d(32, 64, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier =
      add("classifier", nn::Sequential(nn::Linear(64 * 7 * 7, 128), nn::ReLU(), nn::Linear(128, 10)));

  Tensor forward(const Tensor& x) override { return classifier(features(x).flatten(1)); }
};

/// A transformer's layer, normalised before each half: attention of `heads` heads over the past, then an MLP.
struct GptBlock : nn::Module {
  int64_t heads;
  nn::LayerNorm n1, n2;
  nn::Linear qkv, out, up, down;

  GptBlock(int64_t width, int64_t heads)
      : heads(heads),
        n1(add("n1", nn::LayerNorm(width))),
        n2(add("n2", nn::LayerNorm(width))),
        qkv(add("qkv", nn::Linear(width, 3 * width))),
        out(add("out", nn::Linear(width, width))),
        up(add("up", nn::Linear(width, 4 * width))),
        down(add("down", nn::Linear(4 * width, width))) {}

  Tensor attend(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1);
    Tensors parts = chunk(qkv(x), 3, -1);
    for (Tensor& part : parts) part = part.view({batch, length, heads, -1}).transpose(1, 2);
    const Tensor y = scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, {.is_causal = true});
    return out(y.transpose(1, 2).reshape({batch, length, -1}));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attend(n1(x));
    return y + nn::gelu_linear(up(n2(y)), down);
  }
};

/// A language model of 256 bytes: 4 layers, 128 channels, 4 heads, up to 128 tokens, [N, T] to [N, T, 256].
/// The output's weights are those of the embedding.
struct Gpt : nn::Module {
  static constexpr int64_t vocabulary = 256, context = 128, width = 128, layers = 4;
  nn::Embedding tok = add("tok", nn::Embedding(vocabulary, width)),
                pos = add("pos", nn::Embedding(context, width));
  nn::Sequential blocks;
  nn::LayerNorm norm = add("norm", nn::LayerNorm(width));

  Gpt() {
    for (nn::Embedding* embedding : {&tok, &pos}) nn::init::normal_(embedding->weight, 0, 0.02);
    for (int64_t i = 0; i < layers; ++i) blocks.push_back(GptBlock(width, 4));
    add("blocks", blocks);
  }
  Tensor forward(const Tensor& ids) override {
    const Tensor x = tok(ids) + pos(arange(ids.size(1), {.device = ids.device()}));
    return linear(norm(blocks(x)), tok.weight);
  }
};

inline nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 10));
}

}  // namespace mezzo::nets
