// An op that is other ops under one name: its row lets callers (and their messages) treat it as one.
#pragma once

#include "autograd/call.h"
#include "autograd/engine.h"

namespace mezzo::ops {

/// Op::compose(inputs) is the op, in plain ops. Forward runs it without history, and backward runs it again
/// for the gradients: what is kept in between are the inputs alone.
template <class Op>
struct Composed {
  Tensor forward(Inputs in, Saver& save) const {
    for (const Tensor& x : in) save(x);
    return static_cast<const Op&>(*this).compose(in);
  }

  Tensors backward(Node& node, Inputs g) const {
    Tensors all, sources;
    std::vector<size_t> wanted;  // positions of the sources among all inputs
    for (size_t k = 0; k < node.edges.size(); ++k) {
      all.push_back(node.saved(k));
      if (!node.needs(k)) continue;
      sources.push_back(all[k]);
      wanted.push_back(k);
    }
    const auto composition = [&](Inputs at) {
      Tensors in = all;
      for (size_t i = 0; i < wanted.size(); ++i) in[wanted[i]] = at[i];
      return Tensors{static_cast<const Op&>(*this).compose(in)};
    };
    const Tensors gradients = vector_jacobian(composition, sources, g);
    Tensors result(all.size());
    for (size_t i = 0; i < wanted.size(); ++i) result[wanted[i]] = gradients[i];
    return result;
  }
};

}  // namespace mezzo::ops
