#include "tests/emulator/cudnn_descriptor.h"

#include <algorithm>

#include "tests/emulator/cudnn_operation.h"

namespace emulator {

std::size_t Descriptor::element_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_FRACTION:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // float, int32 and enumerations
  }
}

void Descriptor::set(int name, cudnnBackendAttributeType_t type, const void* elements, std::size_t count) {
  const auto* const begin = static_cast<const char*>(elements);
  values_[name] = {type, {begin, begin + count * element_bytes(type)}};
}

void Descriptor::link(int name, std::vector<std::shared_ptr<Descriptor>> descriptors) {
  links_[name] = std::move(descriptors);
}

double Descriptor::number(int name, double otherwise) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return otherwise;
  if (found->second.type == CUDNN_TYPE_DOUBLE) return get<double>(name);
  return static_cast<double>(get<float>(name));
}

const std::vector<std::shared_ptr<Descriptor>>& Descriptor::links(int name) const {
  static const std::vector<std::shared_ptr<Descriptor>> none;
  const auto found = links_.find(name);
  return found != links_.end() ? found->second : none;
}

const Descriptor* Descriptor::linked(int name) const {
  const auto& all = links(name);
  return all.empty() ? nullptr : all.front().get();
}

namespace {

std::string problem_of_tensor(const Descriptor& tensor) {
  const Sizes dimensions = tensor.sizes(CUDNN_ATTR_TENSOR_DIMENSIONS);
  if (dimensions.empty() || dimensions.size() != tensor.sizes(CUDNN_ATTR_TENSOR_STRIDES).size()) {
    return "a tensor needs as many strides as dimensions";
  }
  if (*std::min_element(dimensions.begin(), dimensions.end()) < 1)
    return "a dimension of a tensor is not positive";
  for (const auto name :
       {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT}) {
    if (!tensor.has(name)) return "a tensor needs a unique id, a data type and an alignment";
  }
  if (tensor.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) < 1)
    return "the alignment of a tensor is not positive";
  return "";
}

std::string problem_of_convolution_parameters(const Descriptor& parameters) {
  const auto dimensions =
      static_cast<std::size_t>(parameters.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                          CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
    if (parameters.sizes(name).size() != dimensions) {
      return "a convolution needs paddings, strides and dilations for each of its dimensions";
    }
  }
  if (!parameters.has(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) ||
      !parameters.has(CUDNN_ATTR_CONVOLUTION_CONV_MODE)) {
    return "a convolution needs a compute type and a mode";
  }
  return "";
}

}  // namespace

std::string problem_of(const Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return problem_of_tensor(descriptor);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return problem_of_convolution_parameters(descriptor);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return descriptor.has(CUDNN_ATTR_POINTWISE_MODE) ? "" : "a pointwise descriptor needs a mode";
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return descriptor.linked(CUDNN_ATTR_OPERATIONGRAPH_OPS) ? "" : "a graph needs operations";
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return descriptor.linked(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) &&
                     descriptor.has(CUDNN_ATTR_ENGINEHEUR_MODE)
                 ? ""
                 : "heuristics need a graph and a mode";
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return descriptor.linked(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                 ? ""
                 : "a plan needs an engine configuration";
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return descriptor.sizes(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() ==
                     descriptor.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()
                 ? ""
                 : "a variant pack needs as many pointers as ids";
    default:
      return problem_of_operation(descriptor);
  }
}

}  // namespace emulator
