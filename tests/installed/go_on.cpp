// go_on FROM TO: the tile whose state is in the file FROM is trained for three steps and saved to
// TO. The same is done in Python by tests/python/test_cpp_library.py.

#include <cstdio>
#include <exception>
#include <pulsora/state_file.h>
#include <pulsora/tile.h>
#include <string>
#include <vector>

namespace {

/// Numbers that float32 holds exactly, in C++ and in Python.
std::vector<float> batchOf(int64_t rows, int64_t cols, int64_t step) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j)
      values.push_back(static_cast<float>((7 * i + 3 * j + step) % 11 - 5) / 8.0f);
  }
  return values;
}

void goOn(const std::string &from, const std::string &to) {
  constexpr int64_t kBatch = 4;
  pulsora::Tile tile = pulsora::Tile::fromState(pulsora::loadState(from));
  const int64_t dSize = tile.dSize(), xSize = tile.xSize();
  std::vector<float> y(static_cast<size_t>(kBatch * dSize)),
      dx(static_cast<size_t>(kBatch * xSize));
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> x = batchOf(kBatch, xSize, step), d = batchOf(kBatch, dSize, step);
    const auto xView = pulsora::rowMajor(x.data(), kBatch, xSize);
    const auto dView = pulsora::rowMajor(d.data(), kBatch, dSize);
    tile.forward(xView, pulsora::rowMajor(y.data(), kBatch, dSize));
    tile.backward(dView, pulsora::rowMajor(dx.data(), kBatch, xSize));
    tile.update(xView, dView, 0.05f);
  }
  pulsora::saveState(to, tile.state());
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  try {
    goOn(argv[1], argv[2]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
