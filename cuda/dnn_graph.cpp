// Descriptors of cuDNN's graph API, and the choice of an engine among those that it proposes.
#include "cuda/dnn_graph.h"

#include <algorithm>
#include <array>
#include <bitset>

#include "cuda/check.h"

namespace mezzo::cuda {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &raw_), "making a descriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
}

Descriptor&& Descriptor::finalize() {
  check(cudnnBackendFinalize(raw_), "finalizing a descriptor");
  return std::move(*this);
}

bool Descriptor::is_supported() {
  const cudnnStatus_t status = cudnnBackendFinalize(raw_);
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check(status, "finalizing a descriptor");
  return true;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name,
                            std::initializer_list<const Descriptor*> others) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor* other : others) raw.push_back(other->raw_);
  return set_values(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}

Descriptor& Descriptor::set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                   int64_t count, const void* values) {
  check(cudnnBackendSetAttribute(raw_, name, type, count, values), "setting an attribute of a descriptor");
  return *this;
}

Descriptor describe_device(int device) {
  return Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
      .set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, int32_t{device})
      .finalize();
}

Descriptor describe_device(const std::string& json) {
  return Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json))
      .finalize();
}

cudnnDataType_t dnn_dtype(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return CUDNN_DATA_DOUBLE;
    case DType::float16:
      return CUDNN_DATA_HALF;
    case DType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

Descriptor describe_tensor(int64_t id, DType dtype, const Shape& shape, const Shape& strides, bool inner) {
  const auto values = [](const Shape& s) { return std::span<const int64_t>(s.begin(), s.end()); };
  return Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, dnn_dtype(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, values(shape))
      .set(CUDNN_ATTR_TENSOR_STRIDES, values(strides))
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, inner)
      .finalize();
}

namespace {

/// The engine of a configuration, and what cuDNN notes of it.
struct Engine {
  int64_t number = -1;
  std::bitset<CUDNN_NUMERICAL_NOTE_TYPE_COUNT> numerical;
  std::bitset<CUDNN_BEHAVIOR_NOTE_TYPE_COUNT> behavior;

  explicit Engine(const Descriptor& configuration) {
    const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.raw();
    if (configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1) == 0) return;
    engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &number, 1);
    read_notes<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                            CUDNN_TYPE_NUMERICAL_NOTE, numerical);
    read_notes<cudnnBackendBehaviorNote_t>(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                           behavior);
  }

  bool keeps(const EngineRules& rules) const {
    if (!rules.tensor_cores && numerical[CUDNN_NUMERICAL_NOTE_TENSOR_CORE]) return false;
    if (!rules.narrow_operands && (numerical[CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS] ||
                                   numerical[CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION]))
      return false;
    return !behavior[CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION];
  }
  bool is_deterministic() const { return !numerical[CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC]; }

 private:
  template <class Note, size_t n>
  static void read_notes(const Descriptor& engine, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, std::bitset<n>& result) {
    std::array<Note, n> notes{};
    const int64_t count = engine.get(name, type, notes.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < std::min(static_cast<size_t>(count), n); ++i) {
      const auto note = static_cast<size_t>(notes[i]);
      if (note < n) result.set(note);  // a later cuDNN may note more than this was compiled with
    }
  }
};

/// What cuDNN proposes for a graph, the fastest in front as its heuristic has it.
std::vector<Descriptor> proposals(const Descriptor& graph, const Descriptor& device,
                                  cudnnBackendHeurMode_t mode) {
  std::vector<Descriptor> configurations;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  if (!heuristic.try_finalize()) return configurations;  // it knows no engine for the graph
  const auto read = [&](cudnnBackendDescriptor_t* results, size_t most) {
    return static_cast<size_t>(heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             results, static_cast<int64_t>(most)));
  };
  std::vector<cudnnBackendDescriptor_t> raw(read(nullptr, 0));
  for (cudnnBackendDescriptor_t& descriptor : raw)
    descriptor = configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw();
  const size_t made = read(raw.data(), raw.size());
  while (configurations.size() > made) configurations.pop_back();
  return configurations;
}

}  // namespace

std::optional<DnnPlan> DnnPlan::find(std::initializer_list<const Descriptor*> operations,
                                     const Descriptor& device, const EngineRules& rules) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (!graph.is_supported()) return std::nullopt;
  for (const bool deterministic : {true, false})
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      for (const Descriptor& configuration : proposals(graph, device, mode)) {
        const Engine engine(configuration);
        if (!engine.keeps(rules) || engine.is_deterministic() != deterministic) continue;
        DnnPlan plan;
        plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
            .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
        if (!plan.plan_.try_finalize()) continue;
        int64_t bytes = 0;
        plan.plan_.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &bytes, 1);
        plan.workspace_size_ = static_cast<size_t>(bytes);
        plan.engine_ = engine.number;
        plan.deterministic_ = deterministic;
        return plan;
      }
  return std::nullopt;
}

void DnnPlan::execute(cudnnHandle_t handle, std::span<const int64_t> ids, std::span<void* const> memory,
                      void* workspace) const {
  const Descriptor pack = Descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
                              .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
                              .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, memory)
                              .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
                              .finalize();
  check(cudnnBackendExecute(handle, plan_.raw(), pack.raw()), "running a graph");
}

}  // namespace mezzo::cuda
