// Files that travel between mezzo and Python's package safetensors. MEZZO_TEST_PYTHON names an interpreter
// that must have the package; without it the test asks python3 and is skipped if that has none.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tensor/io/safetensors.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// The values that safetensors_python.py has too.
StateDict tensors() {
  const auto eighths = [](DType dtype) { return make({-.75, -.375, 0, .375, .75, 1.125}, {2, 3}, dtype); };
  StateDict all;
  all.insert("bool",
             make({0, 1, 0, 1, 0, 1}, bool_));  // first, so that what follows is aligned only if moved
  all.insert("f64", eighths(float64));
  all.insert("f32", eighths(float32));
  all.insert("f16", eighths(float16));
  all.insert("bf16", eighths(bfloat16));
  all.insert("i64", make({-0x1p40, 0, 0x1p40}, int64));
  all.insert("i32", make({-0x1p20, 0, 0x1p20}, int32));
  all.insert("u8", make({0, 127, 255}, uint8));
  all.insert("0-d", scalar(.375, float32));
  all.insert("empty", make({}, {2, 0, 3}, float32));
  all.insert("größe.½", make({1}, uint8));
  return all;
}

const Metadata metadata{{"step", "3"}, {"größe", "½"}};

/// Exit status of the script.
int python(const std::string& task, const std::string& path) {
  const char* given = std::getenv("MEZZO_TEST_PYTHON");
  const std::string script = test_path("tensor/safetensors_python.py");
  const int status = std::system(
      text('"', given ? given : "python3", "\" \"", script, "\" ", task, " \"", path, '"').c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("safetensors: mezzo and Python read each other's files, all dtypes") {
  const TemporaryPath file;
  const int written = python("write", file.path);
  if (written == 77 && !std::getenv("MEZZO_TEST_PYTHON"))
    return skip("python3 has no package safetensors 0.8");
  REQUIRE(written == 0);

  const StateDict expected = tensors();
  const Safetensors loaded = load_safetensors(file.path);
  CHECK(loaded.metadata == metadata);
  CHECK(loaded.tensors.size() == expected.size());
  for (const auto& [name, tensor] : expected) CHECK(close(loaded.tensors.at(name), tensor, 0));

  save_safetensors(file.path, expected, metadata);
  CHECK(python("check", file.path) == 0);
}
