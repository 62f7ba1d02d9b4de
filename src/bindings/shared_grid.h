#pragma once

#include <algorithm>
#include <memory>
#include <pybind11/pybind11.h>
#include <tuple>
#include <vector>

#include "shared_tile.h"
#include "tensor.h"
#include "tile/tile_grid.h"
#include "tile_arguments.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A grid that keeps the Python objects of its tiles alive.
class SharedGrid {
 public:
  using Placed = std::tuple<py::object, int64_t, int64_t>;

  SharedGrid(const std::vector<Placed> &placed, int64_t outputs, int64_t inputs)
      : grid_(placesOf(placed), outputs, inputs) {
    for (const auto &[tile, firstOutput, firstInput] : placed) {
      owners_.push_back(tile);
      tiles_.push_back(&tile.cast<SharedTile &>());
    }
    std::sort(tiles_.begin(), tiles_.end());  // all grids lock in one order
  }

  int64_t outputs() const { return grid_.outputs(); }
  int64_t inputs() const { return grid_.inputs(); }
  const Context &context() const { return tiles_.front()->context(); }
  /// The learning rate of a call that may be recorded.
  StepRate rate(float lr) const { return tiles_.front()->rate(lr); }
  InputMatrix input(py::handle array, const char *name) {
    return inputOf(tiles_.data(), tiles_.size(), array, name);
  }
  /// Runs work(grid), or stores it in the step being recorded (SharedTile::enqueue).
  template <class Work>
  static void enqueue(const std::shared_ptr<SharedGrid> &self, const Work &work) {
    SharedTile::enqueueTogether(self->tiles_, [self, work] { work(self->grid_); });
  }
  /// Runs work(grid) now; StateError while a step is recorded.
  template <class Work>
  static void run(const std::shared_ptr<SharedGrid> &self, const Work &work) {
    SharedTile::runTogether(self->tiles_, [&] { work(self->grid_); });
  }
  /// The grid and its tiles, for calls by several grids together.
  TileGrid &grid() { return grid_; }
  const std::vector<SharedTile *> &tiles() const { return tiles_; }

 private:
  static std::vector<PlacedTile> placesOf(const std::vector<Placed> &placed) {
    std::vector<PlacedTile> places;
    places.reserve(placed.size());
    for (const auto &[tile, firstOutput, firstInput] : placed)
      places.push_back({tile.cast<SharedTile &>().whole(), firstOutput, firstInput});
    return places;
  }

  std::vector<py::object> owners_;
  std::vector<SharedTile *> tiles_;
  TileGrid grid_;
};

using Grid = std::shared_ptr<SharedGrid>;

}  // namespace pulsora::bindings
