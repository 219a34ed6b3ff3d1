// cuDNN: handles, and the graph API. A plan interprets its operations; sums are double and rounded once a
// tensor.
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/emulator/cudnn_descriptor.h"
#include "tests/emulator/cudnn_operation.h"
#include "tests/emulator/diagnosis.h"
#include "tests/emulator/errors.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/runtime.h"
#include "tests/emulator/streams.h"

using namespace emulator;

/// What a cudnnHandle_t points to.
struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace {

/// What every plan asks for, and fills with garbage.
constexpr std::int64_t kWorkspaceBytes = 4096;

constinit thread_local char last_message[256] = "";

cudnnStatus_t refuse_call(cudnnStatus_t status, const std::string& reason) {
  print("cuDNN: " + reason);
  std::snprintf(last_message, sizeof last_message, "%s", reason.c_str());
  return status;
}

/// What a cudnnBackendDescriptor_t points to.
using Reference = std::shared_ptr<Descriptor>;
Reference& referred(cudnnBackendDescriptor_t descriptor) { return *static_cast<Reference*>(descriptor); }

const std::vector<Reference>& operations_of(const Descriptor& graph) {
  return graph.links(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

bool supported_graph(const Descriptor& graph) {
  const auto& operations = operations_of(graph);
  return std::all_of(operations.begin(), operations.end(),
                     [](const Reference& one) { return supported(*one); });
}

/// A tensor of the graph, and its memory.
struct Bound {
  TensorLayout layout;
  void* memory;
};

/// Executes a graph once it is its turn in the stream.
class Execution {
 public:
  Execution(Reference graph, void* workspace) : graph_(std::move(graph)), workspace_(workspace) {}

  /// Finds the memory of all tensors; "" or what is wrong.
  std::string bind(const Descriptor& pack, int device) {
    const Sizes ids = pack.sizes(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (const Reference& operation : operations_of(*graph_)) {
      std::vector<const Descriptor*> tensors = inputs_of(*operation);
      tensors.push_back(output_of(*operation));
      for (const Descriptor* const tensor : tensors) {
        const TensorLayout layout(*tensor);
        if (layout.is_virtual) continue;
        const auto found = std::find(ids.begin(), ids.end(), layout.id);
        const std::string name = "tensor " + std::to_string(layout.id);
        if (found == ids.end()) return name + " has no memory in the variant pack";
        void* const memory = pointers[static_cast<std::size_t>(found - ids.begin())];
        if (!holds(device, memory, layout.bytes()))
          return name + " is not inside one allocation of the device";
        if (reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(layout.alignment)) {
          return name + " is not aligned as its descriptor says";
        }
        bound_.insert_or_assign(layout.id, Bound{layout, memory});
      }
    }
    return "";
  }

  void operator()() const {
    std::memset(workspace_, 0xff, kWorkspaceBytes);
    Values values;
    const auto load = [&](const Descriptor& tensor) {
      const auto found = bound_.find(TensorLayout(tensor).id);
      if (found != bound_.end() && !values.count(found->first)) {
        values[found->first] = found->second.layout.load(found->second.memory);
      }
    };
    for (const Reference& operation : operations_of(*graph_)) {
      for (const Descriptor* const input : inputs_of(*operation)) load(*input);
      const Descriptor& output = *output_of(*operation);
      if (adds_to_output(*operation)) load(output);
      run_operation(*operation, values);
      const auto target = bound_.find(TensorLayout(output).id);
      if (target != bound_.end()) target->second.layout.store(target->second.memory, values[target->first]);
    }
  }

 private:
  Reference graph_;
  void* workspace_;
  std::map<std::int64_t, Bound> bound_;
};

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetMaxDeviceVersion() { return 1200; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_STATUS of another kind";
  }
}

void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (bytes) std::snprintf(message, bytes, "%s", last_message);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{current_device(), nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const auto found = find_stream(stream);
  if (!found || found->device != handle->device) {
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "the stream is not one of the handle's device");
  }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Reference(std::make_shared<Descriptor>(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Reference*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  Descriptor& target = *referred(descriptor);
  if (target.finalised)
    return refuse_call(CUDNN_STATUS_NOT_INITIALIZED, "an attribute is set after finalising");
  if (count < 0 || (count > 0 && !elements))
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "an attribute without elements");
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    target.set(name, type, elements, static_cast<std::size_t>(count));
    return CUDNN_STATUS_SUCCESS;
  }
  std::vector<Reference> linked;
  for (int64_t i = 0; i < count; ++i) {
    linked.push_back(referred(static_cast<const cudnnBackendDescriptor_t*>(elements)[i]));
    if (!linked.back()->finalised) {
      return refuse_call(CUDNN_STATUS_BAD_PARAM, "an attribute is a descriptor that is not finalised");
    }
  }
  target.link(name, std::move(linked));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& target = *referred(descriptor);
  const std::string problem = problem_of(target);
  if (!problem.empty()) return refuse_call(CUDNN_STATUS_BAD_PARAM, problem);
  target.finalised = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
                                       void* elements) {
  const Descriptor& source = *referred(descriptor);
  if (!source.finalised)
    return refuse_call(CUDNN_STATUS_NOT_INITIALIZED, "an attribute is asked for before finalising");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {  // one engine for what is supported
    const Reference& graph = source.links(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).front();
    const bool found = supported_graph(*graph);
    if (count) *count = found ? 1 : 0;
    if (found && wanted > 0 && elements) {
      Descriptor& configuration = *referred(static_cast<cudnnBackendDescriptor_t*>(elements)[0]);
      configuration.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
      configuration.finalised = true;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    if (count) *count = 1;
    if (wanted > 0 && elements) std::memcpy(elements, &kWorkspaceBytes, sizeof kWorkspaceBytes);
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {  // it has no number and no notes
    if (count) *count = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  return refuse_call(CUDNN_STATUS_NOT_SUPPORTED, "the emulator does not tell this attribute");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const std::lock_guard lock(runtime_mutex());
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  const Descriptor &plan_held = *referred(plan), &pack_held = *referred(pack);
  if (!plan_held.finalised || !pack_held.finalised) {
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "a plan or variant pack is executed before finalising");
  }
  if (handle->device != current_device()) {
    return refuse_call(CUDNN_STATUS_EXECUTION_FAILED,
                       "the handle belongs to another device than the current one");
  }
  void* const workspace = pack_held.get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (!holds(handle->device, workspace, kWorkspaceBytes)) {
    return refuse_call(CUDNN_STATUS_BAD_PARAM, "the workspace is no memory of the device or too small");
  }
  const Descriptor& configuration = *plan_held.linked(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  Execution execution(configuration.links(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).front(), workspace);
  const std::string problem = execution.bind(pack_held, handle->device);
  if (!problem.empty()) {
    device_error(cudaErrorIllegalAddress, "cuDNN: " + problem);
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  return enqueue(handle->stream, std::move(execution)) == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                                                      : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
