#include "training_update_binding.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <pybind11/stl.h>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "shared_grid.h"

namespace pulsora::bindings {
namespace {

namespace py = pybind11;

/// A mini-batch of one layer: its tiles, samples and learning rate, and the object whose attribute
/// `pairs` has the factors of the gradient. Layers of a call share the memory for patches.
class LayerUpdate {
 public:
  using Memory = std::shared_ptr<Buffer<float>>;
  using Sample = std::tuple<py::object, py::object, py::object>;
  using Given = std::tuple<Grid, std::vector<Sample>, py::object, std::optional<TileGrid::Numbers>,
                           py::object>;

  LayerUpdate(const Given &given, Memory patches)
      : patches_(std::move(patches)),
        grid_(std::get<0>(given)),
        rate_(grid_->rate(readLearningRate(std::get<2>(given)))),
        tiles_(std::get<3>(given).value_or(grid_->grid().all())),
        factors_(std::get<4>(given)) {
    for (const auto &[x, d, gate] : std::get<1>(given)) {
      samples_.push_back(takeInputs(x));
      samples_.back().d = take(d, "d");
      if (!gate.is_none()) samples_.back().gate = take(gate, "gate");
    }
  }

  const std::vector<SharedTile *> &tiles() const { return grid_->tiles(); }
  bool isRecorded() const { return tiles().front()->isRecorded(); }
  void record() const {
    SharedGrid::enqueue(grid_,
                        [tiles = tiles_, samples = samples_, rate = rate_, patches = patches_](
                            TileGrid &grid) { grid.step(tiles, samples, rate(), *patches); });
  }
  void prepare() const { grid_->grid().prepareStep(tiles_, samples_, rate_(), *patches_); }
  void run() const { grid_->grid().step(tiles_, samples_, rate_(), *patches_); }
  /// A number that grows with every change.
  uint64_t counted() const {
    uint64_t sum = 0;
    for (SharedTile *tile : tiles()) {
      const Counters &counters = tile->whole()->counters();
      sum += counters.updateSamples + counters.miniBatches;
    }
    return sum;
  }
  /// Empties the gradient, by the C API alone: no Python code runs.
  void dropFactors() const { py::setattr(factors_, "pairs", py::tuple()); }

 private:
  /// Samples without d, from a matrix x or (images [m, pixels], (channels, height, width), settings
  /// of readPatchGrid, groups, whether a 1 follows each group).
  TileGrid::Samples takeInputs(py::handle x) {
    if (!py::isinstance<py::tuple>(x)) return {take(x, "x"), {}, {}, {}};
    const auto [images, size, settings, groups, hasOnes] =
        x.cast<std::tuple<py::object, std::array<int64_t, 3>, py::object, int64_t, bool>>();
    const MatrixView<const float> pixels = take(images, "images");
    const PatchedImages patched{pixels.data, pixels.rows, readPatchGrid(size, settings), groups,
                                hasOnes};
    PULSORA_CHECK(InputError,
                  pixels.isContiguous() && pixels.cols == size[0] * size[1] * size[2] &&
                      groups > 0 && size[0] % groups == 0,
                  "images have shape [", pixels.rows, ", ", pixels.cols, "], and ", groups,
                  " groups; give gapless rows of ", size[0], " x ", size[1], " x ", size[2],
                  " pixels, and a number of groups that divides the channels");
    return {{nullptr, patched.rows(), patched.columns(), patched.columns(), 1}, {}, {}, patched};
  }
  MatrixView<const float> take(py::handle array, const char *name) {
    inputs_.push_back(grid_->input(array, name));
    return inputs_.back().view();
  }

  Memory patches_;
  Grid grid_;
  std::vector<InputMatrix> inputs_;  // hold the memory of the samples
  std::vector<TileGrid::Samples> samples_;
  StepRate rate_;
  TileGrid::Numbers tiles_;
  py::object factors_;
};

std::vector<SharedTile *> tilesOf(const std::vector<LayerUpdate> &updates) {
  std::vector<SharedTile *> tiles;
  for (const LayerUpdate &each : updates)
    tiles.insert(tiles.end(), each.tiles().begin(), each.tiles().end());
  std::sort(tiles.begin(), tiles.end());  // as in a SharedGrid: all lock in one order
  tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
  return tiles;
}

void applyUpdates(const std::vector<LayerUpdate::Given> &given, bool askOnly) {
  std::vector<LayerUpdate> updates;
  updates.reserve(given.size());
  const auto patches = std::make_shared<Buffer<float>>();
  for (const LayerUpdate::Given &each : given) updates.emplace_back(each, patches);
  if (updates.empty()) return;
  if (updates.front().isRecorded() && !askOnly) {
    for (const LayerUpdate &each : updates) each.record();
    return;
  }
  // No signal handler runs from here on: a handler's exception would leave some layers out.
  size_t used = 0;
  const auto dropUsed = [&] {
    for (size_t i = 0; i < used; ++i) updates[i].dropFactors();
  };
  try {
    SharedTile::runTogether(tilesOf(updates), [&] {
      for (const LayerUpdate &each : updates) each.prepare();
      if (askOnly) return;
      for (const LayerUpdate &each : updates) {
        const uint64_t before = each.counted();
        try {
          each.run();
        } catch (...) {
          used += each.counted() != before;
          throw;
        }
        ++used;
      }
    });
  } catch (...) {
    dropUsed();
    throw;
  }
  dropUsed();
}

}  // namespace

void bindTrainingUpdate(py::module_ &module) {
  module.def(
      "apply_updates", &applyUpdates, py::arg("updates"), py::arg("ask_only") = false,
      "Makes the mini-batches of layers: (TileGrid, [(x, d, gate or None)], lr, numbers of "
      "tiles or None, object whose attribute `pairs` becomes () when its layer is done). x may be "
      "(images [m, pixels], (channels, height, width), (kernel, stride, dilation), groups, whether "
      "a 1 follows each group), whose patches are its rows. "
      "What a layer refuses is raised before any changes; with ask_only, nothing else happens. No "
      "signal is served meanwhile.");
}

}  // namespace pulsora::bindings
