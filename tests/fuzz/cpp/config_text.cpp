#include <string_view>

#include "fuzz_program.h"
#include "storage/json.h"
#include "tile/tile.h"

namespace pulsora {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 4;

void use(const TileConfig &config) {
  float x[2 * kCols] = {1.0f, -0.5f, 0.25f, 0.0f, 0.3f, 0.7f, -1.0f, 2.0f};
  float d[2 * kRows] = {0.1f, -0.1f, 0.0f, 0.02f, 0.0f, -0.3f};
  float y[2 * kRows];
  float dx[2 * kCols];
  Tile tile(kRows, kCols, config, 7);
  require(writeParams(tile.config()) == writeParams(config), "a tile has another configuration");
  for (int step = 0; step < 2; ++step) {
    tile.forward(rowMajor<const float>(x, 2, kCols), rowMajor(y, 2, kRows));
    tile.backward(rowMajor<const float>(d, 2, kRows), rowMajor(dx, 2, kCols));
    tile.update(rowMajor<const float>(x, 2, kCols), rowMajor<const float>(d, 2, kRows), 0.1f);
  }
  static_cast<void>(tile.statistics());
  Tile other(kRows, kCols, config, 7);
  other.loadState(tile.state());
  require(other.state().values == tile.state().values, "a state that is loaded differs");
}

}  // namespace
}  // namespace pulsora

// Any bytes as the JSON of a configuration: refused with a ConfigError, or complete, and good for a
// tile.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace pulsora;
  try {
    const Value value = parseJson({reinterpret_cast<const char *>(data), size});
    const auto config = readParams<TileConfig>(value, "");
    const Value complete = writeParams(config);
    require(writeParams(readParams<TileConfig>(complete, "")) == complete,
            "a configuration that is written reads back as another");
    use(config);
  } catch (const ConfigError &) {
  } catch (const StateError &) {  // no JSON
  } catch (const OutOfMemoryError &) {
  }
  return 0;
}
