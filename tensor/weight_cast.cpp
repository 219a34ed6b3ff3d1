#include "tensor/weight_cast.h"

#include <mutex>

#include "tensor/backend.h"
#include "tensor/tensor_impl.h"

namespace mezzo {

/// Data alone, without history.
struct WeightCast {
  Tensor data;
  uint32_t version;  ///< of the weight's memory when it was made
  uint64_t capture;  ///< in which it was made: a graph's memory holds nothing before its replay, and a graph
                     ///< must make its own. 0: in none.
};

namespace {

/// Guards the `cast` of every tensor: it is held for a comparison, not while casting.
std::mutex casts_mutex;

/// Under the mutex.
bool is_current(const Tensor& weight) {
  const auto& cast = weight.impl()->cast;
  return cast && cast->version == weight.version() && cast->capture == capture_on(weight.device());
}

}  // namespace

Tensor kept_cast(const Tensor& weight, DType dtype) {
  const std::lock_guard lock(casts_mutex);
  if (!is_current(weight) || weight.impl()->cast->data.dtype() != dtype) return {};
  return weight.impl()->cast->data;
}

void keep_cast(const Tensor& weight, const Tensor& data) {
  auto cast =
      std::make_shared<const WeightCast>(WeightCast{data, weight.version(), capture_on(weight.device())});
  const std::lock_guard lock(casts_mutex);
  weight.impl()->cast.swap(cast);
}

Tensor cast_to_write(const Tensor& weight) {
  const std::lock_guard lock(casts_mutex);
  if (!is_current(weight) || is_capturing(weight.device())) return {};
  const WeightCast& cast = *weight.impl()->cast;
  const bool fits = is_sole_owner(cast.data) && cast.data.strides() == weight.strides();
  return fits ? cast.data : Tensor();
}

}  // namespace mezzo
