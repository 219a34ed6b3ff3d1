// Autocast: ops inside the guard run in 16 bits where that is safe and pays, without a change to the model.
//
//   Tensor loss;
//   {
//     amp::Autocast autocast(device);
//     loss = mse_loss(net(inputs), targets);
//   }
//   loss.backward();
//
// As in PyTorch: the lists of ops (amp/autocast_tables.h), which inputs are cast, nesting, threads (a new one
// starts without autocast). In-place ops are not touched, nor is a dtype that the caller gives. Other on
// purpose:
// - a dtype that the device does not have, or a device that is not there, throws; PyTorch warns and goes on
// in float32
// - backward is never autocast, also inside the guard; PyTorch runs it as the guard says
// - the cast of a weight lives with the weight and its version (amp/weight_cast.h), so there is no cache to
// turn off
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "amp/autocast_tables.h"
#include "autograd/cast_hook.h"

namespace mezzo::amp {

/// Casts the inputs of ops on tensors of `device`, in this thread, as long as it lives. Guards nest: the
/// innermost counts, and one with `enabled` false gives ops their inputs as they are.
class [[nodiscard]] Autocast {
 public:
  /// `dtype`: float16 or bfloat16; if not given bfloat16, on CUDA float16. Throws Error if the device cannot.
  explicit Autocast(const Device& device, std::optional<DType> dtype = std::nullopt, bool enabled = true);
  Autocast(const Device& device, std::optional<DType> dtype, bool enabled, const AutocastTable& table);

 private:
  CastHookGuard guard_;
};

/// The table of a device type: cuda_table for CUDA, else cpu_table.
const AutocastTable& default_table(const Device& device);

/// How a device computes in a 16-bit dtype.
enum class Level : uint8_t { none, emulated, native };
struct Support {
  Level level;
  std::string why;
};
/// native: the processor multiplies in the dtype; emulated: values are stored in it and computed in float32.
Support support(const Device& device, DType dtype);

/// Name of a policy: "low".
std::string_view name_of(Policy policy);
/// The ops of a device's table by policy.
void print_table(const Device& device, std::ostream& out);
void print_table(const Device& device);

}  // namespace mezzo::amp
