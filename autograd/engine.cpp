// The engine. Nodes carry the order in which their ops ran; backward takes the highest number first of those
// that have got a gradient. That is the tape read from its end: when a node comes up, everything that reads
// its outputs has run, so its gradient is complete. There is no recursion and no visited set.
#include "autograd/engine.h"

#include <algorithm>
#include <functional>
#include <map>

#include "autograd/call.h"
#include "autograd/ops.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

/// sum += x, without touching memory that another tensor shares.
void accumulate(Tensor& sum, Tensor x) {
  if (!sum.defined()) {
    sum = std::move(x);
  } else if (!grad_enabled() && is_sole_owner(sum) && sum.dtype() == x.dtype() &&
             is_dense(sum.shape(), sum.strides())) {
    sum.add_(x);
  } else {
    sum = add(sum, x);
  }
}

/// A gradient in the shape and dtype and on the device of what it belongs to: broadcasting, promotion and the
/// mixing of one number of the CPU's with tensors elsewhere undone.
Tensor fitted(std::string_view op, const Tensor& gradient, const Shape& shape, DType dtype,
              const Device& device) {
  Shape joint;
  if (gradient.shape() != shape &&
      (!broadcast(gradient.shape(), shape, joint) || joint != gradient.shape())) {
    fail(op, text("its backward returned a gradient of shape ", to_string(gradient.shape()),
                  " for an input of shape ", to_string(shape)));
  }
  return to(sum_to(gradient, shape), dtype, device);
}

/// Adds to a leaf's grad. The first gradient is adopted only if no other tensor, nor element, shares its
/// memory.
void accumulate_into_leaf(const Tensor& leaf, Tensor gradient) {
  Tensor& sum = leaf.impl()->grad;
  if (sum.defined()) {
    if (grad_enabled())
      sum = add(sum, gradient);
    else
      sum.add_(gradient);
  } else if (!grad_enabled() && is_sole_owner(gradient) && gradient.strides() == leaf.strides() &&
             is_dense(leaf.shape(), leaf.strides())) {
    sum = std::move(gradient);
  } else {
    // Laid out like the leaf, so that an optimizer reads both in one order.
    sum = clone(gradient, format_of(leaf));
  }
}

/// Gives the complete gradient of a tensor, made by `maker` or a leaf, to the tensor's hooks.
void run_hooks(const Hooks<TensorHook>& hooks, std::string_view maker, Tensor& gradient) {
  if (hooks.empty() || !gradient.defined()) return;
  for (const auto& hook : hooks.list()) {
    const Tensor returned = (*hook)(gradient);
    if (!returned.defined()) continue;
    if (returned.shape() != gradient.shape() || returned.dtype() != gradient.dtype() ||
        returned.device() != gradient.device()) {
      fail("register_hook",
           text("a hook on ", maker.empty() ? "a leaf" : text("what ", maker, " made"),
                " returned another shape, dtype or device than the gradient's"),
           {{"gradient", gradient}, {"returned", returned}});
    }
    gradient = returned;
  }
}

/// The gradient that a backward starts from.
Tensor start_gradient(std::string_view op, const Tensor& output, const Tensor& given) {
  if (!output.defined() || !output.requires_grad()) {
    fail(op, "the tensor does not require grad and has no history", {{"output", output}},
         "was it computed under a NoGradGuard, or from tensors that do not require grad?");
  }
  if (!given.defined()) {
    if (output.numel() != 1) {
      fail(op, "without a gradient the output must have one element", {{"output", output}},
           "pass a gradient of its shape");
    }
    return full(output.shape(), 1.0, {.dtype = output.dtype(), .device = output.device()});
  }
  if (given.shape() != output.shape() || given.dtype() != output.dtype() ||
      given.device() != output.device()) {
    fail(op, "the gradient must have the output's shape, dtype and device",
         {{"output", output}, {"gradient", given}});
  }
  return given;
}

class Engine {
 public:
  Engine(std::string_view op, const GradOptions& options) : op_(op), options_(options) {}

  /// Asks for the gradient at an edge instead of in leaves' grad.
  void capture(const Edge& edge) {
    captures_.push_back({edge, {}});
    lowest_ = edge.node ? std::min(lowest_, edge.node->sequence) : 0;
  }

  void run(Inputs outputs, Inputs gradients) {
    into_leaves_ = captures_.empty();
    if (into_leaves_) lowest_ = 0;
    Tensors starts;
    for (size_t i = 0; i < outputs.size(); ++i) {
      starts.push_back(start_gradient(op_, outputs[i], i < gradients.size() ? gradients[i] : Tensor()));
    }
    const GradModeGuard mode(options_.create_graph);
    const CastHookGuard masked(nullptr);  // an op's backward runs in the dtypes of its forward
    for (size_t i = 0; i < outputs.size(); ++i) deliver(edge_to(outputs[i]), std::move(starts[i]));
    while (!pending_.empty()) {
      auto next = pending_.extract(pending_.begin());
      run_node(*next.mapped().node, next.mapped().gradients);
    }
    for (Capture& capture : captures_) {
      if (capture.edge.leaf.defined()) finish_leaf(capture);
    }
  }

  Tensor captured(const Edge& edge) { return find(edge)->gradient; }

 private:
  /// A gradient that is collected over the run: one that was asked for, or else of a leaf with hooks, which
  /// see all of it before the leaf does.
  struct Capture {
    Edge edge;
    Tensor gradient;
  };
  /// A node that has got gradients of its outputs.
  struct Pending {
    std::shared_ptr<Node> node;
    Tensors gradients;
  };

  void run_node(Node& node, Tensors& grads) {
    for (size_t i = 0; i < grads.size(); ++i) {
      run_hooks(node.outputs[i].hooks, node.name(), grads[i]);
      const auto keeper = node.outputs[i].retains.lock();
      if (keeper && grads[i].defined()) accumulate_into_leaf(Tensor(keeper), grads[i]);
    }
    for (Capture& wanted : captures_) {
      if (wanted.edge.node.get() == &node) wanted.gradient = grads[static_cast<size_t>(wanted.edge.index)];
    }
    if (!into_leaves_ && node.sequence <= lowest_) return;  // nothing that was asked for lies below
    if (node.released()) {
      fail(op_,
           text("runs through ", node.name(), " a second time, but what it saved was freed by the first"), {},
           "pass retain_graph to the first backward");
    }
    Tensors results = node.backward(grads);
    grads.clear();
    if (!options_.retain_graph && !options_.create_graph) node.release();
    for (size_t i = 0; i < node.edges.size() && i < results.size(); ++i) {
      if (results[i].defined()) deliver_fitted(node.name(), node.edges[i], std::move(results[i]));
    }
  }

  void deliver_fitted(std::string_view op, const Edge& edge, Tensor gradient) {
    if (edge.node) {
      const OutputInfo& output = edge.node->outputs[static_cast<size_t>(edge.index)];
      if (gradient.shape() != output.shape || gradient.dtype() != output.dtype ||
          gradient.device() != output.device) {
        gradient = fitted(op, gradient, output.shape, output.dtype, output.device);
      }
    } else if (edge.leaf.defined()) {
      const Tensor& leaf = edge.leaf;
      if (gradient.shape() != leaf.shape() || gradient.dtype() != leaf.dtype() ||
          gradient.device() != leaf.device()) {
        gradient = fitted(op, gradient, leaf.shape(), leaf.dtype(), leaf.device());
      }
    }
    deliver(edge, std::move(gradient));
  }

  void deliver(const Edge& edge, Tensor gradient) {
    if (edge.node) {
      if (edge.node->sequence < lowest_) return;
      Pending& pending = pending_[edge.node->sequence];
      if (!pending.node) pending = {edge.node, Tensors(edge.node->outputs.size())};
      accumulate(pending.gradients[static_cast<size_t>(edge.index)], std::move(gradient));
    } else if (edge.leaf.defined()) {
      if (Capture* const wanted = find(edge))
        accumulate(wanted->gradient, std::move(gradient));
      else if (into_leaves_ && edge.leaf.impl()->hooks.empty())
        accumulate_into_leaf(edge.leaf, std::move(gradient));
      else if (into_leaves_)
        captures_.push_back({edge, std::move(gradient)});
    }
  }

  /// A leaf's gradient is complete when all has run.
  void finish_leaf(Capture& capture) {
    run_hooks(capture.edge.leaf.impl()->hooks, "", capture.gradient);
    if (into_leaves_) accumulate_into_leaf(capture.edge.leaf, std::move(capture.gradient));
  }

  Capture* find(const Edge& edge) {
    const auto found = std::ranges::find_if(captures_, [&](const Capture& capture) {
      return capture.edge.node == edge.node && capture.edge.index == edge.index &&
             capture.edge.leaf.impl() == edge.leaf.impl();
    });
    return found == captures_.end() ? nullptr : &*found;
  }

  std::string_view op_;
  GradOptions options_;
  std::vector<Capture> captures_;
  bool into_leaves_ = true;       ///< nothing was asked for: leaves get their gradients
  uint64_t lowest_ = UINT64_MAX;  ///< nodes before this one lead to nothing that was asked for
  /// By sequence, the highest first.
  std::map<uint64_t, Pending, std::greater<>, PoolAllocator<std::pair<const uint64_t, Pending>>> pending_;
};

}  // namespace

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  Engine engine("backward", {.retain_graph = retain_graph, .create_graph = create_graph});
  engine.run({this, 1}, {&gradient, 1});
}

Tensors grad(Inputs outputs, Inputs inputs, Inputs gradients, const GradOptions& options) {
  Engine engine("grad", options);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Edge edge = edge_to(inputs[i]);
    if (!edge.wanted()) fail("grad", text("input ", i, " does not require grad"), {{"input", inputs[i]}});
    engine.capture(edge);
  }
  if (inputs.empty()) fail("grad", "there are no inputs to differentiate in");
  engine.run(outputs, gradients);
  Tensors result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(engine.captured(edge_to(inputs[i])));
    if (!result.back().defined() && !options.allow_unused) {
      fail("grad", text("input ", i, " was not used in the graph of the outputs"), {{"input", inputs[i]}});
    }
  }
  return result;
}

Tensors vector_jacobian(const std::function<Tensors(Inputs)>& composition, Inputs inputs, Inputs gradients) {
  const bool create_graph = grad_enabled();
  Tensors points, outputs, starts, sources;
  std::vector<size_t> wanted;  // positions in inputs of the sources
  {
    EnableGradGuard guard;
    for (size_t i = 0; i < inputs.size(); ++i) {
      points.push_back(inputs[i]);
      if (!inputs[i].defined() || !is_floating(inputs[i].dtype())) continue;
      // A node of its own above each input: the engine stops there, and with create_graph goes on from there
      // later.
      const Tensor source =
          create_graph && inputs[i].requires_grad() ? inputs[i] : inputs[i].detach().requires_grad_();
      points.back() = view(source, source.shape());
      wanted.push_back(i);
      sources.push_back(points.back());
    }
    const Tensors all = composition(points);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!gradients[i].defined() || !all[i].defined()) continue;
      outputs.push_back(all[i]);
      starts.push_back(to(gradients[i], all[i].dtype(), all[i].device()));
    }
  }
  Engine engine("vector_jacobian", {.create_graph = create_graph});
  for (const Tensor& source : sources) engine.capture(edge_to(source));
  engine.run(outputs, starts);
  Tensors result(inputs.size());
  for (size_t k = 0; k < wanted.size(); ++k) result[wanted[k]] = engine.captured(edge_to(sources[k]));
  return result;
}

}  // namespace mezzo
