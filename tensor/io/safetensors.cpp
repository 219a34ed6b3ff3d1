// The format: 8 bytes that give the header's length; the header in JSON, name -> {dtype, shape, data_offsets:
// [begin, end]} and perhaps "__metadata__" -> {name -> text}; the elements of the tensors, row-major and end
// to end, that the offsets count in. All numbers have their little end first.
#include "tensor/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "tensor/error.h"
#include "tensor/kernels.h"

namespace mezzo {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "elements are read and written as they are in memory");

constexpr std::string_view dtype_names[kDTypes] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"};
constexpr const char* metadata_key = "__metadata__";
constexpr uint64_t max_header = 100'000'000;  // more is refused by other readers too

uint64_t bytes_of(const Tensor& x) { return static_cast<uint64_t>(x.numel()) * size_of(x.dtype()); }

std::string last_system_error() { return std::generic_category().message(errno); }

/// One reading of a file. Everything that the header says is checked before memory for tensors is asked for.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Safetensors read() {
    const json header = parse(read_header());
    Safetensors file;
    for (const std::string& name : names_) {
      if (name == metadata_key)
        file.metadata = parse_metadata(header.at(name));
      else
        entries_.push_back(parse_entry(name, header.at(name)));
    }
    read_tensors();
    for (const Entry& entry : entries_) file.tensors.insert(entry.name, entry.tensor);
    return file;
  }

 private:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    uint64_t begin, end;  ///< in the data
    Tensor tensor{};
  };

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... fact) const {
    fail("load_safetensors", text(path_, ": ", fact...));
  }

  void read_bytes(void* to, uint64_t bytes) {
    if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
      refuse("cannot be read to its end");
  }

  std::string read_header() {
    std::error_code error;
    const uint64_t file_size = std::filesystem::file_size(path_, error);
    if (error) refuse("cannot be read: ", error.message());
    stream_.open(path_, std::ios::binary);
    if (!stream_) refuse("cannot be read: ", last_system_error());

    uint64_t size = 0;
    if (file_size < sizeof size) refuse("has ", file_size, " bytes, fewer than the length of a header takes");
    read_bytes(&size, sizeof size);
    if (size > max_header) refuse("the header has ", size, " bytes, the limit is ", max_header);
    if (size > file_size - sizeof size) refuse("the header has ", size, " bytes, the file ", file_size);
    data_size_ = file_size - sizeof size - size;
    std::string header(size, '\0');
    read_bytes(header.data(), size);
    return header;
  }

  /// Parses the header and notes its names in their order.
  json parse(const std::string& header) {
    // The parser would skip a byte order mark, and take a zero byte for the end.
    if (!header.starts_with('{') || header.find('\0') != std::string::npos) {
      refuse("the header is not a JSON object");
    }
    std::unordered_set<std::string> names, fields;  // of the header, and of the object inside it
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
      using Event = json::parse_event_t;
      if ((event == Event::object_start && depth > 1) || (event == Event::array_start && depth != 2)) {
        refuse("the header is nested where the format does not nest");
      }
      if (event == Event::object_start) fields.clear();
      if (event == Event::key) {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!(depth == 1 ? names : fields).insert(name).second) refuse("the header has \"", name, "\" twice");
        if (depth == 1) names_.push_back(name);
      }
      return true;
    };
    try {
      return json::parse(header, check);
    } catch (const json::exception& error) {
      refuse("the header is not JSON: ", error.what());
    }
  }

  Metadata parse_metadata(const json& value) const {
    if (!value.is_object()) refuse("the metadata is not an object");
    for (const json& item : value) {
      if (!item.is_string()) refuse("the metadata holds ", item.dump(), ", which is not a text");
    }
    return value.get<Metadata>();
  }

  Entry parse_entry(const std::string& name, const json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      refuse('"', name, "\" must have a dtype, a shape, data_offsets and nothing else");
    }
    const json& dtype = value["dtype"];
    const auto found =
        std::ranges::find_if(dtype_names, [&](std::string_view known) { return dtype == known; });
    if (found == std::end(dtype_names))
      refuse('"', name, "\" has dtype ", dtype.dump(), ", which mezzo does not know");

    const std::vector<int64_t> sizes = parse_numbers(name, value["shape"]);
    if (sizes.size() > Shape::max_dims) {
      refuse('"', name, "\" has ", sizes.size(), " dimensions but tensors have at most ", Shape::max_dims);
    }
    const std::vector<int64_t> offsets = parse_numbers(name, value["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      refuse('"', name, "\" has no begin and end in data_offsets");

    const Entry entry{name, static_cast<DType>(found - dtype_names), sizes, static_cast<uint64_t>(offsets[0]),
                      static_cast<uint64_t>(offsets[1])};
    // Strides must not overflow either, so a size of 0 does not excuse the others.
    auto bytes = static_cast<int64_t>(size_of(entry.dtype));
    for (const int64_t size : sizes) {
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
        refuse('"', name, "\" of shape ", to_string(entry.shape), " has more bytes than can be addressed");
      }
    }
    if (entry.shape.numel() == 0) bytes = 0;
    if (entry.end - entry.begin != static_cast<uint64_t>(bytes) || entry.end > data_size_) {
      refuse('"', name, "\" has bytes ", entry.begin, " to ", entry.end, " of ", data_size_, " but needs ",
             bytes);
    }
    return entry;
  }

  std::vector<int64_t> parse_numbers(const std::string& name, const json& list) const {
    if (!list.is_array()) refuse('"', name, "\" has ", list.dump(), " in place of a list of numbers");
    std::vector<int64_t> numbers;
    for (const json& number : list) {
      if (!number.is_number_unsigned() || number.get<uint64_t>() > INT64_MAX) {
        refuse('"', name, "\" has ", number.dump(), " in place of an integer from 0 to 2^63 - 1");
      }
      numbers.push_back(number.get<int64_t>());
    }
    return numbers;
  }

  /// Reads the elements in one pass, after checking that they lie end to end and fill the data.
  void read_tensors() {
    std::vector<Entry*> in_order;
    for (Entry& entry : entries_) in_order.push_back(&entry);
    std::ranges::sort(in_order, {}, [](const Entry* entry) { return std::pair(entry->begin, entry->end); });
    uint64_t end = 0;
    for (const Entry* entry : in_order) {
      if (entry->begin < end) refuse('"', entry->name, "\" overlaps the tensor before it");
      if (entry->begin > end) refuse("bytes ", end, " to ", entry->begin, " of the data belong to no tensor");
      end = entry->end;
    }
    if (end != data_size_) refuse("bytes ", end, " to ", data_size_, " of the data belong to no tensor");

    for (Entry* entry : in_order) {
      entry->tensor = empty(entry->shape, {.dtype = entry->dtype});
      const auto* bytes = static_cast<const uint8_t*>(entry->tensor.view_of_memory().data);
      const uint64_t count = entry->end - entry->begin;
      read_bytes(entry->tensor.view_of_memory().data, count);
      // A bool of another value would be undefined behaviour wherever it is used.
      if (entry->dtype == bool_ && std::any_of(bytes, bytes + count, [](uint8_t byte) { return byte > 1; })) {
        refuse('"', entry->name, "\" is BOOL and has a byte that is neither 0 nor 1");
      }
    }
  }

  std::string path_;
  std::ifstream stream_;
  uint64_t data_size_ = 0;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
};

/// The tensors in the order of their elements in a file. Large element types come first, so that every
/// element is aligned for readers that map the file into memory.
std::vector<const StateDict::Entry*> in_file_order(const StateDict& tensors) {
  std::vector<const StateDict::Entry*> order;
  for (const StateDict::Entry& entry : tensors) order.push_back(&entry);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const StateDict::Entry* entry) { return size_of(entry->second.dtype()); });
  return order;
}

/// The length of the header, and the header padded so that the data is aligned.
std::string header_of(const std::vector<const StateDict::Entry*>& order, const StateDict& tensors,
                      const Metadata& metadata) {
  std::map<const StateDict::Entry*, uint64_t> begins;
  uint64_t end = 0;
  for (const StateDict::Entry* entry : order) {
    begins[entry] = end;
    end += bytes_of(entry->second);
  }
  std::string header;
  const auto add = [&](const std::string& name, const json& value) {
    header += (header.empty() ? '{' : ',') + json(name).dump() + ':' + value.dump();
  };
  if (!metadata.empty()) add(metadata_key, metadata);
  for (const StateDict::Entry& entry : tensors) {
    const auto& [name, tensor] = entry;
    const uint64_t begin = begins[&entry];
    add(name, {{"dtype", dtype_names[static_cast<size_t>(tensor.dtype())]},
               {"shape", std::vector(tensor.shape().begin(), tensor.shape().end())},
               {"data_offsets", {begin, begin + bytes_of(tensor)}}});
  }
  header += header.empty() ? "{}" : "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

/// A name beside a path; what is there in the end goes.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& path) : name(text(path, '.', std::random_device()(), ".tmp")) {}
  ~TemporaryFile() {
    std::error_code ignored;  // after the renaming there is nothing left to remove
    std::filesystem::remove(name, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string name;
};

}  // namespace

void save_safetensors(const std::string& path, const StateDict& tensors, const Metadata& metadata) {
  const auto refuse = [&](const auto&... fact) { fail("save_safetensors", text(path, ": ", fact...)); };
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) refuse('"', name, "\" is undefined");
    if (name == metadata_key) refuse("a tensor cannot have the name \"", name, '"');
  }
  const auto order = in_file_order(tensors);
  std::string header;
  try {
    header = header_of(order, tensors, metadata);
  } catch (const json::exception&) {
    refuse("a name or a text of the metadata is not UTF-8");
  }
  if (header.size() - sizeof(uint64_t) > max_header) {
    refuse("the header would have ", header.size() - sizeof(uint64_t), " bytes, the limit is ", max_header);
  }

  const TemporaryFile temporary(path);
  std::ofstream stream(temporary.name, std::ios::binary);
  stream << header;
  for (const StateDict::Entry* entry : order) {
    const Tensor host = entry->second.detach().to(Device()).contiguous();
    stream.write(static_cast<const char*>(host.view_of_memory().data),
                 static_cast<std::streamsize>(bytes_of(host)));
  }
  stream.close();
  if (!stream) refuse("cannot be written: ", last_system_error());
  std::error_code error;
  std::filesystem::rename(temporary.name, path, error);
  if (error) refuse("cannot be written: ", error.message());
}

Safetensors load_safetensors(const std::string& path) { return Reader(path).read(); }

}  // namespace mezzo
