// Files of tensors: what is written is read again, and what is no such file is refused.
#include "tensor/io/safetensors.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>
#include <limits>

#include "autograd/ops.h"
#include "tests/error_text.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

/// A file with this header and these bytes of elements.
std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

/// What load_safetensors says of a file with this content, without the path.
std::string refusal(const std::string& content) {
  const TemporaryPath file;
  write_file(file.path, content);
  const std::string message = error_text([&] { load_safetensors(file.path); });
  const std::string start = "load_safetensors: " + file.path + ": ";
  return message.starts_with(start) ? message.substr(start.size()) : "not about the file: " + message;
}

/// The same for one tensor "a" with these three values and 8 bytes of elements.
std::string refusal(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return refusal(
      file_of(R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
              std::string(8, '\0')));
}

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("safetensors: tensors of all dtypes and shapes come back, in their order") {
  StateDict saved;
  for (int i = kDTypes - 1; i >= 0; --i) {
    const auto dtype = static_cast<DType>(i);
    saved.insert(text(name_of(dtype), ".matrix"), make({0, 1, 2, 3, 4, 255}, {2, 3}, dtype));
    saved.insert(text(name_of(dtype), ".0-d"), scalar(1, dtype));
    saved.insert(text(name_of(dtype), ".empty"), make({}, {3, 0}, dtype));
  }
  saved.insert("special", make({-0., INFINITY, -INFINITY, NAN, 5e-324}));
  saved.insert("huge", full({1}, std::numeric_limits<int64_t>::min()));
  for (const char* name : {"", "größe", "重み", "\"\\\n\x01", "😀"}) saved.insert(name, make({1}));
  const Metadata metadata{{"format", "pt"}, {"größe", "½\n"}, {"", ""}};

  const TemporaryPath file;
  save_safetensors(file.path, saved, metadata);
  const auto [tensors, read] = load_safetensors(file.path);
  CHECK(read == metadata);
  REQUIRE(tensors.size() == saved.size());
  auto expected = saved.begin();
  for (const auto& [name, tensor] : tensors) {
    CHECK(name == expected->first);
    CHECK(close(tensor, expected->second, 0));
    CHECK(tensor.device() == Device());
    ++expected;
  }
  CHECK(std::signbit(values(tensors.at("special"))[0]));
  CHECK(tensors.at("huge").item<int64_t>() == std::numeric_limits<int64_t>::min());

  save_safetensors(file.path, {});
  CHECK(read_file(file.path) == file_of("{}      "));
  CHECK(load_safetensors(file.path).tensors.size() == 0);
}

TEST_CASE("safetensors: a file as the format describes it") {
  StateDict state;
  state.insert("b", make({1, 0, 1}, bool_));
  state.insert("w", make({1, -2}, {2, 1}, float32));
  const TemporaryPath file;
  save_safetensors(file.path, state, {{"k", "v"}});
  // The floats come first, so that they are aligned.
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"data_offsets":[8,11],"dtype":"BOOL","shape":[3]},)"
      R"("w":{"data_offsets":[0,8],"dtype":"F32","shape":[2,1]}})";
  const std::string padded = header + std::string(7 - (header.size() + 7) % 8, ' ');
  CHECK(read_file(file.path) == file_of(padded, std::string("\0\0\x80\x3f\0\0\0\xc0\1\0\1", 11)));
}

TEST_CASE("safetensors: any layout is written row-major, without history") {
  const Tensor x = leaf({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 2, 2, 3});
  StateDict state;
  state.insert("channels_last", x.to(channels_last));
  state.insert("transposed", x.transpose(1, 3));
  state.insert("narrowed", x.narrow(3, 1, 2));
  state.insert("expanded", x.select(3, 0).unsqueeze(0).expand({2, 1, 2, 2}));
  state.insert("computed", x * 2);
  const TemporaryPath file;
  save_safetensors(file.path, state);
  const StateDict tensors = load_safetensors(file.path).tensors;
  for (const auto& [key, tensor] : state) {
    const std::string& name = key;
    CAPTURE(name);
    CHECK(tensors.at(name).is_contiguous());
    CHECK_FALSE(tensors.at(name).requires_grad());
    CHECK(close(tensors.at(name), tensor, 0));
  }
}

TEST_CASE("load_safetensors: lengths that are wrong") {
  CHECK(refusal("") == "has 0 bytes, fewer than the length of a header takes");
  CHECK(refusal("1234567") == "has 7 bytes, fewer than the length of a header takes");
  CHECK(refusal(std::string("\3\0\0\0\0\0\0\0{}", 10)) == "the header has 3 bytes, the file 10");
  CHECK(refusal(std::string(8, '\xff')) ==
        "the header has 18446744073709551615 bytes, the limit is 100000000");
  CHECK(refusal(std::string("\1\xe1\xf5\5\0\0\0\0{}", 10)) ==
        "the header has 100000001 bytes, the limit is 100000000");

  const TemporaryPath file;
  StateDict state;
  state.insert("a", make({1, 2}));
  save_safetensors(file.path, state);
  const std::string whole = read_file(file.path);
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(whole.substr(0, size)).find("not about the file") == std::string::npos);
  }
  CHECK(refusal(whole + "x") == "bytes 16 to 17 of the data belong to no tensor");
}

TEST_CASE("load_safetensors: headers that are none") {
  const auto not_json = [](const std::string& header) {
    return refusal(file_of(header)).starts_with("the header is not JSON: ");
  };
  CHECK(not_json("{"));
  CHECK(not_json("{}x"));
  CHECK(not_json("{\"a\":1e999}"));
  CHECK(not_json("{\"\xff\":{}}"));
  for (const char* header : {"", "[]", "1", "null", " {}", "\xef\xbb\xbf{}"}) {
    CHECK(refusal(file_of(header)) == "the header is not a JSON object");
  }
  CHECK(refusal(file_of(std::string("{}\0", 3))) == "the header is not a JSON object");
  const std::string nested = "the header is nested where the format does not nest";
  CHECK(refusal(file_of(R"({"a":{"dtype":{"dtype":"F32"}}})")) == nested);
  CHECK(refusal(file_of(R"({"a":[]})")) == nested);
  CHECK(refusal(file_of("{\"a\":" + std::string(1'000'000, '['))) == nested);
  CHECK(refusal("\"F64\"", "[[1]]", "[0,8]") == nested);

  CHECK(refusal(file_of(R"({"a":{},"a":{}})")) == "the header has \"a\" twice");
  CHECK(refusal(file_of(R"({"a":{"dtype":"F32","dtype":"F64"}})")) == "the header has \"dtype\" twice");
  CHECK(refusal(file_of(R"({"__metadata__":{"k":"v","k":"v"}})")) == "the header has \"k\" twice");
  CHECK(refusal(file_of(R"({"__metadata__":1})")) == "the metadata is not an object");
  CHECK(refusal(file_of(R"({"__metadata__":{"k":1}})")) == "the metadata holds 1, which is not a text");
}

TEST_CASE("load_safetensors: tensors that cannot be") {
  const std::string fields = "\"a\" must have a dtype, a shape, data_offsets and nothing else";
  CHECK(refusal(file_of(R"({"a":1})")) == fields);
  CHECK(refusal(file_of(R"({"a":{"dtype":"F32","shape":[0]}})")) == fields);
  CHECK(refusal(file_of(R"({"a":{"dtype":"F32","shape":[0],"offsets":[0,0]}})")) == fields);
  CHECK(refusal("\"F64\",\"more\":1", "[1]", "[0,8]") == fields);
  CHECK(refusal("\"C64\"", "[1]", "[0,8]") == "\"a\" has dtype \"C64\", which mezzo does not know");
  CHECK(refusal("3", "[1]", "[0,8]") == "\"a\" has dtype 3, which mezzo does not know");

  CHECK(refusal("\"F64\"", "1", "[0,8]") == "\"a\" has 1 in place of a list of numbers");
  const auto no_number = [](const std::string& number) {
    return "\"a\" has " + number + " in place of an integer from 0 to 2^63 - 1";
  };
  for (const char* number : {"-1", "1.0", "null", "\"1\"", "9223372036854775808"}) {
    CHECK(refusal("\"F64\"", text('[', number, ']'), "[0,8]") == no_number(number));
    CHECK(refusal("\"F64\"", "[1]", text('[', number, ",8]")) == no_number(number));
    CHECK(refusal("\"F64\"", "[1]", text("[0,", number, ']')) == no_number(number));
  }
  CHECK(refusal("\"F64\"", "[18446744073709551616]", "[0,8]") == no_number("1.8446744073709552e+19"));
  CHECK(refusal("\"F64\"", "[1,1,1,1,1,1,1,1,1]", "[0,8]") ==
        "\"a\" has 9 dimensions but tensors have at most 8");
  const std::string huge = " has more bytes than can be addressed";
  CHECK(refusal("\"U8\"", "[4294967296,4294967296]", "[0,0]") ==
        "\"a\" of shape [4294967296, 4294967296]" + huge);
  CHECK(refusal("\"F64\"", "[1152921504606846976]", "[0,0]") ==
        "\"a\" of shape [1152921504606846976]" + huge);
  CHECK(refusal("\"U8\"", "[0,4294967296,4294967296]", "[0,0]") ==
        "\"a\" of shape [0, 4294967296, 4294967296]" + huge);

  const std::string pair = "\"a\" has no begin and end in data_offsets";
  for (const char* offsets : {"[]", "[8]", "[0,4,8]", "[8,0]"})
    CHECK(refusal("\"F64\"", "[1]", offsets) == pair);
  CHECK(refusal("\"F64\"", "[1]", "[0,4]") == "\"a\" has bytes 0 to 4 of 8 but needs 8");
  CHECK(refusal("\"F64\"", "[2]", "[0,8]") == "\"a\" has bytes 0 to 8 of 8 but needs 16");
  CHECK(refusal("\"F64\"", "[2]", "[0,16]") == "\"a\" has bytes 0 to 16 of 8 but needs 16");
  CHECK(refusal("\"F64\"", "[1]", "[9223372036854775799,9223372036854775807]") ==
        "\"a\" has bytes 9223372036854775799 to 9223372036854775807 of 8 but needs 8");
  CHECK(refusal("\"F64\"", "[]", "[0,8]") ==
        "not about the file: ");  // the text is sound but for what was changed
}

TEST_CASE("load_safetensors: elements that overlap, leave gaps or are no bool") {
  const auto two = [](const std::string& a, const std::string& b) {
    const std::string start = R"({"dtype":"U8","shape":[4],"data_offsets":[)";
    return refusal(file_of("{\"a\":" + start + a + "]},\"b\":" + start + b + "]}}", std::string(8, '\1')));
  };
  CHECK(two("4,8", "0,4") == "not about the file: ");
  CHECK(two("0,4", "3,7") == "\"b\" overlaps the tensor before it");
  CHECK(two("0,4", "0,4") == "\"b\" overlaps the tensor before it");
  CHECK(refusal("\"F32\"", "[1]", "[4,8]") == "bytes 0 to 4 of the data belong to no tensor");
  CHECK(refusal("\"F32\"", "[1]", "[0,4]") == "bytes 4 to 8 of the data belong to no tensor");
  CHECK(refusal(file_of("{}", "x")) == "bytes 0 to 1 of the data belong to no tensor");
  CHECK(refusal(file_of(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                        std::string("\0\1\2", 3))) == "\"a\" is BOOL and has a byte that is neither 0 nor 1");
}

TEST_CASE("load_safetensors: paths that cannot be read") {
  const TemporaryPath file;
  CHECK(error_text([&] { load_safetensors(file.path); }) ==
        "load_safetensors: " + file.path + ": cannot be read: No such file or directory");
  CHECK(error_text([&] { load_safetensors(file.folder); }) ==
        "load_safetensors: " + file.folder.string() + ": cannot be read: Is a directory");
}

TEST_CASE("save_safetensors: what it refuses leaves the old file, and nothing beside it") {
  const TemporaryPath file;
  write_file(file.path, "old");
  const auto refused = [&](const std::string& name, const Tensor& tensor, const Metadata& metadata = {}) {
    StateDict state;
    state.insert("first", make({1, 2, 3}));
    state.insert(name, tensor);
    const std::string message = error_text([&] { save_safetensors(file.path, state, metadata); });
    CHECK(read_file(file.path) == "old");
    CHECK(files_in(file.folder) == 1);
    const std::string start = "save_safetensors: " + file.path + ": ";
    return message.starts_with(start) ? message.substr(start.size()) : "not about the file: " + message;
  };
  CHECK(refused("a", {}) == "\"a\" is undefined");
  CHECK(refused("__metadata__", make({1})) == "a tensor cannot have the name \"__metadata__\"");
  CHECK(refused("\xff", make({1})) == "a name or a text of the metadata is not UTF-8");
  CHECK(refused("a", make({1}), {{"k", "\xff"}}) == "a name or a text of the metadata is not UTF-8");
  CHECK(refused("a", make({1}), {{"\xff", "v"}}) == "a name or a text of the metadata is not UTF-8");
  CHECK(refused(std::string(100'000'000, 'a'), make({1})).ends_with("bytes, the limit is 100000000"));

  // A disk that fills up, played by a limit on the size of files.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1000, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string full_disk = refused("a", zeros({1000}));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, handler);
  CHECK(full_disk == "cannot be written: File too large");
}

TEST_CASE("save_safetensors: paths that cannot be written") {
  const TemporaryPath file;
  const std::string missing = file.folder / "none" / "file";
  CHECK(error_text([&] { save_safetensors(missing, {}); }) ==
        "save_safetensors: " + missing + ": cannot be written: No such file or directory");
  std::filesystem::create_directory(file.path);
  CHECK(error_text([&] { save_safetensors(file.path, {}); }) ==
        "save_safetensors: " + file.path + ": cannot be written: Is a directory");
  CHECK(files_in(file.folder) == 1);
}
