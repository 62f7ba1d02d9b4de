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
  bool isRecorded() const {
    return std::any_of(tiles_.begin(), tiles_.end(),
                       [](const SharedTile *tile) { return tile->isRecorded(); });
  }
  InputMatrix input(py::handle array, const char *name) {
    return inputOf(tiles_.data(), tiles_.size(), array, name);
  }
  template <class Work>
  void run(const Work &work) {
    SharedTile::runTogether(tiles_, [&] { work(grid_); });
  }

 private:
  static std::vector<PlacedTile> placesOf(const std::vector<Placed> &placed) {
    std::vector<PlacedTile> places;
    for (const auto &[tile, firstOutput, firstInput] : placed)
      places.push_back({tile.cast<SharedTile &>().whole(), firstOutput, firstInput});
    return places;
  }

  std::vector<py::object> owners_;
  std::vector<SharedTile *> tiles_;
  TileGrid grid_;
};

void forward(SharedGrid &self, py::handle x, py::handle out, py::handle first, py::handle of) {
  const BatchPart part = readPart(first, of);
  const InputMatrix in = self.input(x, "x");
  OutputMatrix y(out, in.view().rows, self.outputs(), in, self.context());
  self.run([&](TileGrid &grid) { grid.forward(in.view(), y.view(), part); });
  y.result(self.context());
}

void backward(SharedGrid &self, py::handle d, py::handle out, py::handle first, py::handle of) {
  const BatchPart part = readPart(first, of);
  const InputMatrix in = self.input(d, "d");
  OutputMatrix dx(out, in.view().rows, self.inputs(), in, self.context());
  self.run([&](TileGrid &grid) { grid.backward(in.view(), dx.view(), part); });
  dx.result(self.context());
}

void update(SharedGrid &self, py::handle x, py::handle d, py::handle lr) {
  const float rate = readLearningRate(lr);
  const InputMatrix xIn = self.input(x, "x");
  const InputMatrix dIn = self.input(d, "d");
  self.run([&](TileGrid &grid) { grid.update(xIn.view(), dIn.view(), rate, serveSignals); });
}

void postUpdate(SharedGrid &self, py::handle lr) {
  const float rate = readLearningRate(lr);
  self.run([&](TileGrid &grid) { grid.postUpdate(rate); });
}

}  // namespace

void bindTileGrid(py::module_ &module) {
  using py::arg;
  py::class_<SharedGrid>(module, "TileGrid", py::custom_type_setup(&withoutNew))
      .def_property_readonly("is_recorded", &SharedGrid::isRecorded)
      .def("forward", &forward, arg("x"), arg("out"), arg("first") = 0, arg("of") = py::none())
      .def("backward", &backward, arg("d"), arg("out"), arg("first") = 0, arg("of") = py::none())
      .def("update", &update, arg("x"), arg("d"), arg("lr"))
      .def("post_update", &postUpdate, arg("lr"));
  module.def(
      "make_tile_grid",
      [](const std::vector<SharedGrid::Placed> &tiles, int64_t outputs, int64_t inputs) {
        return std::make_unique<SharedGrid>(tiles, outputs, inputs);
      },
      arg("tiles"), arg("outputs"), arg("inputs"),
      "The matrix [outputs, inputs] of tiles (tile, first output, first input).");
}

}  // namespace RPU::bindings
