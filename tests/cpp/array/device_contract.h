#pragma once

#include <cmath>
#include <map>
#include <stdexcept>

#include "device_list.h"
#include "devices/pulse_rule.h"
#include "util/device_test_util.h"

// Shared code of the contract tests that run over every registered device model. A new model is
// tested before its author writes a test.

namespace pulsora::testing {

inline constexpr RandomKey kKey{0x1234ABCDU, 0x89EF5678U};

// The typed side of a model: the definition of an update, and its cells before rounding.

struct TypedModel {
  std::string name;
  std::vector<float> (*reference)(const DeviceParams &, const PulsedDevice &,
                                  const std::vector<const TestWords *> &);
  std::vector<std::vector<float>> (*sampled)(const DeviceParams &, int64_t cells, int64_t cols);
  std::vector<float> nominal;
};

template <class Device>
typename Device::Cell cellAt(const std::vector<std::vector<float>> &planes, size_t i) {
  typename Device::Cell cell;
  size_t plane = 0;
  cell.members([&](const char *, float &value) { value = planes[plane++][i]; });
  return cell;
}

/// Weights after the batches, cell by cell and sample by sample, by the rule of pulse_rule.h.
template <class Device>
std::vector<float> referenceUpdate(const DeviceParams &params, const PulsedDevice &device,
                                   const std::vector<const TestWords *> &batches) {
  const auto &p = params.as<typename Device::Params>();
  const auto planes = storedCells(device);
  std::vector<float> weights = storedWeights(device);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto response = Device::response(cellAt<Device>(planes, i), p);
    const auto row = static_cast<int64_t>(i) / device.cols();
    const auto col = static_cast<int64_t>(i) % device.cols();
    for (const TestWords *batch : batches) {
      const PulseWords words = batch->view();
      for (int64_t s = 0; s < words.samples; ++s) {
        const int n = batch->coincidences(s, row, col);
        const uint64_t sample = words.firstSample + static_cast<uint64_t>(s);
        const float z = normalOfSample(kKey, Purpose::CycleNoise, i, sample);
        weights[i] =
            applyPulses<Device>(weights[i], std::abs(n), n > 0, response, p, z, kKey, i, sample);
      }
    }
  }
  return weights;
}

template <class Device>
std::vector<std::vector<float>> sampledCells(const DeviceParams &params, int64_t cells,
                                             int64_t cols) {
  const auto &p = params.as<typename Device::Params>();
  std::vector<std::vector<float>> planes;
  for (int64_t i = 0; i < cells; ++i) {
    CellDraws draws(kKey, static_cast<uint64_t>(i));
    typename Device::Cell cell = Device::construct(p, draws, i % cols == cols - 1);
    size_t plane = 0;
    cell.members([&](const char *, float &value) {
      if (planes.size() <= plane) planes.emplace_back();
      planes[plane++].push_back(value);
    });
  }
  return planes;
}

template <class... Devices>
std::vector<TypedModel> typedModels(TypeList<Devices...>) {
  const auto nominal = [](auto cell) {
    std::vector<float> values;
    cell.members([&](const char *, float &value) { values.push_back(value); });
    return values;
  };
  return {TypedModel{Devices::kName, &referenceUpdate<Devices>, &sampledCells<Devices>,
                     nominal(typename Devices::Cell{})}...};
}

inline Context cpu(int threads = 1, Isa isa = bestIsa()) {
  Context context;
  context.cpu.threads = threads;
  context.cpu.isa = isa;
  return context;
}

class DeviceContract : public ::testing::TestWithParam<std::string> {
 protected:
  /// Parameters under which every term of a model counts, with `values` on top.
  DeviceParams params(const Value::Map &values = {}) const {
    static const std::map<std::string, Value::Map> kLively = {
        {"LinearStep", {{"gamma_up", 0.3}, {"gamma_down", 0.5}, {"gamma_up_dtod", 0.1}}},
        {"SoftBoundsReference",
         {{"reference_std", 0.05},
          {"slope_up_dtod", 0.1},
          {"slope_down_dtod", 0.1},
          {"subtract_symmetry_point", true}}},
        {"ExpStep", {{"dw_min_std_add", 0.001}, {"dw_min_std_slope", 0.001}}},
        {"PowStep", {{"pow_gamma", 1.7}, {"pow_up_down_dtod", 0.1}}},
        {"PiecewiseStep",
         {{"piecewise_up", Value::List{0.1, 0.5, 1.0, 0.3, 0.1}},
          {"piecewise_down", Value::List{0.5, 2.0}}}},
        {"TableStep",
         {{"table_w", Value::List{-0.5, -0.3, 0.1, 0.2, 0.6}},
          {"table_up", Value::List{0.1, 0.5, 1.0, 0.3, 0.1}},
          {"table_down", Value::List{0.2, 0.9, 1.1, 1.5, 2.0}},
          {"table_std_up", Value::List{0.5, 1.0, 1.0, 2.0, 1.0}},
          {"table_curve", "cubic"}}},
    };
    Value::Map all;
    if (const auto found = kLively.find(GetParam()); found != kLively.end()) all = found->second;
    all["up_down_dtod"] = Value(0.05);
    for (const auto &[name, value] : values) all[name] = value;
    return makeParams(GetParam(), all);
  }
  const TypedModel &typed() const {
    static const std::vector<TypedModel> kModels = typedModels(AllDevices{});
    for (const TypedModel &model : kModels) {
      if (model.name == GetParam()) return model;
    }
    throw std::logic_error("not in the list of devices: " + GetParam());
  }
  std::vector<float> nominalCell() const { return typed().nominal; }
};

/// Weights from -0.7 to 0.7, some beyond a cell's bounds.
inline float startWeight(int64_t i) { return 0.7f * static_cast<float>(i % 101) / 50.0f - 0.7f; }

/// All registered models, and the names of their tests.
inline std::vector<std::string> modelNames() {
  std::vector<std::string> names;
  for (const DeviceModel &model : deviceModels()) names.push_back(model.name);
  return names;
}
inline std::string testName(const ::testing::TestParamInfo<std::string> &model) {
  return model.param;
}

}  // namespace pulsora::testing
