#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "array/pulsed_device.h"
#include "numerics/half.h"
#include "util/test_words.h"

// Shared code of the tests of device models: arrays read and written as vectors.

namespace pulsora::testing {

inline DeviceParams makeParams(const std::string &model, Value::Map values = {}) {
  values["model"] = Value(model);
  return DeviceParams::read(Value(std::move(values)), "device");
}

/// Whether PULSORA_EXTRA_DEVICES, "Name=/path.h:Name=/path.h", added the model.
inline bool isFromOutside(const std::string &model) {
  return (std::string(":") + PULSORA_EXTRA_DEVICES).find(":" + model + "=") != std::string::npos;
}

/// Every spread between cells set to 0.
inline Value::Map withoutSpread(const std::string &model, Value::Map values = {}) {
  const auto endsWith = [](const std::string &name, const std::string &end) {
    return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  for (const FieldInfo &field : deviceModel(model, "device").fields) {
    if (endsWith(field.name, "_dtod") || field.name == "reference_std")
      values[field.name] = Value(0.0);
  }
  return values;
}

inline std::vector<float> visibleWeights(const PulsedDevice &device) {
  const MatrixView<const float> w = device.weights();
  return std::vector<float>(w.data, w.data + w.size());
}

/// The weights that pulses act on, which write noise hides.
inline std::vector<float> storedWeights(const PulsedDevice &device) {
  State state;
  device.saveTo(Context{}, state, "");
  const Tensor &tensor = state.tensors.at("weights");
  std::vector<float> weights(static_cast<size_t>(tensor.size()));
  std::memcpy(weights.data(), tensor.bytes.data(), tensor.bytes.size());
  return weights;
}

/// The stored planes of an array as numbers, one vector per member of the model's Cell.
inline std::vector<std::vector<float>> storedCells(const PulsedDevice &device) {
  State state;
  device.saveTo(Context{}, state, "");
  const Tensor &tensor = state.tensors.at("cells");
  std::vector<uint16_t> halves(static_cast<size_t>(tensor.size()));
  std::memcpy(halves.data(), tensor.bytes.data(), tensor.bytes.size());
  const auto cells = static_cast<size_t>(device.size());
  std::vector<std::vector<float>> planes(halves.size() / cells, std::vector<float>(cells));
  for (size_t i = 0; i < halves.size(); ++i) planes[i / cells][i % cells] = halfToFloat(halves[i]);
  return planes;
}

struct CellDescription {
  std::vector<float> wMax, wMin, stepUp, stepDown;
};
inline CellDescription describe(const PulsedDevice &device) {
  const Buffer<float> planes = device.describeCells(Context{});
  const auto part = [&](int64_t n) {
    return std::vector<float>(planes.data() + n * device.size(),
                              planes.data() + (n + 1) * device.size());
  };
  return {part(0), part(1), part(2), part(3)};
}

inline void fillWeights(PulsedDevice &device, const std::function<float(int64_t)> &value,
                        uint64_t event = 1) {
  std::vector<float> weights(static_cast<size_t>(device.size()));
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = value(static_cast<int64_t>(i));
  device.setWeights(Context{}, rowMajor<const float>(weights.data(), device.rows(), device.cols()),
                    event);
}

/// Whether two arrays agree to the bit; if not, says how many values differ and which is the first.
inline ::testing::AssertionResult sameBits(const std::vector<float> &a,
                                           const std::vector<float> &b) {
  size_t different = a.size() == b.size() ? 0 : a.size() + b.size();
  size_t first = 0;
  for (size_t i = a.size(); i-- > 0 && a.size() == b.size();) {
    if (bitCast<uint32_t>(a[i]) == bitCast<uint32_t>(b[i])) continue;
    ++different;
    first = i;
  }
  if (different == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << different << " of " << a.size() << " elements differ; first " << first << ": "
         << a[first] << " and " << b[first];
}

struct Sample {
  double mean = 0.0;
  double sd = 0.0;
  double size = 0.0;
  double meanError() const { return sd / std::sqrt(size); }
};
template <class Values>
Sample statistics(const Values &values) {
  Sample s;
  s.size = static_cast<double>(values.size());
  for (const float v : values) s.mean += static_cast<double>(v) / s.size;
  for (const float v : values)
    s.sd += (static_cast<double>(v) - s.mean) * (static_cast<double>(v) - s.mean);
  s.sd = std::sqrt(s.sd / s.size);
  return s;
}

/// The two-sample Kolmogorov-Smirnov statistic.
inline double kolmogorovSmirnov(std::vector<float> a, std::vector<float> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double largest = 0.0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const float at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= at) ++i;
    while (j < b.size() && b[j] <= at) ++j;
    largest = std::max(largest, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                         static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return largest;
}

/// The mean and the standard deviation lie within five standard errors of a normal population's.
template <class Values>
void expectNormal(const Values &values, double mean, double sd) {
  const Sample s = statistics(values);
  EXPECT_NEAR(s.mean, mean, 5.0 * sd / std::sqrt(s.size) + 1e-9);
  EXPECT_NEAR(s.sd, sd, 5.0 * sd / std::sqrt(2.0 * s.size) + 1e-9);
}

}  // namespace pulsora::testing
