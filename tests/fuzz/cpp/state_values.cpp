#include <algorithm>
#include <cmath>
#include <string_view>

#include "fuzz_program.h"
#include "lrtt/parameters.h"
#include "storage/json.h"
#include "tile/tile.h"

namespace pulsora {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 4;

Tile fresh() {
  LRTTParams adapter;
  adapter.rank = 2;
  TileConfig config;
  config.compound = adapter;
  return Tile(kRows, kCols, config, 7);
}

// What a tile goes on with after it has loaded something strange.
void use(Tile &tile) {
  const float x[kCols] = {1.0f, -0.5f, 0.25f, 0.0f};
  const float d[kRows] = {0.1f, -0.1f, 0.0f};
  float y[kRows] = {};
  tile.forward(rowMajor(x, 1, kCols), rowMajor(y, 1, kRows));
  require(std::all_of(y, y + kRows, [](float v) { return std::isfinite(v); }),
          "a read is not finite");
  tile.update(rowMajor(x, 1, kCols), rowMajor(d, 1, kRows), 0.1f);
}

}  // namespace
}  // namespace pulsora

// Any JSON as the values of a state whose tensors are sound and whose checksum fits: refused, and
// then nothing has changed, or loaded, and then the tile goes on and its own state loads.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace pulsora;
  Tile tile = fresh();
  const State before = tile.state();
  State state = before;
  try {
    const Value values = parseJson({reinterpret_cast<const char *>(data), size});
    if (!values.map()) return 0;
    state.values = *values.map();
    state.sign();
    tile.loadState(state);
  } catch (const StateError &) {
    require(tile.state().values == before.values, "a refused state has changed the tile");
    return 0;
  }
  use(tile);
  Tile other = fresh();
  other.loadState(tile.state());
  require(other.state().checksum() == tile.state().checksum(), "a state that is loaded differs");
  return 0;
}
