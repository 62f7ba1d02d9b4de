#include "tile/tile_programming.h"

#include <map>
#include <tuple>

#include "core/backend.h"
#include "core/batched_launches.h"
#include "linalg/math_util.h"
#include "tile/grid_functors.h"
#include "tile/tile_impl.h"

namespace pulsora {

void TileProgramming::program(uint64_t number, uint64_t chip, double time) {
  programAll({*this}, number, chip, time);
}

// Calls call(arrays, context) for the arrays of each backend, device and stream.
template <class Call>
void TileProgramming::byStream(const std::vector<TileProgramming> &arrays, const Call &call) {
  std::map<std::tuple<Backend, int, void *>, std::vector<TileProgramming>> groups;
  for (const TileProgramming &each : arrays) {
    const Context &context = each.tile_.context;
    groups[{context.backend, context.device, context.stream}].push_back(each);
  }
  for (const auto &[place, group] : groups) call(group, group.front().tile_.context);
}

// Calls call(array) for each array; on a GPU, their launches are merged.
template <class Call>
void TileProgramming::together(const std::vector<TileProgramming> &arrays, const Call &call) {
  byStream(arrays, [&](const auto &group, const Context &context) {
    if (context.onCpu()) {
      for (const TileProgramming &each : group) call(each);
      return;
    }
    const CudaScope scope(context.device);
    BatchedLaunches().run(group.size(), [&](size_t i) { call(group[i]); });
  });
}

// What Tile::Impl::reportNonfinite() says of each array and, if weights are checked, InputError
// unless all are finite. A GPU is waited for once.
void TileProgramming::requireFiniteAll(const std::vector<TileProgramming> &arrays,
                                       bool checksWeights) {
  byStream(arrays, [&](const auto &group, const Context &context) {
    if (context.onCpu()) {
      for (const TileProgramming &each : group)
        if (checksWeights) each.tile_.requireFiniteNow(each.array_.written(), "weights");
      return;
    }
    const CudaScope scope(context.device);
    Buffer<uint32_t> flags(context, 2 * static_cast<int64_t>(group.size()));
    BatchedLaunches().run(group.size(), [&](size_t i) {
      const Context &own = group[i].tile_.context;
      uint32_t *to = flags.data() + 2 * i;
      forEach(own, 1, FlagTaker{own.nonfiniteFlag, to});
      if (checksWeights) requireFinite(own, group[i].array_.written(), "weights");
      forEach(own, 1, FlagTaker{own.nonfiniteFlag, to + 1});
    });
    std::vector<uint32_t> seen(2 * group.size());
    detail::copyToHost(context, seen.data(), flags.data(), flags.bytes());
    bool finite = true;
    for (size_t i = 0; i < group.size(); ++i) {
      if (seen[2 * i] == 0 && seen[2 * i + 1] != 0) {
        group[i].tile_.clearNonfinite();
        finite = false;
      }
    }
    for (size_t i = 0; i < group.size(); ++i)
      if (seen[2 * i] != 0) group[i].tile_.reportNonfinite();
    PULSORA_CHECK(InputError, finite,
                  "weights has values that are not finite; nothing was written");
  });
}

void TileProgramming::programAll(const std::vector<TileProgramming> &arrays, uint64_t number,
                                 uint64_t chip, double time) {
  for (const TileProgramming &each : arrays) each.array_.requireTime(time);
  requireFiniteAll(arrays, true);
  together(arrays, [&](const TileProgramming &each) {
    const ScratchOperation operation(each.tile_.context);
    each.array_.program(each.tile_.context, {number, time, 0, chip});
    each.tile_.evaluation = {};
  });
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
  const ScratchOperation operation(tile_.context);
  array_.programMeasured(tile_.context, values.data, number);
  tile_.evaluation = {};
}

void TileProgramming::programMany(const std::vector<ProgrammedPoint> &points) {
  tile_.requireFiniteNow(array_.written(), "weights");
  const ScratchOperation operation(tile_.context);
  array_.programMany(tile_.context, points);
  tile_.evaluation = {};
}

void TileProgramming::convertInputs(MatrixView<const float> x, MatrixView<float> out) {
  requireShape(x, anyBatch(), {"x_size", tile_.device->xSize()}, "x", "convertInputs");
  requireShape(out, batchOf(x), {"x_size", tile_.device->xSize()}, "out", "convertInputs");
  const ScratchOperation operation(tile_.context);
  array_.convertInputs(tile_.context, x, out);
}

std::vector<float> TileProgramming::scales() const { return array_.scales(tile_.context); }

std::vector<float> TileProgramming::compensation() const {
  const ScratchOperation operation(tile_.context);
  return array_.compensation(tile_.context);
}

void TileProgramming::setAdcGains(const std::vector<float> &gains) {
  const ScratchOperation operation(tile_.context);
  array_.setAdcGains(tile_.context, gains);
}

std::vector<float> TileProgramming::adcGains() const { return array_.adcGains(tile_.context); }

void TileProgramming::drift(double time, uint64_t redraw) { driftAll({*this}, time, redraw); }

void TileProgramming::driftAll(const std::vector<TileProgramming> &arrays, double time,
                               uint64_t redraw) {
  for (const TileProgramming &each : arrays) each.requireDrift(time);
  requireFiniteAll(arrays, false);
  together(arrays, [&](const TileProgramming &each) {
    const ScratchOperation operation(each.tile_.context);
    each.array_.drift(each.tile_.context, time, redraw);
    each.tile_.evaluation = {};
  });
}

void TileProgramming::unprogram() {
  array_.unprogram(tile_.context);
  tile_.evaluation = {};
}

void TileProgramming::take(MatrixView<const float> weights, bool isSame) {
  requireShape(weights, {"d_size", tile_.device->dSize()}, {"x_size", tile_.device->xSize()},
               "weights", "take");
  requireFinite(tile_.context, weights, "weights");
  array_.take(tile_.context, weights, isSame);
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
