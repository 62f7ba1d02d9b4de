#pragma once

#include <vector>

#include "array/pulsed_device.h"
#include "cuda/cuda_test_util.h"
#include "pulses/bit_line_maker.h"

// Reads, pulses and resets of lines on any backend, for the tests of the CPU and of the GPU.

namespace pulsora::testing {

/// Results of a run: what visits saw, and the array afterwards.
struct LineRun {
  std::vector<float> seen;
  State state;
};

/// Runs of a mini-batch of kSamples samples with a visit of lines at every third sample.
constexpr int64_t kSamples = 21;
constexpr int64_t kEvery = 3;
constexpr int64_t kFirstTap = 1;

struct LineCase {
  DeviceParams device;
  int64_t rows, cols;
  bool columns;
  int64_t together = 1;
  bool random = false;
  float reset = 0.0f;
  int desiredBl = 31;

  int64_t lines() const { return columns ? cols : rows; }
  int64_t others() const { return columns ? rows : cols; }
  LineVisits visits(int64_t count) const {
    LineVisits v;
    v.lines = lines();
    v.count = count;
    v.first = static_cast<uint64_t>(5 * together);
    v.origin = 2;
    v.together = together;
    v.random = random;
    v.key = makeKey(7, 3, 9);
    return v;
  }
};

inline int64_t eventsWithin(int64_t samples) {
  return samples <= kFirstTap ? 0 : 1 + (samples - kFirstTap - 1) / kEvery;
}

/// A mini-batch with taps; `cut`: in pieces that end at each event, whose lines are then read and
/// reset one by one in ordinary calls.
inline LineRun tappedRun(const Context &context, const LineCase &c, bool cut) {
  PulsedDevice array(context, c.device, c.rows, c.cols, makeKey(7, 3, 1));
  const Batch batch = trainingBatch(kSamples, c.cols, c.rows, c.desiredBl == 1, 4);
  const int64_t events = eventsWithin(kSamples);
  const LineVisits visits = c.visits(events * c.together);
  DeviceMatrix seen(context, visits.count, c.others());
  BitLineMaker maker;
  UpdateParameters update;
  update.desired_bl = c.desiredBl;
  const auto make = [&](int64_t begin, int64_t end) {
    const DeviceMatrix x(context, batch.xRows(begin, end));
    const DeviceMatrix d(context, batch.dRows(begin, end));
    maker.makeWords(context, x.view(), d.view(), 0.05f, c.device.granularity(), update,
                    makeKey(7, 3, 2), 100 + static_cast<uint64_t>(begin));
    return maker.words();
  };
  if (!cut) {
    LineTaps taps{};
    taps.visits = visits;
    taps.columns = c.columns;
    taps.firstTap = kFirstTap;
    taps.every = kEvery;
    taps.reset.probability = c.reset;
    taps.reset.firstEvent = 70;
    array.applyPulses(context, make(0, kSamples), taps, seen.values.data());
  } else {
    int64_t done = 0;
    for (int64_t e = 0; e < events; ++e) {
      const int64_t end = kFirstTap + e * kEvery + 1;
      array.applyPulses(context, make(done, end));
      done = end;
      for (int64_t v = e * c.together; v < (e + 1) * c.together; ++v) {
        array.readLines(context, visits.part(v, v + 1), c.columns,
                        seen.values.data() + v * c.others());
      }
      for (int64_t v = e * c.together; v < (e + 1) * c.together; ++v) {
        array.resetLines(context, visits.part(v, v + 1), c.columns, c.reset,
                         70 + static_cast<uint64_t>(v));
      }
    }
    if (done < kSamples) array.applyPulses(context, make(done, kSamples));
  }
  LineRun run;
  run.seen = seen.host(context);
  array.saveTo(context, run.state, "");
  return run;
}

/// Signed counts of pulses for cell k of visit v: none for most cells, up to 40.
inline std::vector<float> someCounts(const LineVisits &visits, int64_t others) {
  std::vector<float> counts(static_cast<size_t>(visits.count * others));
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t word = mixBits(i + 17);
    const auto n = static_cast<float>(word % 41);
    counts[i] = word >> 40 & 1U ? 0.0f : (word >> 41 & 1U ? -n : n);
  }
  return counts;
}

/// Two runs of pulses for `count` visits; `cut`: one visit a call.
inline LineRun pulsedRun(const Context &context, const LineCase &c, int64_t count, bool digital,
                         bool cut) {
  PulsedDevice array(context, c.device, c.rows, c.cols, makeKey(7, 3, 1));
  const LineVisits visits = c.visits(count);
  std::vector<float> counts = someCounts(visits, c.others());
  if (digital) {
    for (float &value : counts) value *= 0.003f;
  }
  const DeviceMatrix values(context, rowMajor<const float>(counts.data(), count, c.others()));
  for (int64_t v = 0; v < count; v += cut ? 1 : count) {
    const LineVisits part = cut ? visits.part(v, v + 1) : visits;
    array.applyToLines(context, {part, c.columns, digital, values.values.data() + v * c.others(),
                                 300 + static_cast<uint64_t>(v)});
  }
  LineRun run;
  array.saveTo(context, run.state, "");
  return run;
}

}  // namespace pulsora::testing
