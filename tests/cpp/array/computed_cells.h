#pragma once

#include <string>
#include <vector>

#include "array/cell_programmer.h"
#include "array/pulsed_device.h"
#include "cuda/cuda_test_util.h"
#include "pulses/bit_line_maker.h"

// A history in which every operation touches the cells of an array, on any backend.

namespace pulsora::testing {

/// Values that an array showed on the way, and its state.
struct CellHistory {
  std::vector<float> seen;
  State state;
};

/// A device with every spread of events, whose cells are "stored" or "computed".
inline DeviceParams spreadDevice(const std::string &model, const std::string &cells,
                                 Value::Map values = {}) {
  const Value::Map spreads{{"lifetime", 30.0},     {"lifetime_dtod", 0.3},
                           {"diffusion", 0.002},   {"diffusion_dtod", 0.2},
                           {"reset", 0.02},        {"reset_dtod", 0.05},
                           {"dw_min", 0.004},      {"corrupt_devices_prob", 0.05},
                           {"up_down_dtod", 0.05}, {"write_noise_std", 0.5}};
  for (const auto &[name, value] : spreads) values.try_emplace(name, value);
  values["cells"] = Value(cells);
  return makeParams(model, std::move(values));
}

/// The history of an array [13, 70]. `inOne`: all of it is one operation, which computes cells
/// once.
inline CellHistory cellHistory(Context context, const DeviceParams &device, bool inOne) {
  constexpr int64_t kRows = 13;
  constexpr int64_t kCols = 70;
  PulsedDevice array(context, device, kRows, kCols, makeKey(7, 3, 1));
  CellHistory history;
  std::optional<ScratchOperation> operation;
  if (inOne) operation.emplace(context);
  const auto look = [&](const float *values, int64_t count) {
    std::vector<float> host(static_cast<size_t>(count));
    detail::copyToHost(context, host.data(), values, host.size() * sizeof(float));
    history.seen.insert(history.seen.end(), host.begin(), host.end());
  };
  const auto lookAtArray = [&] { look(array.weights().data, array.size()); };
  const Batch start = randomBatch(1, kRows * kCols, 1, 3);
  const DeviceMatrix target(context, rowMajor<const float>(start.x.data(), kRows, kCols));
  array.setWeights(context, target.view(), 1);
  lookAtArray();
  BitLineMaker maker;
  for (uint64_t n = 0; n < 2; ++n) {
    const DeviceBatch batch(context, trainingBatch(21, kCols, kRows, n == 1, n));
    maker.makeWords(context, batch.x.view(), batch.d.view(), 0.05f, device.granularity(), {},
                    makeKey(7, 3, 2), 100 * n);
    if (n == 0) {
      array.applyPulses(context, maker.words());
    } else {
      LineTaps taps{};
      taps.visits.lines = kCols;
      taps.visits.count = 4;
      taps.columns = true;
      taps.every = 5;
      taps.reset.probability = 0.5f;
      const DeviceMatrix seen(context, 4, kRows);
      array.applyPulses(context, maker.words(), taps, const_cast<float *>(seen.values.data()));
      look(seen.values.data(), seen.values.size());
    }
    array.relax(context, n);
    lookAtArray();
  }
  LineVisits visits;
  visits.lines = visits.count = kRows;
  array.resetLines(context, visits, false, 0.3f, 5);
  array.applyToLines(context, {visits, false, false, target.values.data(), 400});
  array.resetColumns(context, 60, 20, 0.7f, 9);
  array.resetCells(context, target.values.data(), 10);
  array.addWeights(context, target.view(), 11);
  lookAtArray();
  CellProgrammer programmer;
  programmer.run(context, array, target.view(), {0.01f, 3, 20}, 500);
  lookAtArray();
  array.addReferences(context, 4, makeKey(7, 3, 5));
  const Buffer<float> planes = array.describeCells(context);
  look(planes.data(), planes.size());
  const Buffer<float> points = array.symmetricPoints(context);
  look(points.data(), points.size());
  history.seen.push_back(static_cast<float>(array.saturatedCells(context)));
  history.seen.push_back(static_cast<float>(array.cellsWithoutSymmetricPoint(context)));
  history.seen.push_back(static_cast<float>(array.weightBound(context)));
  array.saveTo(context, history.state, "");
  return history;
}

/// A state without what tells stored cells from computed ones.
inline State withoutCells(State state) {
  for (auto it = state.tensors.begin(); it != state.tensors.end();)
    it = CellPlanes::isOf(it->first) ? state.tensors.erase(it) : std::next(it);
  for (auto it = state.values.begin(); it != state.values.end();)
    it = CellPlanes::isOf(it->first) ? state.values.erase(it) : std::next(it);
  return state;
}

/// Computed cells have the bits of stored ones in every operation.
inline void expectBitsOfStored(const Context &context, const std::string &model,
                               const Value::Map &values = {}) {
  const CellHistory stored = cellHistory(context, spreadDevice(model, "stored", values), false);
  for (const bool inOne : {false, true}) {
    const CellHistory computed =
        cellHistory(context, spreadDevice(model, "computed", values), inOne);
    EXPECT_TRUE(sameBits(stored.seen, computed.seen)) << model;
    EXPECT_TRUE(sameState(withoutCells(stored.state), withoutCells(computed.state))) << model;
    EXPECT_EQ(computed.state.tensors.count("cells"), 0U);
  }
}

}  // namespace pulsora::testing
