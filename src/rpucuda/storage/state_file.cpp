#include "storage/state_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "storage/atomic_write.h"
#include "storage/json.h"

namespace pulsora {
namespace {

constexpr const char *kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kAlignment = 8;  // of the tensors within the file

constexpr size_t kMostAxes = 32;  // the most that every version of NumPy takes

template <class... Parts>
void require(bool holds, const Parts &...parts) {
  PULSORA_CHECK(StateError, holds, parts...);
}

// --- reading

uint64_t count(const Value &value, const std::string &name, const char *what) {
  const int64_t *number = value.integer();
  require(number && *number >= 0, "tensor '", name, "': ", what, " is ", value.describe(),
          "; it must be an integer >= 0");
  return static_cast<uint64_t>(*number);
}

const Value &member(const Value::Map &map, const std::string &name, const char *key) {
  const auto found = map.find(key);
  require(found != map.end(), "tensor '", name, "' has no '", key, "'");
  return found->second;
}

/// A tensor that the header announces: its type and shape, and where its bytes are.
struct Announced {
  uint64_t begin;
  uint64_t end;
  std::string name;
  Tensor tensor;
};

Announced announced(const std::string &name, const Value &value) {
  const Value::Map *map = value.map();
  require(map, "tensor '", name, "' is ", value.describe(),
          " in the header, where an object belongs");
  Announced result{0, 0, name, {}};

  const Value &dtype = member(*map, name, "dtype");
  size_t type = 0;
  while (type < Tensor::kTypes && dtype != Value(typeOf(static_cast<Tensor::Type>(type)).name))
    ++type;
  require(type < Tensor::kTypes, "tensor '", name, "' has type ", dtype.describe(),
          ", which no array of a tile has");
  result.tensor.type = static_cast<Tensor::Type>(type);

  const Value &shape = member(*map, name, "shape");
  require(shape.list(), "tensor '", name, "' has shape ", shape.describe(), "; it must be a list");
  require(shape.list()->size() <= kMostAxes, "tensor '", name, "' has ", shape.list()->size(),
          " axes; an array has at most ", kMostAxes);
  // In an empty tensor, too, the other extents must be possible for an array.
  uint64_t room = typeOf(result.tensor.type).bytes;
  for (const Value &extent : *shape.list()) {
    const uint64_t size = count(extent, name, "an extent of its shape");
    require(size == 0 || room <= static_cast<uint64_t>(INT64_MAX) / size, "tensor '", name,
            "' has shape ", shape.describe(), ", which no memory can hold");
    room *= std::max<uint64_t>(size, 1);
    result.tensor.shape.push_back(static_cast<int64_t>(size));
  }
  const uint64_t bytes = result.tensor.size() == 0 ? 0 : room;

  const Value &offsets = member(*map, name, "data_offsets");
  require(offsets.list() && offsets.list()->size() == 2, "tensor '", name, "' has data_offsets ",
          offsets.describe(), "; they must be [begin, end]");
  result.begin = count((*offsets.list())[0], name, "the begin of its data_offsets");
  result.end = count((*offsets.list())[1], name, "the end of its data_offsets");
  require(result.begin <= result.end && result.end - result.begin == bytes, "tensor '", name,
          "' has data_offsets ", offsets.describe(), ", but its type and shape take ", bytes,
          " bytes");
  return result;
}

Value::Map valuesOf(const Value::Map &header) {
  const auto metadata = header.find(kMetadata);
  const Value::Map *texts = metadata == header.end() ? nullptr : metadata->second.map();
  const auto found = texts ? texts->find(kStateFormat) : Value::Map::const_iterator{};
  require(texts && found != texts->end() && found->second.text(),
          "this safetensors file is not the state of a tile: its metadata has no '", kStateFormat,
          "'");
  Value values;
  try {
    values = parseJson(*found->second.text());
  } catch (const StateError &error) {
    throw StateError(message("the table of values is damaged (", error.what(), ")"));
  }
  require(values.map(), "the table of values is damaged; it is no JSON object");
  return *values.map();
}

// --- files

[[noreturn]] void throwFileError(int error, const std::string &path, const char *what) {
  throw std::filesystem::filesystem_error(what, path,
                                          std::error_code(error, std::generic_category()));
}

struct Closer {
  void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

std::string readFile(const std::string &path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) throwFileError(errno, path, "cannot be opened");
  std::string bytes;
  std::array<char, 1 << 16> part;
  while (!std::feof(file.get())) {
    const size_t got = std::fread(part.data(), 1, part.size(), file.get());
    if (std::ferror(file.get())) throwFileError(errno, path, "cannot be read");
    bytes.append(part.data(), got);
  }
  return bytes;
}

// --- writing

using Entry = const std::pair<const std::string, Tensor> *;

/// The tensors in the order of the file: the largest elements first, so that each is aligned.
std::vector<Entry> inFileOrder(const State &state) {
  std::vector<Entry> tensors;
  tensors.reserve(state.tensors.size());
  for (const auto &entry : state.tensors) tensors.push_back(&entry);
  std::stable_sort(tensors.begin(), tensors.end(), [](Entry a, Entry b) {
    return typeOf(a->second.type).bytes > typeOf(b->second.type).bytes;
  });
  return tensors;
}

/// The start of the file, before the tensors: the length of the header, and the header.
std::string beginning(const State &state, const std::vector<Entry> &tensors) {
  Value::Map header;
  header[kMetadata] = Value::Map{{kStateFormat, Value(writeJson(Value(state.values)))}};
  uint64_t at = 0;
  for (const Entry entry : tensors) {
    const auto &[name, tensor] = *entry;
    const TensorType &type = typeOf(tensor.type);
    require(name != kMetadata, "a tensor is named '", name, "'; choose another name");
    const auto bytes = static_cast<uint64_t>(tensor.size()) * type.bytes;
    require(bytes == tensor.bytes.size(), "tensor '", name, "' has ", tensor.bytes.size(),
            " bytes, but its type and shape take ", bytes);
    Value::List shape(tensor.shape.begin(), tensor.shape.end());
    const uint64_t end = at + bytes;
    header[name] = Value::Map{{"dtype", Value(type.name)},
                              {"shape", Value(std::move(shape))},
                              {"data_offsets", Value(Value::List{Value(at), Value(end)})}};
    at = end;
  }
  std::string text = writeJson(Value(std::move(header)));
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length += static_cast<char>((uint64_t{text.size()} >> (8 * i)) & 0xFFU);
  return length + text;
}

/// The file of a state in parts: `first` owns the first part, `state` the others.
std::vector<std::string_view> partsOf(const State &state, std::string &first) {
  state.verify();
  const std::vector<Entry> tensors = inFileOrder(state);
  first = beginning(state, tensors);
  std::vector<std::string_view> parts{first};
  for (const Entry entry : tensors) {
    const HostBytes &data = entry->second.bytes;
    parts.emplace_back(reinterpret_cast<const char *>(data.data()), data.size());
  }
  return parts;
}

}  // namespace

State parseState(std::string_view bytes) {
  constexpr const char *kIncomplete = "this is not a complete safetensors file (";
  constexpr const char *kCutShort =
      "); was it cut short? Copy the file again, or load an earlier one";
  constexpr const char *kAgain = "; copy the file again, or load an earlier one";
  require(bytes.size() >= kLengthBytes, kIncomplete, "it has ", bytes.size(), " bytes", kCutShort);
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(kLengthBytes);
  require(length <= bytes.size(), kIncomplete, "its header of ", length, " bytes has ",
          bytes.size(), kCutShort);
  Value header;
  try {
    header = parseJson(bytes.substr(0, length));
  } catch (const StateError &error) {
    throw StateError(message("the header is damaged (", error.what(), ")", kAgain));
  }
  bytes.remove_prefix(length);
  require(header.map(), "the header is damaged; it is no JSON object");

  State state;
  state.values = valuesOf(*header.map());
  std::vector<Announced> tensors;
  for (const auto &[name, value] : *header.map()) {
    if (name != kMetadata) tensors.push_back(announced(name, value));
  }
  std::sort(tensors.begin(), tensors.end(), [](const Announced &a, const Announced &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (Announced &entry : tensors) {
    require(entry.begin == at, "tensor '", entry.name, "' begins at byte ", entry.begin,
            " of the data, where ", at, " is expected; the header is damaged", kAgain);
    require(entry.end <= bytes.size(), kIncomplete, "tensor '", entry.name, "' ends at byte ",
            entry.end, " of ", bytes.size(), kCutShort);
    const std::string_view data = bytes.substr(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.resize(data.size());
    if (!data.empty()) std::memcpy(entry.tensor.bytes.data(), data.data(), data.size());
    state.tensors[entry.name] = std::move(entry.tensor);
    at = entry.end;
  }
  require(at == bytes.size(), "the file has ", bytes.size(), " bytes of tensors where ", at,
          " are expected", kAgain);
  state.verify();
  return state;
}

std::string writeState(const State &state) {
  std::string bytes;
  std::string first;
  for (const std::string_view part : partsOf(state, first)) bytes += part;
  return bytes;
}

void saveState(const std::string &path, const State &state) {
  std::string first;
  replaceFile(path, partsOf(state, first));
}

State loadState(const std::string &path) {
  const std::string bytes = readFile(path);
  try {
    return parseState(bytes);
  } catch (const StateError &error) {
    throw StateError(message(path, ": ", error.what()));
  }
}

}  // namespace pulsora
