#include "programming_binding.h"

#include <cmath>
#include <pybind11/stl.h>

#include "tensor.h"
#include "tile/tile_programming.h"
#include "tile_arguments.h"
#include "value.h"

namespace pulsora {

template <>
struct EnumNames<Conductances> {
  static constexpr const char *kNames[] = {"target", "programmed", "now"};
};

}  // namespace pulsora

namespace pulsora::bindings {
namespace {

bool program(SharedTile &self, py::handle number) {
  const auto which =
      readArgument<uint64_t>(number, "number", between(0, double(kMostProgrammings)));
  return self.run([&](Tile &tile) { return tile.programming().program(which); });
}

double readTime(py::handle time) {
  Value given = toValue(time, "time");
  const double seconds = given.integer() ? static_cast<double>(*given.integer())
                                         : (given.real() ? *given.real() : -1.0);
  PULSORA_CHECK(ConfigError, std::isfinite(seconds) && seconds >= 0.0, "time is ", given.describe(),
                "; give seconds since the end of programming, a finite number >= 0");
  return seconds;
}

void requireDrift(SharedTile &self, py::handle time) {
  const double seconds = readTime(time);
  self.run([&](Tile &tile) { tile.programming().requireDrift(seconds); });
}

void drift(SharedTile &self, py::handle time, py::handle redraw) {
  const double seconds = readTime(time);
  const auto reading = readArgument<uint64_t>(redraw, "redraw", between(0, double(kMostRedraws)));
  self.run([&](Tile &tile) { tile.programming().drift(seconds, reading); });
}

void take(SharedTile &self, py::handle weights) {
  const InputMatrix in = inputOf(self, weights, "weights");
  self.enqueue([in = in.view()](Tile &tile) { tile.programming().take(in); });
}

void see(SharedTile &self, py::handle number) {
  const auto batch = readArgument<uint64_t>(number, "number", atLeast(0));
  self.enqueue([batch](Tile &tile) { tile.programming().see(batch); });
}

py::object written(SharedTile &self) {
  OutputMatrix weights(self.dSize(), self.xSize(), self.context());
  self.run([&](Tile &tile) { tile.programming().getWritten(weights.view()); });
  return weights.result(self.context());
}

py::object conductances(SharedTile &self, py::handle which) {
  const auto kind = readArgument<Conductances>(which, "which", anyNumber());
  const int64_t devices = self.run([](Tile &tile) { return tile.programming().devicesOfCell(); });
  OutputMatrix values(self.dSize() * self.xSize(), devices, self.context());
  self.run([&](Tile &tile) { tile.programming().getConductances(kind, values.view()); });
  return values.result(self.context());
}

/// The point that reads see, or None.
py::object point(SharedTile &self) {
  struct Seen {
    bool is;
    bool stale;
    ProgrammedPoint point;
  };
  const Seen seen = self.run([](Tile &tile) {
    const TileProgramming array = tile.programming();
    return Seen{array.isProgrammed(), array.isStale(), array.point()};
  });
  if (!seen.is) return py::none();
  py::dict values;
  values["number"] = seen.point.number;
  values["time"] = seen.point.time;
  values["redraw"] = seen.point.redraw;
  values["stale"] = seen.stale;
  return values;
}

}  // namespace

void bindProgramming(py::class_<SharedTile> &tile) {
  using py::arg;
  tile.def_property_readonly("is_programmable",
                             [](SharedTile &self) {
                               return self.run([](Tile &each) { return each.isProgrammable(); });
                             })
      .def("program", &program, arg("number"))
      .def("require_drift", &requireDrift, arg("time"))
      .def("drift", &drift, arg("time"), arg("redraw"))
      .def("unprogram",
           [](SharedTile &self) { self.run([](Tile &each) { each.programming().unprogram(); }); })
      .def("take", &take, arg("weights"))
      .def("see", &see, arg("number"))
      .def("written", &written)
      .def("conductances", &conductances, arg("which"))
      .def("programmed_point", &point)
      .def("compensation", [](SharedTile &self) {
        return self.run([](Tile &each) { return each.programming().compensation(); });
      });
}

}  // namespace pulsora::bindings
