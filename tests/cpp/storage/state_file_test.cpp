#include "storage/state_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <system_error>
#include <unistd.h>

#include "tile/tile.h"

namespace pulsora {
namespace {

namespace fs = std::filesystem;

Tensor tensor(Tensor::Type type, std::vector<int64_t> shape, size_t bytes) {
  Tensor t;
  t.type = type;
  t.shape = std::move(shape);
  for (size_t i = 0; i < bytes; ++i) t.bytes.push_back(static_cast<std::byte>(i * 37 + bytes));
  return t;
}

State sample() {
  State state;
  state.tensors = {{"half", tensor(Tensor::Type::F16, {3}, 6)},
                   {"bytes", tensor(Tensor::Type::U8, {5}, 5)},
                   {"float", tensor(Tensor::Type::F32, {2, 1}, 8)},
                   {"counts", tensor(Tensor::Type::U64, {1}, 8)},
                   {"whole", tensor(Tensor::Type::I64, {1, 1}, 8)},
                   {"int", tensor(Tensor::Type::I32, {}, 4)},
                   {"empty", tensor(Tensor::Type::F32, {0, 7}, 0)}};
  state.values = {{"version", Value(1)},
                  {"seed", Value("18446744073709551615")},
                  {"scale", Value(0.1)},
                  {"config", Value(Value::Map{{"on", Value(true)}, {"none", Value()}})}};
  return state;
}

void expectEqual(const State &a, const State &b) {
  EXPECT_EQ(a.values, b.values);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto &[name, mine] : a.tensors) {
    const Tensor &theirs = b.tensors.at(name);
    EXPECT_EQ(mine.type, theirs.type) << name;
    EXPECT_EQ(mine.shape, theirs.shape) << name;
    EXPECT_EQ(mine.bytes, theirs.bytes) << name;
  }
}

std::string refusal(const std::string &bytes) {
  try {
    parseState(bytes);
  } catch (const StateError &error) {
    return error.what();
  }
  return "";
}

/// A file with this header, and that many bytes of tensors.
std::string fileOf(const std::string &header, size_t dataBytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFFU);
  return bytes + header + std::string(dataBytes, 'x');
}

class StateFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pulsora_state_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const char *name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(StateFile, KeepsEverything) {
  saveState(path("a.safetensors"), sample());
  expectEqual(loadState(path("a.safetensors")), sample());
  saveState(path("a.safetensors"), State{});  // replaces the file
  expectEqual(loadState(path("a.safetensors")), State{});
  size_t files = 0;
  for (const auto &entry : fs::directory_iterator(folder_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 1U);
}

TEST_F(StateFile, TensorsAreAlignedWithinTheFile) {
  const std::string bytes = writeState(sample());
  const State back = parseState(bytes);
  for (const auto &[name, t] : back.tensors) {
    if (t.bytes.empty()) continue;
    const size_t at =
        bytes.find(std::string(reinterpret_cast<const char *>(t.bytes.data()), t.bytes.size()));
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_EQ(at % (t.bytes.size() / static_cast<size_t>(t.size())), 0U) << name;
  }
}

TEST_F(StateFile, AFailedSaveLeavesTheOldFile) {
  saveState(path("a.safetensors"), sample());
  State broken = sample();
  broken.values["scale"] = Value(1.0 / 0.0);
  EXPECT_THROW(saveState(path("a.safetensors"), broken), StateError);
  broken = sample();
  broken.tensors["half"].bytes.pop_back();
  EXPECT_THROW(saveState(path("a.safetensors"), broken), StateError);
  expectEqual(loadState(path("a.safetensors")), sample());
  fs::create_directory(folder_ / "taken");
  std::ofstream(folder_ / "taken" / "file") << "x";
  EXPECT_THROW(saveState(path("taken"), sample()), std::system_error);
  EXPECT_THROW(saveState(path("nowhere/a.safetensors"), sample()), std::system_error);
  size_t entries = 0;
  for (const auto &entry : fs::directory_iterator(folder_)) entries += !entry.path().empty();
  EXPECT_EQ(entries, 2U);  // no draft is left behind
}

TEST_F(StateFile, AMissingFileIsNoDamage) {
  try {
    loadState(path("missing"));
    FAIL();
  } catch (const std::system_error &error) {
    EXPECT_EQ(error.code(), std::errc::no_such_file_or_directory);
    EXPECT_NE(std::string(error.what()).find(path("missing")), std::string::npos);
  }
  EXPECT_THROW(loadState(folder_.string()), std::system_error);
}

TEST_F(StateFile, ADamagedFileIsNamed) {
  std::ofstream(path("a")) << "abc";
  try {
    loadState(path("a"));
    FAIL();
  } catch (const StateError &error) {
    EXPECT_EQ(std::string(error.what()), path("a") +
                                             ": this is not a complete safetensors file (it has 3 "
                                             "bytes); was it cut short? Copy the file again, "
                                             "or load an earlier one");
  }
}

TEST_F(StateFile, EveryTruncationAndExtensionIsRefused) {
  const std::string bytes = writeState(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
  }
  EXPECT_NE(refusal(bytes + 'x'), "");
}

TEST_F(StateFile, WhatIsWrongIsSaid) {
  const std::string meta = R"("__metadata__": {"pulsora.tile": "{}"})";
  const auto with = [&](const std::string &entry, size_t dataBytes) {
    return refusal(fileOf("{" + meta + ", \"w\": " + entry + "}", dataBytes));
  };
  EXPECT_EQ(with(R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})", 8), "");
  const struct {
    const char *entry;
    const char *message;
  } kCases[] = {
      {"3", "tensor 'w' is 3 in the header"},
      {R"({"shape": [2], "data_offsets": [0, 8]})", "no 'dtype'"},
      {R"({"dtype": "BF16", "shape": [2], "data_offsets": [0, 8]})", "type 'BF16'"},
      {R"({"dtype": 3, "shape": [2], "data_offsets": [0, 8]})", "type 3"},
      {R"({"dtype": "F32", "shape": 2, "data_offsets": [0, 8]})", "shape 2; it must be a list"},
      {R"({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]})", "extent of its shape is -2"},
      {R"({"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]})", "extent of its shape is 2"},
      {R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]})",
       "no memory can hold"},
      {R"({"dtype": "F32", "shape": [0, 4611686018427387904], "data_offsets": [0, 0]})",
       "no memory can hold"},
      {R"({"dtype": "F32", "shape": [0, 9223372036854775808], "data_offsets": [0, 0]})",
       "beyond 64 bits"},
      {R"({"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})", "take 12 bytes"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]})", "take 8 bytes"},
      {R"({"dtype": "F32", "shape": [2], "data_offsets": [0]})", "they must be [begin, end]"},
      {R"({"dtype": "F32", "shape": [2]})", "no 'data_offsets'"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]})", "begins at byte 4"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})", "8 bytes of tensors where 4"},
      {R"({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]})", "ends at byte 16 of 8"}};
  for (const auto &c : kCases) {
    EXPECT_NE(with(c.entry, 8).find(c.message), std::string::npos)
        << c.entry << ": " << with(c.entry, 8);
  }
  std::string axes = "1";
  for (int i = 0; i < 64; ++i) axes += ", 1";
  EXPECT_NE(with(R"({"dtype": "U8", "data_offsets": [0, 1], "shape": [)" + axes + "]}", 1)
                .find("tensor 'w' has 65 axes"),
            std::string::npos);
  const auto header = [](const std::string &text) { return refusal(fileOf(text, 0)); };
  for (const char *foreign : {"{}", R"({"__metadata__": {}})", R"({"__metadata__": null})",
                              R"({"__metadata__": {"pulsora.tile": 1}})"}) {
    EXPECT_NE(header(foreign).find("not the state of a tile"), std::string::npos) << foreign;
  }
  EXPECT_NE(header("[]").find("no JSON object"), std::string::npos);
  EXPECT_NE(header("{").find("the header is damaged"), std::string::npos);
  EXPECT_NE(header(R"({"__metadata__": {"pulsora.tile": "[]"}})").find("table of values"),
            std::string::npos);
  EXPECT_NE(header(R"({"__metadata__": {"pulsora.tile": "{"}})").find("table of values"),
            std::string::npos);
  EXPECT_NE(refusal(std::string(8, '\xFF') + "{}").find("18446744073709551615 bytes"),
            std::string::npos);
}

TEST_F(StateFile, DamagedFilesAreReadOrRefused) {
  const std::string bytes = writeState(sample());
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  int refused = 0;
  constexpr int kMutants = 50000;
  for (int i = 0; i < kMutants; ++i) {
    std::string mutant = bytes;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(mutant.size());
      const size_t kind = below(4);
      if (kind < 2) {
        mutant[at] = static_cast<char>(below(256));
      } else if (kind == 2) {
        mutant.erase(at, 1 + below(8));
      } else {
        mutant.insert(at, 1 + below(8), static_cast<char>(below(256)));
      }
    }
    try {
      for (const auto &entry : parseState(mutant).tensors) {
        const Tensor &t = entry.second;  // consistent, whatever the file says
        ASSERT_LE(static_cast<size_t>(t.size()), t.bytes.size());
      }
    } catch (const StateError &) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kMutants / 2);
  EXPECT_LT(refused, kMutants);
}

TEST_F(StateFile, AChangedByteIsFoundOrChangesNothing) {
  State state = sample();
  state.values["version"] = Value(3);
  EXPECT_THROW(writeState(state), StateError);  // of this version, but not signed
  state.sign();
  const std::string bytes = writeState(state);
  int same = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1, 2, 0x20, 0x80, 0xFF}) {
      std::string mutant = bytes;
      mutant[at] = static_cast<char>(mutant[at] ^ flip);
      if (refusal(mutant).empty()) {  // one kind of space instead of another
        ++same;
        expectEqual(parseState(mutant), state);
      }
    }
  }
  EXPECT_LT(same, 20);
  state.values["seed"] = Value("8");
  EXPECT_THROW(writeState(state), StateError);
}

TEST_F(StateFile, Property38_ATileGoesOnFromItsFileToTheBit) {
  const auto step = [](Tile &tile) {
    std::vector<float> y(4 * 3);
    const std::vector<float> x(4 * 5, 0.5f), d(4 * 3, 0.1f);
    for (int i = 0; i < 3; ++i) {
      tile.forward(rowMajor(x.data(), 4, 5), rowMajor(y.data(), 4, 3));
      tile.update(rowMajor(x.data(), 4, 5), rowMajor(d.data(), 4, 3), 0.1f);
    }
    return y;
  };
  Tile tile(3, 5, TileConfig{}, 11, 2);
  step(tile);
  saveState(path("tile"), tile.state());
  Tile other(3, 5, TileConfig{}, 11, 2);
  other.loadState(loadState(path("tile")));
  EXPECT_EQ(step(tile), step(other));
  expectEqual(tile.state(), other.state());
}

}  // namespace
}  // namespace pulsora
