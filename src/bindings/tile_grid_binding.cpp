#include "tile_grid_binding.h"

#include <memory>
#include <optional>
#include <pybind11/stl.h>
#include <utility>
#include <vector>

#include "no_constructor.h"
#include "shared_grid.h"

namespace pulsora::bindings {
namespace {

void forward(const Grid &self, py::handle x, py::handle out, py::handle first, py::handle of,
             bool evaluation) {
  const BatchPart part = readPart(first, of, evaluation);
  const InputMatrix in = self->input(x, "x");
  OutputMatrix y(out, in.view().rows, self->outputs(), in, self->context());
  SharedGrid::enqueue(
      self, [in = in.view(), y = y.view(), part](TileGrid &grid) { grid.forward(in, y, part); });
  y.result(self->context());
}

void backward(const Grid &self, py::handle d, py::handle out, py::handle first, py::handle of,
              bool evaluation, bool takesInfinite) {
  BatchPart part = readPart(first, of, evaluation);
  part.takesInfinite = takesInfinite;
  const InputMatrix in = self->input(d, "d");
  OutputMatrix dx(out, in.view().rows, self->inputs(), in, self->context());
  SharedGrid::enqueue(self, [in = in.view(), dx = dx.view(), part](TileGrid &grid) {
    grid.backward(in, dx, part);
  });
  dx.result(self->context());
}

/// Numbers of tiles, or None for all.
using Some = std::optional<TileGrid::Numbers>;

void update(const Grid &self, py::handle x, py::handle d, py::handle lr, const Some &tiles) {
  const StepRate rate = self->rate(readLearningRate(lr));
  const InputMatrix xIn = self->input(x, "x");
  const InputMatrix dIn = self->input(d, "d");
  SharedGrid::enqueue(self, [x = xIn.view(), d = dIn.view(), rate, tiles](TileGrid &grid) {
    if (tiles) {
      grid.updateSome(*tiles, x, d, rate(), BatchEnd::Later, serveSignals);
    } else {
      grid.update(x, d, rate(), BatchEnd::Later, serveSignals);
    }
  });
}

void endBatch(const Grid &self, py::handle lr, const Some &tiles) {
  const StepRate rate = self->rate(readLearningRate(lr));
  SharedGrid::enqueue(self, [rate, tiles](TileGrid &grid) {
    if (tiles) {
      grid.endBatchSome(*tiles, rate());
    } else {
      grid.endBatch(rate());
    }
  });
}

void follow(const Grid &self, py::handle master) {
  const InputMatrix in = self->input(master, "master");
  SharedGrid::enqueue(self, [in = in.view()](TileGrid &grid) { grid.follow(in); });
}

void take(const Grid &self, py::handle weights, bool isSame) {
  const InputMatrix in = self->input(weights, "weights");
  SharedGrid::enqueue(self, [in = in.view(), isSame](TileGrid &grid) { grid.take(in, isSame); });
}

/// The numbers of the next forward samples of a grid's tiles. In a recorded step they are noted
/// anew at each run.
struct NotedSamples {
  std::vector<uint64_t> numbers;
};

std::shared_ptr<NotedSamples> noteSamples(const Grid &self) {
  auto noted = std::make_shared<NotedSamples>();
  SharedGrid::enqueue(self, [noted](TileGrid &grid) { noted->numbers = grid.nextSamples(); });
  return noted;
}

void see(const Grid &self, const std::shared_ptr<NotedSamples> &noted) {
  SharedGrid::enqueue(self, [noted](TileGrid &grid) { grid.see(noted->numbers); });
}

ChangedParts partsOf(bool numbers) { return numbers ? ChangedParts::All : ChangedParts::Tensors; }

int64_t changesSize(const Grid &self, const TileGrid::Numbers &tiles, bool numbers) {
  int64_t size = 0;
  SharedGrid::run(self, [&](TileGrid &grid) { size = grid.changesSize(tiles, partsOf(numbers)); });
  return size;
}

void packChanges(const Grid &self, const TileGrid::Numbers &tiles, py::handle out, bool numbers) {
  // `out` is no input, but an empty slice of it gives its device.
  const InputMatrix like = self->input(out[py::slice(0, 0, 1)], "out");
  const auto size = static_cast<int64_t>(py::len(out));
  OutputMatrix to(out, 1, size, like, self->context());
  SharedGrid::enqueue(self, [tiles, to = to.view().row(0), numbers](TileGrid &grid) {
    grid.packChanges(tiles, to, partsOf(numbers));
  });
  to.result(self->context());
}

void unpackChanges(const Grid &self, const TileGrid::Numbers &tiles, py::handle changes,
                   bool numbers) {
  const InputMatrix from = self->input(changes, "changes");
  SharedGrid::enqueue(self, [tiles, from = from.view().row(0), numbers](TileGrid &grid) {
    grid.unpackChanges(tiles, from, partsOf(numbers));
  });
}

/// Numbers of 64 bits without a sign, as those with one of the same bits.
std::vector<int64_t> changedNumbers(const Grid &self, const TileGrid::Numbers &tiles) {
  std::vector<int64_t> numbers;
  SharedGrid::run(self, [&](TileGrid &grid) {
    for (const uint64_t number : grid.changedNumbers(tiles))
      numbers.push_back(static_cast<int64_t>(number));
  });
  return numbers;
}

void restoreNumbers(const Grid &self, const TileGrid::Numbers &tiles,
                    const std::vector<int64_t> &numbers) {
  const std::vector<uint64_t> same(numbers.begin(), numbers.end());
  SharedGrid::run(self, [&](TileGrid &grid) { grid.restoreNumbers(tiles, same); });
}

void computeCells(const Grid &self, const TileGrid::Numbers &tiles) {
  SharedGrid::run(self, [&](TileGrid &grid) { grid.computeCells(tiles); });
}

void releaseWeights(const Grid &self, const TileGrid::Numbers &tiles) {
  SharedGrid::run(self, [&](TileGrid &grid) { grid.releaseWeights(tiles); });
}

}  // namespace

void bindTileGrid(py::module_ &module) {
  using py::arg;
  py::class_<NotedSamples, std::shared_ptr<NotedSamples>>(module, "NotedSamples")
      .def(py::init([](std::vector<uint64_t> numbers) {
             return std::make_shared<NotedSamples>(NotedSamples{std::move(numbers)});
           }),
           arg("numbers"));
  py::class_<SharedGrid, Grid>(module, "TileGrid", py::custom_type_setup(&withoutNew))
      .def("forward", &forward, arg("x"), arg("out"), arg("first") = 0, arg("of") = py::none(),
           arg("evaluation") = false)
      .def("backward", &backward, arg("d"), arg("out"), arg("first") = 0, arg("of") = py::none(),
           arg("evaluation") = false, arg("takes_infinite") = false)
      .def("update", &update, arg("x"), arg("d"), arg("lr"), arg("tiles") = py::none())
      .def("end_batch", &endBatch, arg("lr"), arg("tiles") = py::none())
      .def("follow", &follow, arg("master"))
      .def("take", &take, arg("weights"), arg("is_same") = false)
      .def("note_samples", &noteSamples)
      .def("see", &see, arg("noted"))
      .def("changes_size", &changesSize, arg("tiles"), arg("numbers") = true)
      .def("pack_changes", &packChanges, arg("tiles"), arg("out"), arg("numbers") = true)
      .def("unpack_changes", &unpackChanges, arg("tiles"), arg("changes"), arg("numbers") = true)
      .def("changed_numbers", &changedNumbers, arg("tiles"))
      .def("restore_numbers", &restoreNumbers, arg("tiles"), arg("numbers"))
      .def("compute_cells", &computeCells, arg("tiles"))
      .def("release_weights", &releaseWeights, arg("tiles"));
  module.def(
      "make_tile_grid",
      [](const std::vector<SharedGrid::Placed> &tiles, int64_t outputs, int64_t inputs) {
        return std::make_shared<SharedGrid>(tiles, outputs, inputs);
      },
      arg("tiles"), arg("outputs"), arg("inputs"),
      "The matrix [outputs, inputs] of tiles (tile, first output, first input).");
}

}  // namespace pulsora::bindings
