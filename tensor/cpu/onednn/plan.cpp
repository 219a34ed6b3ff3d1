#include "tensor/cpu/onednn/plan.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu_check.h"

namespace mezzo::cpu::onednn {
namespace {

constexpr size_t kAlignment = 64;
// Plans that a thread keeps before it drops all. A model has a few for each of its layers; making one again
// is cheap, since oneDNN caches the generated code itself, for all threads.
constexpr size_t kMaxPlans = 1024;

struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (const int64_t value : key.values()) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

using Plans = std::unordered_map<Key, Plan, Hash>;

Plans& plans() {
  thread_local Plans instance;
  return instance;
}

bool has_isa(dnnl_cpu_isa_t isa) {
  static const int effective = static_cast<int>(dnnl::get_effective_cpu_isa());
  return (effective & isa) == isa;
}

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Key::Key(int64_t operation) {
  add(operation);
  add(num_threads());
}

Key& Key::add(int64_t value) {
  values_[size_++] = value;
  return *this;
}

Key& Key::add(const View& view) {
  if (!view.given()) return add(-1);
  add(static_cast<int64_t>(view.dtype)).add(view.shape.dim());
  for (int d = 0; d < view.shape.dim(); ++d) add(view.shape[d]).add(view.strides[d]);
  return *this;
}

bool Key::operator==(const Key& other) const { return std::ranges::equal(values(), other.values()); }

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

const dnnl::stream& stream() {
  thread_local const dnnl::stream instance(engine());
  return instance;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr result;
  result.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  result.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return result;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc describe(const View& view) {
  return {dnnl::memory::dims(view.shape.begin(), view.shape.end()), type_of(view.dtype),
          dnnl::memory::dims(view.strides.begin(), view.strides.end())};
}

dnnl::memory::desc any_layout(const dnnl::memory::desc& desc) {
  return {desc.dims(), desc.data_type(), dnnl::memory::format_tag::any};
}

std::string_view bfloat16_unit() {
  // From Sapphire Rapids on, vdpbf16ps takes Intel's processors as long as four products of vectors of
  // float32, which do twice its work; they have AMX for it, which a virtual machine may hide.
  static const bool slow = __builtin_cpu_is("intel") && cpu_has("avx512fp16");
  if (has_tiles(DType::bfloat16)) return "AMX";
  return has_isa(dnnl_cpu_isa_avx512_core_bf16) && !slow ? "AVX512_BF16" : "";
}

bool multiplies(DType dtype, int64_t rows) {
  constexpr int64_t kFewRows = 8;
  if (dtype != DType::bfloat16) return dtype == DType::float32;
  return rows <= kFewRows ? has_isa(dnnl_cpu_isa_avx512_core) : !bfloat16_unit().empty();
}

bool has_tiles(DType dtype) { return dtype == DType::bfloat16 && has_isa(dnnl_cpu_isa_avx512_core_amx); }

Plan* find_plan(const Key& key) {
  const auto found = plans().find(key);
  return found == plans().end() ? nullptr : &found->second;
}

Plan* keep_plan(const Key& key, Plan plan) {
  if (plans().size() >= kMaxPlans) plans().clear();
  return &plans().insert_or_assign(key, std::move(plan)).first->second;
}

dnnl::memory Plan::add_given(const dnnl::memory::desc& desc) {
  return given_.emplace_back(desc.is_zero() ? dnnl::memory() : dnnl::memory(desc, engine(), nullptr));
}

dnnl::memory Plan::add_inside(const dnnl::memory::desc& desc) {
  const size_t offset = std::exchange(bytes_, bytes_ + round_up(desc.get_size()));
  return inside_.emplace_back(Inside{{desc, engine(), nullptr}, offset}).memory;
}

Plan::Step Plan::reorder(const dnnl::memory& from, const dnnl::memory& to) {
  const dnnl::reorder::primitive_desc desc(engine(), from.get_desc(), engine(), to.get_desc(), attributes());
  Step step{dnnl::reorder(desc)};
  step.add(DNNL_ARG_FROM, from);
  step.add(DNNL_ARG_TO, to);
  step.add(DNNL_ARG_SCRATCHPAD, add_inside(desc.scratchpad_desc()));
  return step;
}

void Plan::assemble(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                    std::initializer_list<Slot> inputs, std::initializer_list<Slot> outputs) {
  Step product{primitive};
  product.add(DNNL_ARG_SCRATCHPAD, add_inside(scratchpad));
  std::vector<Step> after;
  for (const Slot& slot : inputs) {
    const dnnl::memory given = add_given(slot.given);
    if (slot.given.is_zero()) continue;
    const bool moves = slot.given != slot.wanted;
    const dnnl::memory wanted = moves ? add_inside(slot.wanted) : given;
    if (moves) steps_.push_back(reorder(given, wanted));
    product.add(slot.argument, wanted);
  }
  for (const Slot& slot : outputs) {
    const dnnl::memory given = add_given(slot.given);
    const bool moves = slot.given != slot.wanted;
    const dnnl::memory wanted = moves ? add_inside(slot.wanted) : given;
    if (moves) after.push_back(reorder(wanted, given));
    product.add(slot.argument, wanted);
  }
  steps_.push_back(std::move(product));
  std::ranges::move(after, std::back_inserter(steps_));
  // Large ones in powers of four, so that the layers of a network share blocks of the cache.
  size_t shared = size_t{4} << 20;
  while (shared < bytes_) shared *= 4;
  if (bytes_ > shared / 4) bytes_ = shared;
}

void Plan::Step::run() const {
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream().get(),
                                                 static_cast<int>(arguments.size()), arguments.data()),
                          "could not execute a primitive");
}

void Plan::run(std::initializer_list<void*> data) {
  const Scratch scratch(bytes_);
  for (size_t i = 0; i < given_.size(); ++i) {
    if (given_[i]) given_[i].set_data_handle(data.begin()[i]);
  }
  for (const Inside& inside : inside_) inside.memory.set_data_handle(scratch.as<std::byte>() + inside.offset);
  for (const Step& step : steps_) step.run();
}

}  // namespace mezzo::cpu::onednn
