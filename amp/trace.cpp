#include "amp/trace.h"

#include <algorithm>
#include <ostream>

#include "amp/autocast.h"
#include "amp/text_table.h"

namespace mezzo::amp {

namespace {

thread_local Trace* innermost = nullptr;

std::vector<std::string> dtypes_of(Inputs tensors) {
  std::vector<std::string> dtypes;
  for (const Tensor& x : tensors) dtypes.emplace_back(x.defined() ? mezzo::name_of(x.dtype()) : "-");
  return dtypes;
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : ", ") + word;
  return line;
}

}  // namespace

Trace::Trace() : outer_(innermost) { innermost = this; }
Trace::~Trace() { innermost = outer_; }

void Trace::record(OpId op, Inputs came, Policy policy, Inputs went) {
  if (!innermost) return;
  Entry entry{op, dtypes_of(came), policy, dtypes_of(went), 1};
  auto& all = innermost->entries_;
  const auto same = std::ranges::find_if(all, [&](const Entry& other) {
    return other.op == op && other.policy == policy && other.came == entry.came && other.went == entry.went;
  });
  same == all.end() ? all.push_back(std::move(entry)) : void(++same->count);
}

std::string Trace::to_string() const {
  std::vector<std::vector<std::string>> rows = {{"op", "calls", "came as", "policy", "went as"}};
  for (const Entry& entry : entries_) {
    rows.push_back({std::string(info(entry.op).name), std::to_string(entry.count), joined(entry.came),
                    std::string(name_of(entry.policy)), joined(entry.went)});
  }
  return text_table(rows);
}

std::ostream& operator<<(std::ostream& out, const Trace& trace) { return out << trace.to_string(); }

}  // namespace mezzo::amp
