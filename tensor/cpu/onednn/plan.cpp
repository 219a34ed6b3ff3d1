#include "tensor/cpu/onednn/plan.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "tensor/cpu/onednn/products.h"
#include "tensor/cpu/parallel.h"
#include "tensor/cpu/scratch.h"

namespace mezzo::cpu::onednn {
namespace {

constexpr size_t kAlignment = 64;
// Plans kept before all are dropped. A model has a few for each of its layers; making one again is cheap,
// since oneDNN caches the generated code itself.
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

struct Plans {
  std::mutex mutex;
  std::unordered_map<Key, std::shared_ptr<const Plan>, Hash> by_key;
};

Plans& plans() {
  engine();  // made before the plans, so destroyed after them
  static Plans instance;
  return instance;
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

bool multiplies(DType dtype) {
  if (dtype != DType::bfloat16) return dtype == DType::float32;
  static const bool has_avx512 = (static_cast<int>(dnnl::get_effective_cpu_isa()) &
                                  dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return has_avx512;
}

bool multiplies_in_hardware(DType dtype) {
  static const bool has_bf16 = (static_cast<int>(dnnl::get_effective_cpu_isa()) &
                                dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
  return dtype == DType::float32 || (dtype == DType::bfloat16 && has_bf16);
}

bool has_tiles(DType dtype) {
  static const bool has_amx = (static_cast<int>(dnnl::get_effective_cpu_isa()) &
                               dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
  return dtype == DType::bfloat16 && has_amx;
}

std::shared_ptr<const Plan> find_plan(const Key& key) {
  std::lock_guard lock(plans().mutex);
  const auto found = plans().by_key.find(key);
  return found == plans().by_key.end() ? nullptr : found->second;
}

std::shared_ptr<const Plan> keep_plan(const Key& key, Plan plan) {
  auto kept = std::make_shared<const Plan>(std::move(plan));
  std::lock_guard lock(plans().mutex);
  if (plans().by_key.size() >= kMaxPlans) plans().by_key.clear();
  plans().by_key.insert_or_assign(key, kept);
  return kept;
}

void Plan::add(const Slot& slot, bool is_output) {
  Operand operand{slot, is_output, {}, {}, 0};
  if (slot.given != slot.wanted) {
    const auto& from = is_output ? slot.wanted : slot.given;
    const auto& to = is_output ? slot.given : slot.wanted;
    const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, attributes());
    operand.reorder = dnnl::reorder(desc);
    operand.reorder_scratchpad = desc.scratchpad_desc();
    operand.offset = bytes_;
    bytes_ += round_up(slot.wanted.get_size());
  }
  scratchpad_bytes_ =
      std::max({scratchpad_bytes_, scratchpad_.get_size(), operand.reorder_scratchpad.get_size()});
  operands_.push_back(std::move(operand));
}

void Plan::run(std::initializer_list<void*> data) const {
  const Scratch scratch(bytes_ + scratchpad_bytes_);
  const auto memory_at = [&](const dnnl::memory::desc& desc, size_t offset) {
    return dnnl::memory(desc, engine(), scratch.as<std::byte>() + offset);
  };
  const auto reorder = [&](const Operand& operand, const dnnl::memory& from, const dnnl::memory& to) {
    operand.reorder->execute(stream(),
                             {{DNNL_ARG_FROM, from},
                              {DNNL_ARG_TO, to},
                              {DNNL_ARG_SCRATCHPAD, memory_at(operand.reorder_scratchpad, bytes_)}});
  };
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SCRATCHPAD, memory_at(scratchpad_, bytes_)}};
  const auto given = [&](size_t i) {
    return dnnl::memory(operands_[i].slot.given, engine(), data.begin()[i]);
  };
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (operand.slot.given.is_zero()) continue;
    auto& argument = arguments[operand.slot.argument];
    argument = operand.reorder ? memory_at(operand.slot.wanted, operand.offset) : given(i);
    if (operand.reorder && !operand.is_output) reorder(operand, given(i), argument);
  }
  primitive_.execute(stream(), arguments);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (operand.reorder && operand.is_output) reorder(operand, arguments[operand.slot.argument], given(i));
  }
}

}  // namespace mezzo::cpu::onednn
