// What autocast did: for every op that ran inside a guard, the dtypes that came, the policy, the dtypes that
// went on.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "amp/autocast_tables.h"
#include "autograd/node.h"

namespace mezzo::amp {

/// Records the ops of this thread that run inside guards as long as it lives; the innermost of several
/// records.
class Trace {
 public:
  struct Entry {
    OpId op;
    std::vector<std::string> came;  ///< dtypes of the inputs, "-" for one that is not given
    Policy policy;
    std::vector<std::string> went;  ///< dtypes that the op got
    int64_t count;
  };

  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// In the order in which each kind of call was first seen.
  const std::vector<Entry>& entries() const { return entries_; }
  /// As a table.
  std::string to_string() const;

  /// Adds a call to the innermost trace of this thread, if there is one.
  static void record(OpId op, Inputs came, Policy policy, Inputs went);

 private:
  std::vector<Entry> entries_;
  Trace* outer_;
};

std::ostream& operator<<(std::ostream& out, const Trace& trace);

}  // namespace mezzo::amp
