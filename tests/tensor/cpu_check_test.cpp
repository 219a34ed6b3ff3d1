#include "tensor/cpu_check.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/error.h"

using namespace mezzo;

namespace {
using Names = std::vector<std::string_view>;

std::string complaint(const Names& needed, const Names& has) {
  try {
    check_cpu_features(needed, has);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("a processor that has all that is needed, or more, passes") {
  CHECK(complaint({}, {}) == "");
  CHECK(complaint({}, {"sse2"}) == "");
  CHECK(complaint({"sse2", "avx2"}, {"avx2", "avx512f", "sse2"}) == "");
}

TEST_CASE("a lesser processor is told what it lacks and which option helps") {
  const std::string text = complaint({"avx2", "avx512f", "avx512bw"}, {"sse2", "avx2"});
  CHECK(text.starts_with("cpu: "));
  CHECK(text.find("avx512f, avx512bw;") != std::string::npos);
  CHECK(text.find("avx2,") == std::string::npos);
  CHECK(text.find("-Dcpu=x86-64-v3") != std::string::npos);
}

TEST_CASE("this processor has what every x86-64 has, and nothing unheard of") {
  CHECK(cpu_has("sse2"));
  CHECK(!cpu_has("sse9000"));
}

TEST_CASE("a feature is matched by its whole name") {
  CHECK(complaint({"avx"}, {"avx2"}).find(": avx;") != std::string::npos);
}

TEST_CASE("the machine that runs the tests has what they were built for") {
  CHECK(!cpu::built_for.empty());
  CHECK_NOTHROW(check_cpu());
}
