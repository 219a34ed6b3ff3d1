// oneDNN primitives, made once for each set of shapes and layouts.
#pragma once

#include <array>
#include <dnnl.hpp>
#include <initializer_list>
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

/// A primitive, the reorders around it, and the scratch memory that they need, of which it holds none itself.
/// Ready to run but for the addresses: to make oneDNN's memory objects takes longer than a small product.
/// Hence a plan is one thread's.
class Plan {
 public:
  template <class PrimitiveDesc>
  Plan(const PrimitiveDesc& desc, const dnnl::primitive& primitive, std::initializer_list<Slot> inputs,
       std::initializer_list<Slot> outputs) {
    assemble(primitive, desc.scratchpad_desc(), inputs, outputs);
  }

  size_t scratch_bytes() const { return bytes_; }
  /// Runs on the memory of the inputs, then outputs, in the order of the constructor.
  void run(std::initializer_list<void*> data);

 private:
  /// A primitive and what it runs on.
  struct Step {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> arguments{};

    void add(int argument, const dnnl::memory& memory) { arguments.push_back({argument, memory.get()}); }
    void run() const;
  };
  /// Something in the scratch memory.
  struct Inside {
    dnnl::memory memory;
    size_t offset;
  };

  void assemble(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                std::initializer_list<Slot> inputs, std::initializer_list<Slot> outputs);
  dnnl::memory add_given(const dnnl::memory::desc& desc);
  dnnl::memory add_inside(const dnnl::memory::desc& desc);
  Step reorder(const dnnl::memory& from, const dnnl::memory& to);

  std::vector<dnnl::memory> given_;  ///< operands; empty where one is not given
  std::vector<Inside> inside_;
  std::vector<Step> steps_;  ///< reorders of inputs, the primitive, reorders of outputs
  size_t bytes_ = 0;         ///< of scratch memory
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

Plan* find_plan(const Key& key);
Plan* keep_plan(const Key& key, Plan plan);

/// This thread's plan of `key`, made by `make()` if it is not there yet; good until the next one is made.
template <class Make>
Plan* plan(const Key& key, Make&& make) {
  if (Plan* const found = find_plan(key)) return found;
  return keep_plan(key, make());
}

}  // namespace mezzo::cpu::onednn
