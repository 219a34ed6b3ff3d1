// cuDNN's backend descriptors: bags of attributes.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

using Sizes = std::vector<std::int64_t>;

/// What a finalised descriptor holds, kept alive by those that refer to it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) : type(type) {}

  const cudnnBackendDescriptorType_t type;
  bool finalised = false;

  /// Bytes per element of an attribute of this type.
  static std::size_t element_bytes(cudnnBackendAttributeType_t type);

  void set(int name, cudnnBackendAttributeType_t type, const void* elements, std::size_t count);
  void link(int name, std::vector<std::shared_ptr<Descriptor>> descriptors);

  bool has(int name) const { return values_.count(name) != 0 || links_.count(name) != 0; }
  /// All elements, none if the attribute is not set.
  template <class T>
  std::vector<T> all(int name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return {};
    std::vector<T> elements(found->second.bytes.size() / sizeof(T));
    std::memcpy(static_cast<void*>(elements.data()), found->second.bytes.data(), elements.size() * sizeof(T));
    return elements;
  }
  template <class T>
  T get(int name, T otherwise = {}) const {
    const auto elements = all<T>(name);
    return elements.empty() ? otherwise : elements.front();
  }
  Sizes sizes(int name) const { return all<std::int64_t>(name); }
  /// Of an attribute that may be float or double.
  double number(int name, double otherwise) const;

  /// The descriptors that an attribute refers to, and the first of them, null if there is none.
  const std::vector<std::shared_ptr<Descriptor>>& links(int name) const;
  const Descriptor* linked(int name) const;

 private:
  struct Value {
    cudnnBackendAttributeType_t type{};
    std::vector<char> bytes;
  };
  std::map<int, Value> values_;
  std::map<int, std::vector<std::shared_ptr<Descriptor>>> links_;
};

/// What is wrong with a descriptor that is to be finalised; "" if nothing is.
std::string problem_of(const Descriptor& descriptor);

}  // namespace emulator
