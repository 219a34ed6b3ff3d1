// cuDNN's graph API: its descriptors as objects, and plans to run a graph of operations. A plan needs the
// description of a device, not a device, so what cuDNN can do is testable on any machine.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace mezzo::cuda {

/// The tag by which cuDNN knows a C++ type of attributes.
template <class T>
inline constexpr cudnnBackendAttributeType_t attribute_type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
inline constexpr auto attribute_type<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto attribute_type<int32_t> = CUDNN_TYPE_INT32;
template <>
inline constexpr auto attribute_type<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto attribute_type<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto attribute_type<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr auto attribute_type<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto attribute_type<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto attribute_type<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto attribute_type<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto attribute_type<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;

/// A descriptor: first its attributes are set, then finalize() makes it fit for use in others.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, T value) {
    return set_values(name, attribute_type<T>, 1, &value);
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return set_values(name, attribute_type<T>, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) { return set(name, {&other}); }
  Descriptor& set(cudnnBackendAttributeName_t name, std::initializer_list<const Descriptor*> others);
  /// Throws Error if cuDNN takes the attributes for wrong.
  Descriptor&& finalize();
  /// False if cuDNN does not support them; throws Error if they are wrong.
  bool is_supported();
  /// False if anything stands against it, on this device too.
  bool try_finalize() { return cudnnBackendFinalize(raw_) == CUDNN_STATUS_SUCCESS; }

  /// Reads at most `most` values of the attribute and returns how many it has; 0 if cuDNN knows none.
  template <class T>
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values,
              int64_t most) const {
    int64_t count = 0;
    const auto status = cudnnBackendGetAttribute(raw_, name, type, most, &count, values);
    return status == CUDNN_STATUS_SUCCESS ? count : 0;
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  Descriptor& set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                         const void* values);

  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// The description of a device of this machine, or of any by what cuDNN has printed of it as JSON.
Descriptor describe_device(int device);
Descriptor describe_device(const std::string& json);

cudnnDataType_t dnn_dtype(DType dtype);

/// A tensor of a graph, known by its id; one that is `inner` exists only between operations, in no memory.
/// Memory of the others begins at a multiple of 16 bytes.
Descriptor describe_tensor(int64_t id, DType dtype, const Shape& shape, const Shape& strides,
                           bool inner = false);

/// What engines may do beside multiplying and adding in the type that a graph asks for.
struct EngineRules {
  bool tensor_cores = true;      ///< which round float32 to TF32
  bool narrow_operands = false;  ///< or sums: those of float32 to 16 bits, sums of 16-bit values to 16 bits
};

/// An engine of cuDNN, set up to run one graph on one kind of device.
class DnnPlan {
 public:
  /// That for the graph of `operations` which cuDNN expects to be fastest, among the engines that keep the
  /// rules and that need no compiler at run time; those that give the same bits in every run come first.
  /// None if there is none.
  static std::optional<DnnPlan> find(std::initializer_list<const Descriptor*> operations,
                                     const Descriptor& device, const EngineRules& rules);

  size_t workspace_size() const { return workspace_size_; }
  int64_t engine() const { return engine_; }  ///< its number in cuDNN
  bool is_deterministic() const { return deterministic_; }

  /// Runs on the handle's stream, with memory for the tensors of these ids.
  void execute(cudnnHandle_t handle, std::span<const int64_t> ids, std::span<void* const> memory,
               void* workspace) const;

 private:
  DnnPlan() : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {}

  Descriptor plan_;
  size_t workspace_size_ = 0;
  int64_t engine_ = -1;
  bool deterministic_ = true;
};

}  // namespace mezzo::cuda
