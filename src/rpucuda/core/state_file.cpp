#include "core/state_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "core/json.h"

namespace RPU {
namespace {

constexpr const char *kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kAlignment = 8;  // of the tensors within the file

struct TypeEntry {
  Tensor::Type type;
  const char *name;
  uint64_t bytes;
};
constexpr std::array<TypeEntry, 6> kTypes = {{{Tensor::Type::F32, "F32", 4},
                                              {Tensor::Type::F16, "F16", 2},
                                              {Tensor::Type::U8, "U8", 1},
                                              {Tensor::Type::I32, "I32", 4},
                                              {Tensor::Type::I64, "I64", 8},
                                              {Tensor::Type::U64, "U64", 8}}};

const TypeEntry &entryOf(Tensor::Type type) { return kTypes[static_cast<size_t>(type)]; }

template <class... Parts>
void require(bool holds, const Parts &...parts) {
  RPU_CHECK(StateError, holds, parts...);
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
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeEntry &entry) {
    return dtype.text() && *dtype.text() == entry.name;
  });
  require(type != kTypes.end(), "tensor '", name, "' has type ", dtype.describe(),
          ", which no array of a tile has");
  result.tensor.type = type->type;

  const Value &shape = member(*map, name, "shape");
  require(shape.list(), "tensor '", name, "' has shape ", shape.describe(), "; it must be a list");
  uint64_t bytes = type->bytes;
  for (const Value &extent : *shape.list()) {
    const uint64_t size = count(extent, name, "an extent of its shape");
    require(size == 0 || bytes <= static_cast<uint64_t>(INT64_MAX) / size, "tensor '", name,
            "' has shape ", shape.describe(), ", which no memory can hold");
    bytes *= size;
    result.tensor.shape.push_back(static_cast<int64_t>(size));
  }

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

[[noreturn]] void throwSystemError(int error, const std::string &path, const char *what) {
  throw std::system_error(error, std::generic_category(), message(path, ": cannot be ", what));
}

struct Closer {
  void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

std::string readFile(const std::string &path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) throwSystemError(errno, path, "opened");
  std::string bytes;
  std::array<char, 1 << 16> part;
  while (!std::feof(file.get())) {
    const size_t got = std::fread(part.data(), 1, part.size(), file.get());
    if (std::ferror(file.get())) throwSystemError(errno, path, "read");
    bytes.append(part.data(), got);
  }
  return bytes;
}

/// Removes a file at the end of its scope, if it is still there.
struct Draft {
  std::string path;
  ~Draft() { std::remove(path.c_str()); }
};

}  // namespace

State parseState(std::string_view bytes) {
  constexpr const char *kIncomplete = "this is not a complete safetensors file (";
  require(bytes.size() >= kLengthBytes, kIncomplete, "it has ", bytes.size(),
          " bytes); was it cut short?");
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(kLengthBytes);
  require(length <= bytes.size(), kIncomplete, "its header of ", length, " bytes has ",
          bytes.size(), "); was it cut short?");
  Value header;
  try {
    header = parseJson(bytes.substr(0, length));
  } catch (const StateError &error) {
    throw StateError(message("the header is damaged (", error.what(), ")"));
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
            " of the data, where ", at, " is expected; the header is damaged");
    require(entry.end <= bytes.size(), kIncomplete, "tensor '", entry.name, "' ends at byte ",
            entry.end, " of ", bytes.size(), "); was it cut short?");
    const std::string_view data = bytes.substr(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.resize(data.size());
    if (!data.empty()) std::memcpy(entry.tensor.bytes.data(), data.data(), data.size());
    state.tensors[entry.name] = std::move(entry.tensor);
    at = entry.end;
  }
  require(at == bytes.size(), "the file has ", bytes.size(), " bytes of tensors where ", at,
          " are expected");
  return state;
}

std::string writeState(const State &state) {
  // The largest elements first, so that each tensor is aligned.
  std::vector<const std::pair<const std::string, Tensor> *> tensors;
  tensors.reserve(state.tensors.size());
  for (const auto &entry : state.tensors) tensors.push_back(&entry);
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto *a, const auto *b) {
    return entryOf(a->second.type).bytes > entryOf(b->second.type).bytes;
  });

  Value::Map header;
  header[kMetadata] = Value::Map{{kStateFormat, Value(writeJson(Value(state.values)))}};
  uint64_t at = 0;
  for (const auto *entry : tensors) {
    const auto &[name, tensor] = *entry;
    require(name != kMetadata, "a tensor is named '", name, "'; choose another name");
    const auto bytes = static_cast<uint64_t>(tensor.size()) * entryOf(tensor.type).bytes;
    require(bytes == tensor.bytes.size(), "tensor '", name, "' has ", tensor.bytes.size(),
            " bytes, but its type and shape take ", bytes);
    Value::List shape(tensor.shape.begin(), tensor.shape.end());
    const uint64_t end = at + bytes;
    header[name] = Value::Map{{"dtype", Value(entryOf(tensor.type).name)},
                              {"shape", Value(std::move(shape))},
                              {"data_offsets", Value(Value::List{Value(at), Value(end)})}};
    at = end;
  }
  std::string text = writeJson(Value(std::move(header)));
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  std::string bytes;
  bytes.reserve(kLengthBytes + text.size() + at);
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>((uint64_t{text.size()} >> (8 * i)) & 0xFFU);
  bytes += text;
  for (const auto *entry : tensors) {
    const std::vector<std::byte> &data = entry->second.bytes;
    bytes.append(reinterpret_cast<const char *>(data.data()), data.size());
  }
  return bytes;
}

void saveState(const std::string &path, const State &state) {
  const std::string bytes = writeState(state);
  const size_t folder = path.find_last_of('/') + 1;  // 0 without one
  const Draft draft{
      message(path.substr(0, folder), '.', path.substr(folder), '.', getpid(), ".part")};
  File file(std::fopen(draft.path.c_str(), "wb"));
  if (!file) throwSystemError(errno, draft.path, "opened");
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size() &&
                       std::fflush(file.get()) == 0 && fsync(fileno(file.get())) == 0;
  if (!written) throwSystemError(errno, draft.path, "written");
  file.reset();
  if (std::rename(draft.path.c_str(), path.c_str()) != 0) throwSystemError(errno, path, "replaced");
}

State loadState(const std::string &path) {
  const std::string bytes = readFile(path);
  try {
    return parseState(bytes);
  } catch (const StateError &error) {
    throw StateError(message(path, ": ", error.what()));
  }
}

}  // namespace RPU
