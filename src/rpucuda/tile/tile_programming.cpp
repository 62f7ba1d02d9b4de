#include "tile/tile_programming.h"

#include "linalg/math_util.h"
#include "tile/tile_impl.h"

namespace pulsora {

bool TileProgramming::program(uint64_t number, uint64_t chip) {
  tile_.requireFiniteNow(array_.written(), "weights");
  const bool zero = array_.program(tile_.context, number, chip);
  tile_.evaluation = {};
  return zero;
}

void TileProgramming::programMeasured(MatrixView<const float> values, uint64_t number) {
  requireShape(values, {"cells", tile_.device->dSize() * tile_.device->xSize()},
               {"devices", devicesOfCell()}, "conductances", "programMeasured");
  PULSORA_CHECK(InputError, values.isContiguous(),
                "conductances have gaps between their rows; give contiguous memory");
  tile_.requireFiniteNow(values, "conductances");
  std::vector<float> host(static_cast<size_t>(values.size()));
  detail::copyToHost(tile_.context, host.data(), values.data, host.size() * sizeof(float));
  for (const float g : host)
    PULSORA_CHECK(InputError, g >= 0.0f, "conductances have the value ", g,
                  "; give uS, which are not negative");
  tile_.requireFiniteNow(array_.written(), "weights");
  array_.programMeasured(tile_.context, values.data, number);
  tile_.evaluation = {};
}

void TileProgramming::programMany(const std::vector<ProgrammedPoint> &points) {
  tile_.requireFiniteNow(array_.written(), "weights");
  array_.programMany(tile_.context, points);
  tile_.evaluation = {};
}

void TileProgramming::convertInputs(MatrixView<const float> x, MatrixView<float> out) {
  requireShape(x, anyBatch(), {"x_size", tile_.device->xSize()}, "x", "convertInputs");
  requireShape(out, batchOf(x), {"x_size", tile_.device->xSize()}, "out", "convertInputs");
  array_.convertInputs(tile_.context, x, out);
}

std::vector<float> TileProgramming::scales() const { return array_.scales(tile_.context); }

void TileProgramming::drift(double time, uint64_t redraw) {
  tile_.reportNonfinite();
  array_.drift(tile_.context, time, redraw);
  tile_.evaluation = {};
}

void TileProgramming::unprogram() {
  array_.unprogram(tile_.context);
  tile_.evaluation = {};
}

void TileProgramming::take(MatrixView<const float> weights) {
  requireShape(weights, {"d_size", tile_.device->dSize()}, {"x_size", tile_.device->xSize()},
               "weights", "take");
  requireFinite(tile_.context, weights, "weights");
  array_.take(tile_.context, weights);
}

void TileProgramming::getWritten(MatrixView<float> out) const {
  requireShape(out, {"d_size", tile_.device->dSize()}, {"x_size", tile_.device->xSize()}, "out",
               "getWritten");
  tile_.reportNonfinite();
  copy(tile_.context, array_.written(), out);
}

void TileProgramming::getConductances(Conductances which, MatrixView<float> out) {
  requireShape(out, {"cells", tile_.device->dSize() * tile_.device->xSize()},
               {"devices", devicesOfCell()}, "out", "getConductances");
  tile_.reportNonfinite();
  array_.getConductances(tile_.context, which, out.data);
}

}  // namespace pulsora
