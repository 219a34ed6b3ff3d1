// oneDNN primitives, made once for each set of shapes and layouts.
#pragma once

#include <array>
#include <dnnl.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/kernels.h"

namespace mezzo::cpu::onednn {

/// Whether this processor has matrix tiles for the dtype, which oneDNN uses for some of its products alone.
bool has_tiles(DType dtype);

/// What determines a plan: an id of the operation, then views and numbers, as one array of integers.
class Key {
 public:
  /// Adds the number of threads too, which is fixed in a primitive when it is made.
  explicit Key(int64_t operation);

  Key& add(int64_t value);
  /// dtype, shape and strides; not the address.
  Key& add(const View& view);

  std::span<const int64_t> values() const { return std::span(values_).first(size_); }
  bool operator==(const Key& other) const;

 private:
  std::array<int64_t, 80> values_;  // of which the first size_ are set
  size_t size_ = 0;
};

/// One operand of a primitive: as the caller has it, and as the primitive wants it; both empty if it is not
/// given.
struct Slot {
  int argument;  ///< DNNL_ARG_...
  dnnl::memory::desc given, wanted;
};

/// A primitive, the reorders around it, and the scratch memory that they need. It holds no memory itself, so
/// threads share it.
class Plan {
 public:
  template <class PrimitiveDesc>
  Plan(const PrimitiveDesc& desc, const dnnl::primitive& primitive, std::initializer_list<Slot> inputs,
       std::initializer_list<Slot> outputs)
      : primitive_(primitive), scratchpad_(desc.scratchpad_desc()) {
    for (const Slot& slot : inputs) add(slot, false);
    for (const Slot& slot : outputs) add(slot, true);
  }

  /// Runs on the memory of the inputs, then outputs, in the order of the constructor.
  void run(std::initializer_list<void*> data) const;

 private:
  struct Operand {
    Slot slot;
    bool is_output;
    std::optional<dnnl::reorder> reorder;  // between given and wanted, where they differ
    dnnl::memory::desc reorder_scratchpad;
    size_t offset;  // of the wanted form in the scratch memory
  };

  void add(const Slot& slot, bool is_output);

  dnnl::primitive primitive_;
  dnnl::memory::desc scratchpad_;
  std::vector<Operand> operands_;
  size_t scratchpad_bytes_ = 0, bytes_ = 0;
};

const dnnl::engine& engine();
/// This thread's.
const dnnl::stream& stream();
/// Scratch memory from the caller and float32 sums of unrounded float32 products, whatever the environment
/// says.
dnnl::primitive_attr attributes();
dnnl::memory::data_type type_of(DType dtype);
/// Descriptor of `view` as its strides say.
dnnl::memory::desc describe(const View& view);
/// The same shape and dtype in a layout of oneDNN's choice.
dnnl::memory::desc any_layout(const dnnl::memory::desc& desc);

std::shared_ptr<const Plan> find_plan(const Key& key);
std::shared_ptr<const Plan> keep_plan(const Key& key, Plan plan);

/// The plan of `key`, made by `make()` if it is not there yet.
template <class Make>
std::shared_ptr<const Plan> plan(const Key& key, Make&& make) {
  if (auto found = find_plan(key)) return found;
  return keep_plan(key, make());
}

}  // namespace mezzo::cpu::onednn
