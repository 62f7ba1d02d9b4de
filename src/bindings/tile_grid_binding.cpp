#include "tile_grid_binding.h"

#include <algorithm>
#include <memory>
#include <pybind11/stl.h>
#include <tuple>
#include <vector>

#include "shared_tile.h"
#include "tensor.h"
#include "tile/tile_grid.h"
#include "tile_arguments.h"
#include "without_new.h"

namespace RPU::bindings {
namespace {

/// A grid, and the Python objects of its tiles, which it keeps alive.
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
  /// The learning rate of a call that may be kept.
  StepRate rate(float lr) const { return tiles_.front()->rate(lr); }
  InputMatrix input(py::handle array, const char *name) {
    return inputOf(tiles_.data(), tiles_.size(), array, name);
  }
  /// work(grid), or keeps it for the step that is being recorded (SharedTile::enqueue).
  template <class Work>
  static void enqueue(const std::shared_ptr<SharedGrid> &self, const Work &work) {
    SharedTile::enqueueTogether(self->tiles_, [self, work] { work(self->grid_); });
  }

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

void forward(const Grid &self, py::handle x, py::handle out, py::handle first, py::handle of) {
  const BatchPart part = readPart(first, of);
  const InputMatrix in = self->input(x, "x");
  OutputMatrix y(out, in.view().rows, self->outputs(), in, self->context());
  SharedGrid::enqueue(
      self, [in = in.view(), y = y.view(), part](TileGrid &grid) { grid.forward(in, y, part); });
  y.result(self->context());
}

void backward(const Grid &self, py::handle d, py::handle out, py::handle first, py::handle of) {
  const BatchPart part = readPart(first, of);
  const InputMatrix in = self->input(d, "d");
  OutputMatrix dx(out, in.view().rows, self->inputs(), in, self->context());
  SharedGrid::enqueue(self, [in = in.view(), dx = dx.view(), part](TileGrid &grid) {
    grid.backward(in, dx, part);
  });
  dx.result(self->context());
}

void update(const Grid &self, py::handle x, py::handle d, py::handle lr) {
  const StepRate rate = self->rate(readLearningRate(lr));
  const InputMatrix xIn = self->input(x, "x");
  const InputMatrix dIn = self->input(d, "d");
  SharedGrid::enqueue(self, [x = xIn.view(), d = dIn.view(), rate](TileGrid &grid) {
    grid.update(x, d, rate(), serveSignals);
  });
}

void postUpdate(const Grid &self, py::handle lr) {
  const StepRate rate = self->rate(readLearningRate(lr));
  SharedGrid::enqueue(self, [rate](TileGrid &grid) { grid.postUpdate(rate()); });
}

}  // namespace

void bindTileGrid(py::module_ &module) {
  using py::arg;
  py::class_<SharedGrid, Grid>(module, "TileGrid", py::custom_type_setup(&withoutNew))
      .def("forward", &forward, arg("x"), arg("out"), arg("first") = 0, arg("of") = py::none())
      .def("backward", &backward, arg("d"), arg("out"), arg("first") = 0, arg("of") = py::none())
      .def("update", &update, arg("x"), arg("d"), arg("lr"))
      .def("post_update", &postUpdate, arg("lr"));
  module.def(
      "make_tile_grid",
      [](const std::vector<SharedGrid::Placed> &tiles, int64_t outputs, int64_t inputs) {
        return std::make_shared<SharedGrid>(tiles, outputs, inputs);
      },
      arg("tiles"), arg("outputs"), arg("inputs"),
      "The matrix [outputs, inputs] of tiles (tile, first output, first input).");
}

}  // namespace RPU::bindings
