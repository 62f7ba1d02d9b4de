#pragma once

#include <string>
#include <vector>

#include "array/pulsed_device.h"
#include "cuda/cuda_test_util.h"
#include "pulses/bit_line_maker.h"

namespace pulsora::testing {

/// One array of a list, and its mini-batches of `samples` samples each, none if `samples` is 0.
struct ListedArray {
  DeviceParams device;
  int64_t rows, cols;
  int desiredBl = 31;
  int64_t samples = 9;
};

/// The arrays after three mini-batches: with all arrays of a mini-batch handed to
/// applyPulsesToEach(), or one after another to applyPulses().
inline std::vector<State> updatedArrays(const Context &context,
                                        const std::vector<ListedArray> &list, bool asList) {
  std::vector<PulsedDevice> arrays;
  arrays.reserve(list.size());
  for (size_t k = 0; k < list.size(); ++k)
    arrays.emplace_back(context, list[k].device, list[k].rows, list[k].cols,
                        makeKey(7, 3, static_cast<uint32_t>(k)));
  std::vector<BitLineMaker> makers(list.size());
  for (uint64_t n = 0; n < 3; ++n) {
    std::vector<ArrayPulses> pulses;
    for (size_t k = 0; k < list.size(); ++k) {
      const ListedArray &a = list[k];
      const DeviceBatch on(context, trainingBatch(a.samples, a.cols, a.rows, n == 1, 10 * k + n));
      UpdateParameters update;
      update.desired_bl = a.desiredBl;
      makers[k].makeWords(context, on.x.view(), on.d.view(), 0.05f, a.device.granularity(), update,
                          makeKey(7, 4, static_cast<uint32_t>(k)),
                          n * static_cast<uint64_t>(a.samples));
      pulses.push_back({&arrays[k], &makers[k].words()});
    }
    if (asList) {
      PulsedDevice::applyPulsesToEach(context, pulses.data(), static_cast<int>(pulses.size()));
    } else {
      for (const ArrayPulses &p : pulses) p.array->applyPulses(context, *p.words);
    }
  }
  std::vector<State> states(list.size());
  for (size_t k = 0; k < list.size(); ++k) arrays[k].saveTo(context, states[k], "");
  return states;
}

/// A list leaves the bits of its arrays one by one, and each array has moved that has samples.
inline void expectListIsOneByOne(const Context &context, const std::vector<ListedArray> &list) {
  const std::vector<State> together = updatedArrays(context, list, true);
  const std::vector<State> apart = updatedArrays(context, list, false);
  for (size_t k = 0; k < list.size(); ++k) {
    EXPECT_TRUE(sameState(together[k], apart[k])) << "array " << k << " of " << list.size();
    EXPECT_EQ(together[k].counter("pulses") > 0, list[k].samples > 0) << "array " << k;
  }
}

}  // namespace pulsora::testing
