#include "autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autograd/call.h"
#include "autograd/ops/check.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

namespace {

std::atomic<uint64_t> next_sequence{1};

/// What a dying node owned, which may be a chain of a million nodes.
struct Remains {
  PooledVector<Edge> edges;
  PooledVector<SavedTensor> saved;
  PooledVector<OutputInfo> outputs;  // their hooks may hold tensors
};

/// Nodes that die now, each owned by the one before. A node frees what it owned at once, which recurses; one
/// that dies too deep leaves it to the outermost, which goes on in a loop.
struct Dying {
  static constexpr int kMostDeep = 64;
  int depth = 0;
  PooledVector<Remains>* left = nullptr;
};
constinit thread_local Dying dying;

/// The node behind results of an op that can be differentiated once.
class RefusingNode final : public Node {
 public:
  explicit RefusingNode(std::string_view op) : op_(op) {}
  std::string_view name() const override { return op_; }
  Tensors backward(Inputs) override {
    fail(op_, "its gradient cannot be differentiated again", {}, "this op has a first derivative alone");
  }

 private:
  std::string_view op_;
};

/// x's memory and shape as a tensor without history.
Tensor without_history(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  return make_view(impl.storage, impl.offset, impl.shape, impl.strides, impl.dtype);
}

}  // namespace

Edge edge_to(const Tensor& x) {
  if (!x.defined()) return {};
  const TensorImpl& impl = *x.impl();
  if (impl.grad_fn) return {impl.grad_fn, impl.output_index, {}};
  if (impl.requires_grad) return {nullptr, 0, x};
  return {};
}

SavedTensor::SavedTensor(const Tensor& tensor) : data_(tensor) {
  if (!tensor.defined()) return;
  storage_ = tensor.impl()->storage;
  version_ = tensor.version();
}

SavedTensor::SavedTensor(const Tensor& output, const std::shared_ptr<Node>& maker, int index)
    : SavedTensor(without_history(output)) {
  maker_ = maker;
  output_index_ = index;
}

Tensor SavedTensor::unpack(std::string_view op) const {
  if (!data_.defined()) return {};
  if (data_.impl()->storage != storage_) {
    fail(op, "a tensor saved for backward was given other data since", {{"saved", data_}},
         "convert or move a module before forward, or after backward");
  }
  if (data_.version() != version_) {
    fail(op,
         text("a tensor saved for backward was changed in place: it is at version ", data_.version(),
              " but was saved at version ", version_),
         {{"saved", data_}}, "change a copy, or change it after backward");
  }
  if (output_index_ < 0 || !grad_enabled()) return data_;
  Tensor output = without_history(data_);
  output.impl()->grad_fn = maker_.lock();
  output.impl()->output_index = output_index_;
  return output;
}

Node::Node() : sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}

Node::~Node() {
  if (dying.depth == Dying::kMostDeep) {
    dying.left->push_back({std::move(edges), std::move(saved_), std::move(outputs)});
    return;
  }
  PooledVector<Remains> left;
  if (dying.depth++ == 0) dying.left = &left;
  edges.clear();
  saved_.clear();
  outputs.clear();
  while (!left.empty()) {
    const Remains next = std::move(left.back());
    left.pop_back();
  }
  --dying.depth;
}

void Node::release() {
  if (saved_.empty()) return;
  saved_.clear();
  released_ = true;
}

Tensor Node::saved(size_t i) const { return saved_[i].unpack(name()); }

OutputInfo Node::input_info(size_t input) const {
  const Edge& edge = edges[input];
  if (edge.node) return edge.node->outputs[static_cast<size_t>(edge.index)];
  return {edge.leaf.shape(), edge.leaf.dtype(), edge.leaf.device()};
}

void Saver::finish(Inputs outputs) {
  for (const Tensor& tensor : kept_) {
    const auto output = std::ranges::find_if(
        outputs, [&](const Tensor& x) { return tensor.defined() && tensor.impl() == x.impl(); });
    if (output == outputs.end())
      node_->keep(SavedTensor(tensor));
    else
      node_->keep(SavedTensor(tensor, node_, static_cast<int>(output - outputs.begin())));
  }
}

bool wants_record(Inputs inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& x : inputs) {
    if (x.defined() && x.requires_grad()) return true;
  }
  return false;
}

void check_inputs(std::string_view op, Inputs inputs, bool mixes_numbers) {
  if (!inputs.empty() && !inputs[0].defined()) fail(op, "its first operand is undefined");
  const auto mixes = [&](const Tensor& x) { return mixes_numbers && ops::is_cpu_scalar(x); };
  const auto apart = [](const Tensor& a, const Tensor& b) {
    return a.impl()->storage->device() != b.impl()->storage->device();
  };
  const Tensor* first = nullptr;
  for (const Tensor& x : inputs) {
    if (!x.defined() || x.impl()->is_number) continue;
    if (!first || (apart(x, *first) && mixes(*first))) {
      first = &x;
    } else if (apart(x, *first) && !mixes(x)) {
      fail(op, text("tensors are on ", to_string(first->device()), " and on ", to_string(x.device())),
           {{"one", *first}, {"other", x}}, "move them to one device with to(device)");
    }
    check_history(op, x);
  }
}

void fail_on_device(std::string_view op, Inputs inputs, const DeviceError& error) {
  const Tensor none;
  fail(op, error.what(), {{"input", inputs.empty() ? none : inputs[0]}},
       "kernels run on after an op returns: MEZZO_CUDA_SYNCHRONIZE=1 in the environment tells which op it "
       "was");
}

void check_history(std::string_view op, const Tensor& x) {
  if (x.impl()->is_view && grad_enabled() && x.impl()->rebases != x.impl()->storage->rebases()) {
    fail(
        op,
        "an input is a view of a tensor that was changed in place, in a recorded op, after the view was made",
        {{"view", x}}, "make the view again after the change");
  }
}

void connect(Node& node, Inputs inputs) {
  node.edges.reserve(inputs.size());
  for (const Tensor& x : inputs) node.edges.push_back(edge_to(x));
}

void separate(Tensor& output, Inputs inputs) {
  for (const Tensor& x : inputs) {
    if (x.impl() == output.impl()) output = output.detach();
  }
}

void attach(std::shared_ptr<Node> node, const Tensor& output) {
  TensorImpl& impl = *output.impl();
  const auto index = static_cast<int>(node->outputs.size());
  node->outputs.push_back({impl.shape, impl.dtype, impl.storage->device()});
  OutputInfo& info = node->outputs.back();
  if (!is_floating(impl.dtype)) return;  // such an output carries no gradient
  if (impl.grad_fn) {  // changed in place: it keeps the new gradient; hooks saw the old value and stay there
    auto& before = impl.grad_fn->outputs[static_cast<size_t>(impl.output_index)].retains;
    info.retains = std::exchange(before, {});
  }
  impl.grad_fn = std::move(node);
  impl.output_index = index;
}

void refuse_second_derivative(std::string_view op, Tensors& results) {
  const auto refusing = make_pooled<RefusingNode>(op);
  for (Tensor& result : results) {
    if (!result.defined()) continue;
    result = without_history(result);
    attach(refusing, result);
  }
}

}  // namespace mezzo
