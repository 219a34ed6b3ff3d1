#include "tensor/cpu_check.h"

#include <cpuid.h>

#include <algorithm>
#include <vector>

#include "tensor/error.h"

namespace mezzo {

namespace {

/// Names of the instruction sets that this processor has and its operating system has switched on.
std::vector<std::string_view> cpu_features() {
  std::vector<std::string_view> has;
  const auto add = [&](std::string_view name, int supported) {
    if (supported != 0) has.push_back(name);
  };
  add("sse2", __builtin_cpu_supports("sse2"));
  add("sse3", __builtin_cpu_supports("sse3"));
  add("ssse3", __builtin_cpu_supports("ssse3"));
  add("sse4.1", __builtin_cpu_supports("sse4.1"));
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("popcnt", __builtin_cpu_supports("popcnt"));
  add("bmi", __builtin_cpu_supports("bmi"));
  add("bmi2", __builtin_cpu_supports("bmi2"));
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("fma4", __builtin_cpu_supports("fma4"));
  add("xop", __builtin_cpu_supports("xop"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512cd", __builtin_cpu_supports("avx512cd"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512dq", __builtin_cpu_supports("avx512dq"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512ifma", __builtin_cpu_supports("avx512ifma"));
  add("avx512vbmi", __builtin_cpu_supports("avx512vbmi"));
  add("avx512vbmi2", __builtin_cpu_supports("avx512vbmi2"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512bitalg", __builtin_cpu_supports("avx512bitalg"));
  add("avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
  add("gfni", __builtin_cpu_supports("gfni"));

  // clang 14 does not know the names of these. Whether the operating system keeps their registers is settled
  // by avx and avx512f above, which always stand beside them.
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    add("f16c", c >> 29 & 1);
    add("movbe", c >> 22 & 1);
  }
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) add("lzcnt", c >> 5 & 1);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) add("avx512fp16", d >> 23 & 1);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) add("avxvnni", a >> 4 & 1);
  return has;
}

}  // namespace

void check_cpu_features(std::span<const std::string_view> needed, std::span<const std::string_view> has) {
  std::string missing;
  for (const std::string_view name : needed) {
    if (std::ranges::find(has, name) == has.end()) missing += text(missing.empty() ? "" : ", ", name);
  }
  if (missing.empty()) return;
  fail("cpu", "the kernels were built for a processor with more than this one has: " + missing, {},
       "build on this machine, or for older ones: -Dcpu=x86-64-v3 needs AVX2, -Dcpu=x86-64 nothing");
}

bool cpu_has(std::string_view feature) {
  const std::vector<std::string_view> has = cpu_features();
  return std::ranges::find(has, feature) != has.end();
}

void check_cpu() { check_cpu_features(cpu::built_for, cpu_features()); }

}  // namespace mezzo
