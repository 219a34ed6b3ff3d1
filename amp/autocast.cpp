#include "amp/autocast.h"

#include <iostream>

#include "amp/trace.h"
#include "amp/weight_cast.h"
#include "autograd/ops.h"
#include "tensor/backend.h"
#include "tensor/cpu_check.h"

namespace mezzo::amp {

namespace {

class AutocastHook final : public CastHook {
 public:
  AutocastHook(Device::Type device, DType low, const AutocastTable& table)
      : device_(device), low_(low), table_(table) {}

  Tensors cast_inputs(OpId op, Inputs inputs, std::optional<DType>* dtype) const override {
    const Policy policy = table_[op];
    Tensors cast = apply(op, policy, inputs, dtype);
    Trace::record(op, inputs, policy, cast);
    return cast;
  }
  Tensors cast_inputs(Inputs inputs, DType dtype) const override {
    Tensors cast;
    for (const Tensor& x : inputs) cast.push_back(is_eligible(x) ? amp::cast(x, dtype) : x);
    return cast;
  }

 private:
  bool is_eligible(const Tensor& x) const {
    return x.defined() && x.device().type == device_ && is_floating(x.dtype()) && x.dtype() != float64;
  }

  Tensors apply(OpId op, Policy policy, Inputs inputs, std::optional<DType>* dtype) const {
    switch (policy) {
      case Policy::low:
        return cast_inputs(inputs, low_);
      case Policy::low_operands: {
        Tensors cast = cast_inputs(inputs.first(3), low_);
        cast.insert(cast.end(), inputs.begin() + 3, inputs.end());
        return cast;
      }
      case Policy::full:
        return cast_inputs(inputs, float32);
      case Policy::widest:
        return cast_inputs(inputs, widest(op, inputs));
      case Policy::full_dtype:
        if (!dtype)
          fail(info(op).name, "its policy is full_dtype, but it has no option dtype", {}, "use full");
        if (!*dtype && is_eligible(inputs[0])) *dtype = float32;
        break;
      case Policy::banned:
        fail(info(op).name, "is unsafe under autocast: its gradient may need values that float16 has not",
             {{"input", inputs[0]}}, "use binary_cross_entropy_with_logits, or a guard with enabled = false");
      case Policy::keep:
        break;
    }
    return Tensors(inputs.begin(), inputs.end());
  }

  DType widest(OpId op, Inputs inputs) const {
    DType result = low_;
    for (const Tensor& x : inputs) {
      if (!is_eligible(x)) continue;
      if (x.dtype() == float32 || result == float32) {
        result = float32;
      } else if (x.dtype() != low_) {
        fail(info(op).name,
             text("takes the widest dtype, and neither of ", mezzo::name_of(low_), " and ",
                  mezzo::name_of(x.dtype()), " holds the other"),
             {{"input", x}},
             text("this guard's dtype is ", mezzo::name_of(low_), "; convert with to(float32)"));
      }
    }
    return result;
  }

  Device::Type device_;
  DType low_;
  AutocastTable table_;
};

std::shared_ptr<const CastHook> make_hook(const Device& device, std::optional<DType> dtype, bool enabled,
                                          const AutocastTable& table) {
  if (!enabled) return nullptr;
  const DType low = dtype.value_or(device.type == Device::Type::cuda ? float16 : bfloat16);
  if (const Support found = support(device, low); found.level == Level::none) {
    fail("Autocast", text("cannot use ", mezzo::name_of(low), " on ", to_string(device), ": ", found.why), {},
         low == bfloat16 ? "float16 with a GradScaler does the same work" : "");
  }
  return std::make_shared<AutocastHook>(device.type, low, table);
}

}  // namespace

Autocast::Autocast(const Device& device, std::optional<DType> dtype, bool enabled)
    : Autocast(device, dtype, enabled, default_table(device)) {}

Autocast::Autocast(const Device& device, std::optional<DType> dtype, bool enabled, const AutocastTable& table)
    : guard_(make_hook(device, dtype, enabled, table)) {}

const AutocastTable& default_table(const Device& device) {
  return device.type == Device::Type::cuda ? cuda_table : cpu_table;
}

Support support(const Device& device, DType dtype) {
  if (!is_half(dtype)) return {Level::none, "autocast takes float16 or bfloat16"};
  if (std::string absence = absence_of(device); !absence.empty()) return {Level::none, std::move(absence)};
  if (device.type == Device::Type::cuda) {
    const int capability = backend(device).capability(device.index);
    if (dtype == bfloat16 && capability < 80)
      return {Level::none,
              text("compute capability ", capability / 10, '.', capability % 10, " has no bfloat16")};
    return {Level::native, "tensor cores, sums in float32"};
  }
  if (device.type == Device::Type::reference)
    return {Level::emulated, "the naive kernels compute in float64"};
  if (const std::string_view unit = cpu::product_unit(dtype); !unit.empty())
    return {Level::native, std::string(unit)};
  return {Level::emulated, "values are stored in 16 bits and computed in float32"};
}

std::string_view name_of(Policy policy) {
  constexpr std::string_view names[] = {"keep",       "low",    "low_operands", "full",
                                        "full_dtype", "widest", "banned"};
  return names[static_cast<size_t>(policy)];
}

void print_table(const Device& device, std::ostream& out) {
  const AutocastTable& table = default_table(device);
  for (const Policy policy : {Policy::low, Policy::low_operands, Policy::full, Policy::full_dtype,
                              Policy::widest, Policy::banned, Policy::keep}) {
    std::string line = text(name_of(policy), ':');
    for (size_t i = 0; i < kOps; ++i) {
      const std::string_view op = info(static_cast<OpId>(i)).name;
      if (table[static_cast<OpId>(i)] != policy) continue;
      if (line.size() + 1 + op.size() > 110) {
        out << line << "\n";
        line = "   ";
      }
      line += text(' ', op);
    }
    if (line.find(' ') != std::string::npos) out << line << "\n";
  }
}

void print_table(const Device& device) { print_table(device, std::cout); }

}  // namespace mezzo::amp
