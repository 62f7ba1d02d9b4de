#include "adapter_binding.h"

#include <pybind11/stl.h>

#include "tensor.h"
#include "tile/tile_adapter.h"
#include "tile_arguments.h"

namespace pulsora::bindings {
namespace {

/// Destinations of two results, from a pair; None for new arrays.
std::pair<py::object, py::object> pairOf(py::handle out) {
  if (out.is_none()) return {py::none(), py::none()};
  return out.cast<std::pair<py::object, py::object>>();
}

py::tuple forwardGated(SharedTile &self, py::handle x, py::handle gate, py::handle first,
                       py::handle of, bool evaluation, py::handle out) {
  const BatchPart part = readPart(first, of, evaluation);
  const InputMatrix in = inputOf(self, x, "x");
  const InputMatrix gates = inputOf(self, gate, "gate");
  const auto to = pairOf(out);
  OutputMatrix y(to.first, in.view().rows, self.dSize(), in, self.context());
  OutputMatrix read(to.second, in.view().rows, gates.view().cols, in, self.context());
  self.enqueue([in = in.view(), gates = gates.view(), y = y.view(), read = read.view(),
                part](Tile &tile) { tile.adapter().forward(in, gates, y, read, part); });
  return py::make_tuple(y.result(self.context()), read.result(self.context()));
}

py::tuple backwardGated(SharedTile &self, py::handle d, py::handle gate, py::handle read,
                        py::handle first, py::handle of, bool evaluation, py::handle out) {
  const BatchPart part = readPart(first, of, evaluation);
  const InputMatrix in = inputOf(self, d, "d");
  const InputMatrix gates = inputOf(self, gate, "gate");
  const InputMatrix reads = inputOf(self, read, "read");
  const auto to = pairOf(out);
  OutputMatrix dx(to.first, in.view().rows, self.xSize(), in, self.context());
  OutputMatrix gradient(to.second, in.view().rows, gates.view().cols, in, self.context());
  self.enqueue([in = in.view(), gates = gates.view(), reads = reads.view(), dx = dx.view(),
                gradient = gradient.view(), part](Tile &tile) {
    tile.adapter().backward(in, gates, reads, dx, gradient, part);
  });
  return py::make_tuple(dx.result(self.context()), gradient.result(self.context()));
}

void updateGated(SharedTile &self, py::handle x, py::handle d, py::handle gate, py::handle lr) {
  const float rate = readLearningRate(lr);
  const InputMatrix xIn = inputOf(self, x, "x");
  const InputMatrix dIn = inputOf(self, d, "d");
  const InputMatrix gates = inputOf(self, gate, "gate");
  self.run([&](Tile &tile) {
    tile.adapter().update(xIn.view(), dIn.view(), gates.view(), rate, BatchEnd::Later,
                          serveSignals);
  });
}

void mergeAdapter(SharedTile &self, py::handle weights) {
  if (weights.is_none()) {
    self.run([](Tile &tile) { tile.adapter().merge(); });
    return;
  }
  const InputMatrix in(weights, "weights", self.context());
  PULSORA_CHECK(InputError, !in.isVector(), "weights is a matrix, but a vector was given");
  self.run([&](Tile &tile) { tile.adapter().merge(in.view()); });
}

void setReinitVectors(SharedTile &self, py::handle vectors) {
  const InputMatrix in(vectors, "vectors", self.context());
  self.run([&](Tile &tile) { tile.adapter().setReinitVectors(in.view()); });
}

}  // namespace

void bindAdapter(py::class_<SharedTile> &made) {
  using py::arg;
  made.def_property_readonly(
          "has_adapter",
          [](SharedTile &self) { return self.run([](Tile &tile) { return tile.hasAdapter(); }); })
      .def_property_readonly("adapter_rank",
                             [](SharedTile &self) {
                               return self.look([](Tile &tile) { return tile.adapter().rank(); });
                             })
      .def_property_readonly(
          "adapter_tolerance",
          [](SharedTile &self) {
            return self.look([](Tile &tile) { return tile.adapter().tolerance(); });
          })
      .def("forward_gated", &forwardGated, arg("x"), arg("gate"), arg("first") = 0,
           arg("of") = py::none(), arg("evaluation") = false, arg("out") = py::none())
      .def("backward_gated", &backwardGated, arg("d"), arg("gate"), arg("read"), arg("first") = 0,
           arg("of") = py::none(), arg("evaluation") = false, arg("out") = py::none())
      .def("update_gated", &updateGated, arg("x"), arg("d"), arg("gate"), arg("lr"))
      .def("transfer",
           [](SharedTile &self) { self.run([](Tile &tile) { tile.adapter().transfer(); }); })
      .def("merge_adapter", &mergeAdapter, arg("weights") = py::none())
      .def("set_reinit_vectors", &setReinitVectors, arg("vectors"));
}

}  // namespace pulsora::bindings
