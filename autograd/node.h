// One recorded op: what it read, what it saved, and how a gradient passes through it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "tensor/pool.h"
#include "tensor/tensor.h"

namespace mezzo {

using Tensors = PooledVector<Tensor>;

/// Tensors that a function takes: a list, an array, or `{a, b}`.
class Inputs : public std::span<const Tensor> {
 public:
  using std::span<const Tensor>::span;
  Inputs(std::span<const Tensor> tensors) : span(tensors) {}
  Inputs(std::initializer_list<Tensor> tensors) : span(tensors.begin(), tensors.size()) {}
};

/// Where a gradient goes: output `index` of `node`, or, without a node, into `leaf`'s grad. Neither: nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
  Tensor leaf;

  bool wanted() const { return node || leaf.defined(); }
};
/// The edge that leads to x.
Edge edge_to(const Tensor& x);

/// What the engine must know of an output to give it a gradient of its shape and dtype, or zeros.
struct OutputInfo {
  Shape shape;
  DType dtype = DType::float32;
  Device device;
  std::weak_ptr<TensorImpl> retains{};  ///< the output itself, if it asked to keep its gradient
  Hooks<TensorHook> hooks{};
};

/// A tensor kept for backward, with the version it had.
class SavedTensor {
 public:
  explicit SavedTensor(const Tensor& tensor);
  /// Output `index` of `maker`, kept without its history, which would be a cycle.
  SavedTensor(const Tensor& output, const std::shared_ptr<Node>& maker, int index);
  /// The tensor as it was; throws Error, which names the op, if its memory has changed since.
  Tensor unpack(std::string_view op) const;

 private:
  Tensor data_;
  std::shared_ptr<Storage> storage_;  ///< that data_ had: set_data may give it another
  uint32_t version_ = 0;
  std::weak_ptr<Node> maker_;  ///< of an output
  int output_index_ = -1;
};

class Node {
 public:
  Node();
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Public name of the op.
  virtual std::string_view name() const = 0;
  /// Gradients of the inputs from those of the outputs; undefined where there is none.
  virtual Tensors backward(Inputs grads) = 0;

  /// What was saved, in the order in which it was; throws Error if it was changed in place since.
  Tensor saved(size_t i) const;
  size_t saved_count() const { return saved_.size(); }
  /// Whether somebody wants the gradient of an input.
  bool needs(size_t input) const { return edges[input].wanted(); }
  /// Shape, dtype and device of an input whose gradient is wanted: they need not be saved.
  OutputInfo input_info(size_t input) const;
  void keep(SavedTensor tensor) { saved_.push_back(std::move(tensor)); }
  /// Frees what was saved. A later backward through this node throws; a node that saved nothing can run
  /// again.
  void release();
  bool released() const { return released_; }

  const uint64_t sequence;  ///< order of execution in this process: backward runs the highest first
  PooledVector<Edge> edges;
  PooledVector<OutputInfo> outputs;

 private:
  PooledVector<SavedTensor> saved_;
  bool released_ = false;
};

/// Gives gradients a history that throws, naming `op`, when they are differentiated.
void refuse_second_derivative(std::string_view op, Tensors& results);

}  // namespace mezzo
