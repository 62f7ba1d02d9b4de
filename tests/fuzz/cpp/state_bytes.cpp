#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/state_file.h"
#include "fuzz_program.h"
#include "lrtt/parameters.h"
#include "tile/tile.h"

namespace RPU {
namespace {

bool operator==(const Tensor &a, const Tensor &b) {
  return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
}

bool same(const State &a, const State &b) {
  return a.values == b.values && a.tensors == b.tensors;
}

Tile fresh() {
  LRTTParams adapter;
  adapter.rank = 2;
  TileConfig config;
  config.compound = adapter;
  return Tile(3, 4, config, 7);
}

// A state of the right form reaches the tile itself, whatever it holds.
void load(const State &state) {
  Tile tile = fresh();
  const State before = tile.state();
  try {
    tile.loadState(state);
  } catch (const StateError &) {
    require(same(tile.state(), before), "a refused state has changed the tile");
    return;
  }
  float x[4] = {1.0f, -0.5f, 0.25f, 0.0f};
  float d[3] = {0.1f, -0.1f, 0.0f};
  float y[3] = {};
  tile.forward(rowMajor<const float>(x, 1, 4), rowMajor(y, 1, 3));
  require(std::all_of(y, y + 3, [](float v) { return std::isfinite(v); }), "a read is not finite");
  tile.update(rowMajor<const float>(x, 1, 4), rowMajor<const float>(d, 1, 3), 0.1f);
  tile.postUpdate(0.1f);
  Tile other = fresh();
  other.loadState(tile.state());
  require(same(other.state(), tile.state()), "a state that is loaded again differs");
}

}  // namespace
}  // namespace RPU

// Any bytes as the file of a state: refused, or read to a state that is written and read again, and that a tile refuses
// as a whole or goes on with.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace RPU;
  State state;
  try {
    state = parseState({reinterpret_cast<const char *>(data), size});
  } catch (const StateError &) {
    return 0;
  }
  require(same(parseState(writeState(state)), state), "a state that is written reads back as another");
  load(state);
  return 0;
}
