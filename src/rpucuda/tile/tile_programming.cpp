#include "tile/tile_programming.h"

#include "linalg/math_util.h"
#include "tile/tile_impl.h"

namespace pulsora {

bool TileProgramming::program(uint64_t number) {
  tile_.requireFiniteNow(array_.written(), "weights");
  const bool zero = array_.program(tile_.context, number);
  tile_.evaluation = {};
  return zero;
}

void TileProgramming::drift(double time, uint64_t redraw) {
  tile_.reportNonfinite();
  array_.drift(tile_.context, time, redraw);
  tile_.evaluation = {};
}

void TileProgramming::unprogram() {
  array_.unprogram();
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
