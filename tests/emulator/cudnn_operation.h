// The operations of a cuDNN graph that the emulator has: convolutions and some pointwise ones.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/emulator/cudnn_descriptor.h"
#include "tests/emulator/numeric.h"

namespace emulator {

/// A tensor of four dimensions as a graph declares it.
struct TensorLayout {
  std::int64_t id = 0;
  Type type{};
  std::array<std::int64_t, 4> dimensions{}, strides{};
  std::int64_t alignment = 1;
  bool is_virtual = false;  ///< it lives within the graph, without memory

  explicit TensorLayout(const Descriptor& tensor);

  std::int64_t elements() const;
  /// From the first byte to the last in memory.
  std::size_t bytes() const;
  /// All elements in the order of the dimensions, from memory and back. What is stored is rounded to the
  /// type.
  std::vector<double> load(const void* memory) const;
  void store(void* memory, const std::vector<double>& values) const;
  void round(std::vector<double>& values) const;
};

/// Values of a graph's tensors while it runs, by id, each in the order of its dimensions.
using Values = std::map<std::int64_t, std::vector<double>>;

/// What is wrong with the shapes of an operation; "" if nothing is.
std::string problem_of_operation(const Descriptor& operation);

/// Whether an engine exists for it on this card.
bool supported(const Descriptor& operation);

/// The tensors that an operation reads, and the one that it writes. It also reads what was there if it adds
/// to that.
std::vector<const Descriptor*> inputs_of(const Descriptor& operation);
const Descriptor* output_of(const Descriptor& operation);
bool adds_to_output(const Descriptor& operation);

void run_operation(const Descriptor& operation, Values& values);

}  // namespace emulator
