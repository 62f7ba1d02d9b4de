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

uint64_t readNumber(py::handle number) {
  return readArgument<uint64_t>(number, "number", between(0, double(kMostProgrammings)));
}

/// Calls work(arrays) of these tiles, which may not run anything else in the meantime.
template <class Work>
void withArrays(const std::vector<SharedTile *> &tiles, const Work &work) {
  if (tiles.empty()) return;
  SharedTile::runTogether(tiles, [&] {
    std::vector<TileProgramming> arrays;
    arrays.reserve(tiles.size());
    for (SharedTile *tile : tiles) arrays.push_back(tile->whole()->programming());
    work(arrays);
  });
}

void programMeasured(SharedTile &self, py::handle conductances, py::handle number) {
  const uint64_t which = readNumber(number);
  const InputMatrix in(conductances, "conductances", self.context());
  self.run([&](Tile &tile) { tile.programming().programMeasured(in.view(), which); });
}

double readTime(py::handle time, const char *since = "the end of programming") {
  Value given = toValue(time, "time");
  const double seconds = given.integer() ? static_cast<double>(*given.integer())
                                         : (given.real() ? *given.real() : -1.0);
  PULSORA_CHECK(ConfigError, std::isfinite(seconds) && seconds >= 0.0, "time is ", given.describe(),
                "; give seconds since ", since, ", a finite number >= 0");
  return seconds;
}

void program(SharedTile &self, py::handle number, py::handle chip, py::handle time) {
  const uint64_t which = readNumber(number);
  const auto where = readArgument<uint64_t>(chip, "chip", between(0, double(kMostChips)));
  const double seconds = readTime(time);
  self.run([&](Tile &tile) { tile.programming().program(which, where, seconds); });
}

void programTiles(const std::vector<SharedTile *> &tiles, py::handle number, py::handle chip,
                  py::handle time) {
  const uint64_t which = readNumber(number);
  const auto where = readArgument<uint64_t>(chip, "chip", between(0, double(kMostChips)));
  const double seconds = readTime(time);
  withArrays(tiles, [&](const auto &arrays) {
    TileProgramming::programAll(arrays, which, where, seconds);
  });
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

void driftTiles(const std::vector<SharedTile *> &tiles, py::handle time, py::handle redraw) {
  const double seconds = readTime(time);
  const auto reading = readArgument<uint64_t>(redraw, "redraw", between(0, double(kMostRedraws)));
  withArrays(tiles,
             [&](const auto &arrays) { TileProgramming::driftAll(arrays, seconds, reading); });
}

double readAge(py::handle time) { return readTime(time, "the last pulse"); }

void requireAge(SharedTile &self, py::handle time) {
  const double seconds = readAge(time);
  self.run([&](Tile &tile) { tile.requireAge(seconds); });
}

void driftCells(SharedTile &self, py::handle time, py::handle redraw, bool fromNow) {
  const double seconds = readAge(time);
  const auto reading = readArgument<uint64_t>(redraw, "redraw", between(0, double(kMostRedraws)));
  const AgeFrom from = fromNow ? AgeFrom::Now : AgeFrom::LastPulse;
  self.run([&](Tile &tile) { tile.drift(seconds, reading, from); });
}

std::vector<std::pair<double, uint64_t>> ages(SharedTile &self) {
  std::vector<std::pair<double, uint64_t>> given;
  for (const Age &age : self.run([](Tile &tile) { return tile.ages(); }))
    given.emplace_back(age.time, age.redraw);
  return given;
}

void setAges(SharedTile &self, const std::vector<std::pair<double, uint64_t>> &given) {
  std::vector<Age> ages;
  ages.reserve(given.size());
  for (const auto &[time, redraw] : given) ages.push_back({time, redraw});
  self.run([&](Tile &tile) { tile.setAges(ages); });
}

py::object retention(SharedTile &self) {
  return fromValue(Value(self.run([](Tile &tile) { return tile.retention(); })));
}

/// `points` are pairs of a number and a time.
void programMany(SharedTile &self, const std::vector<std::pair<py::object, py::object>> &points,
                 py::handle chip) {
  const auto where = readArgument<uint64_t>(chip, "chip", between(0, double(kMostChips)));
  std::vector<ProgrammedPoint> seen;
  seen.reserve(points.size());
  for (const auto &[number, time] : points)
    seen.push_back({readNumber(number), readTime(time), 0, where});
  self.run([&](Tile &tile) { tile.programming().programMany(seen); });
}

py::object converted(SharedTile &self, py::handle x, py::handle out) {
  const InputMatrix in = inputOf(self, x, "x");
  OutputMatrix to(out, in.view().rows, self.xSize(), in, self.context());
  self.enqueue(
      [in = in.view(), to = to.view()](Tile &tile) { tile.programming().convertInputs(in, to); });
  return to.result(self.context());
}

void take(SharedTile &self, py::handle weights, bool isSame) {
  const InputMatrix in = inputOf(self, weights, "weights");
  self.enqueue([in = in.view(), isSame](Tile &tile) { tile.programming().take(in, isSame); });
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
    bool measured;
    ProgrammedPoint point;
  };
  const Seen seen = self.run([](Tile &tile) {
    const TileProgramming array = tile.programming();
    return Seen{array.isProgrammed(), array.isStale(), array.isMeasured(), array.point()};
  });
  if (!seen.is) return py::none();
  py::dict values;
  values["number"] = seen.point.number;
  values["time"] = seen.point.time;
  values["redraw"] = seen.point.redraw;
  values["chip"] = seen.point.chip;
  values["stale"] = seen.stale;
  values["measured"] = seen.measured;
  return values;
}

}  // namespace

void bindProgramming(py::class_<SharedTile> &tile) {
  using py::arg;
  tile.def_property_readonly("is_programmable",
                             [](SharedTile &self) {
                               return self.run([](Tile &each) { return each.isProgrammable(); });
                             })
      .def_property_readonly(
          "conductance_devices",
          [](SharedTile &self) {
            return self.run([](Tile &each) { return each.programming().devicesOfCell(); });
          })
      .def("program", &program, arg("number"), arg("chip") = 0, arg("time") = 0.0)
      .def("program_measured", &programMeasured, arg("conductances"), arg("number"))
      .def("program_many", &programMany, arg("points"), arg("chip"))
      .def("converted", &converted, arg("x"), arg("out") = py::none())
      .def("require_drift", &requireDrift, arg("time"))
      .def("drift", &drift, arg("time"), arg("redraw"))
      .def("unprogram",
           [](SharedTile &self) { self.run([](Tile &each) { each.programming().unprogram(); }); })
      .def_property_readonly(
          "retains",
          [](SharedTile &self) { return self.run([](Tile &each) { return each.retains(); }); })
      .def("require_age", &requireAge, arg("time"))
      .def("drift_cells", &driftCells, arg("time"), arg("redraw"), arg("from_now") = false)
      .def_property("ages", &ages, &setAges)
      .def("retention", &retention)
      .def("age_compensation",
           [](SharedTile &self) {
             return self.run([](Tile &each) { return each.ageCompensation(); });
           })
      .def("take", &take, arg("weights"), arg("is_same") = false)
      .def("written", &written)
      .def("conductances", &conductances, arg("which"))
      .def_property_readonly(
          "is_programmed",
          [](SharedTile &self) {
            return self.look([](Tile &each) { return each.programming().isProgrammed(); });
          })
      .def("programmed_point", &point)
      .def("require_current",
           [](SharedTile &self) {
             self.run([](Tile &each) { each.programming().requireCurrent(); });
           })
      .def("scales",
           [](SharedTile &self) {
             return self.run([](Tile &each) { return each.programming().scales(); });
           })
      .def("adc_gains",
           [](SharedTile &self) {
             return self.run([](Tile &each) { return each.programming().adcGains(); });
           })
      .def(
          "set_adc_gains",
          [](SharedTile &self, const std::vector<float> &gains) {
            self.run([&](Tile &each) { each.programming().setAdcGains(gains); });
          },
          arg("gains"))
      .def("compensation", [](SharedTile &self) {
        return self.run([](Tile &each) { return each.programming().compensation(); });
      });
}

void bindProgrammingOfTiles(py::module_ &core) {
  using py::arg;
  core.def("program_tiles", &programTiles, arg("tiles"), arg("number"), arg("chip") = 0,
           arg("time") = 0.0);
  core.def("drift_tiles", &driftTiles, arg("tiles"), arg("time"), arg("redraw"));
}

}  // namespace pulsora::bindings
