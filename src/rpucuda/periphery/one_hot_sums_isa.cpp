#include "core/backend.h"
#include "numerics/philox_batch.h"
#include "periphery/one_hot_sums.h"

// Lanes are neighbouring inputs of one output: 16 blocks of random words hold the normals of 128
// readings.

namespace pulsora {
namespace {

constexpr int kTile = 8 * kPhiloxBatch;
static_assert(kTile % kSumLanes == 0, "a tile begins with the first partial sum");

/// Random numbers of the readings of a tile; zeros where nothing is drawn.
struct TileDraws {
  float weight[kTile] = {};
  float noise[kTile] = {};
  float round[kTile] = {};
};

/// The normals of readings [begin, begin + kTile) of an output.
PULSORA_HD void fillNormals(float (&z)[kTile], const StageDraws &d, Purpose purpose, int64_t line,
                            int64_t begin) {
  const uint64_t first = (d.firstSample + static_cast<uint64_t>(begin)) / 8;
  uint32_t elements[kPhiloxBatch];
  uint32_t blocks[kPhiloxBatch];
  for (uint32_t k = 0; k < kPhiloxBatch; ++k) {
    elements[k] = static_cast<uint32_t>(line);
    blocks[k] = static_cast<uint32_t>(first) + k;
  }
  PhiloxBatch batch;
  drawBatch(d.key, purpose, elements, blocks, 0, drawIndex(0, 0), batch);
  float z0[4][kPhiloxBatch];
  float z1[4][kPhiloxBatch];
  for (int m = 0; m < 4; ++m) {
    for (int k = 0; k < kPhiloxBatch; ++k) {
      const NormalPair pair = normalPair16(batch.words[m][k]);
      z0[m][k] = pair.z0;
      z1[m][k] = pair.z1;
    }
  }
  for (int k = 0; k < kPhiloxBatch; ++k) {
    for (int m = 0; m < 4; ++m) {
      z[8 * k + 2 * m] = z0[m][k];
      z[8 * k + 2 * m + 1] = z1[m][k];
    }
  }
}

PULSORA_HD void fillDraws(TileDraws &draws, const OneHotRead &read, int64_t line, int64_t begin,
                          int count) {
  const OutputStage &s = read.output;
  const StageDraws &d = s.draws;
  if (read.drawsWeights()) fillNormals(draws.weight, d, d.weight, line, begin);
  if (s.noisy) fillNormals(draws.noise, d, d.noise, line, begin);
  if (!s.converter.adc.stochastic) return;
  for (int l = 0; l < count; ++l) draws.round[l] = read.roundingOf(line, begin + l);
}

/// Magnitudes of the readings of inputs [begin, begin + count) by an output.
template <bool kEffects>
PULSORA_HD void readTile(const OneHotRead &read, const DrivenInputs &inputs, int64_t line,
                         int64_t begin, int count, const TileDraws &draws, float (&seen)[kTile]) {
  float u[kTile] = {};
  float late[kTile] = {};
  float w[kTile] = {};
  float variance[kTile] = {};
  for (int l = 0; l < count; ++l) {
    u[l] = inputs.driven[begin + l];
    late[l] = inputs.lateness[begin + l];
    w[l] = read.weights(line, begin + l);
  }
  const bool given = read.variances.data != nullptr;
  for (int l = 0; given && l < count; ++l) variance[l] = read.variances(line, begin + l);
  const OutputStage &s = read.output;
  const ArrayEffects effects = s.effects;
  const OutputConverter converter = s.converter;
  const LineSpread spread = spreadOf(s, line);
  const float scale = s.outScale;
  const bool ofMagnitude = read.noiseOfMagnitude;
  for (int l = 0; l < kTile; ++l) {
    const LineSums sums = sumsOfOne(w[l], u[l], late[l], ofMagnitude, given, variance[l]);
    const LineSums in[2] = {sums, {}};
    const OutputDraws random[2] = {{draws.weight[l], draws.noise[l], draws.round[l]}, {}};
    const Reading r = readLine<Passes::One, kEffects>(effects, converter, spread, in, random);
    seen[l] = pulsora::abs(r.value * scale);
  }
}

template <bool kEffects>
PULSORA_HD double sumOf(const OneHotRead &read, const DrivenInputs &inputs, int64_t line) {
  const int64_t n = read.weights.cols;
  double part[kSumLanes] = {};
  TileDraws draws;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int count = static_cast<int>(n - begin < kTile ? n - begin : kTile);
    float seen[kTile];
    fillDraws(draws, read, line, begin, count);
    readTile<kEffects>(read, inputs, line, begin, count, draws, seen);
    int l = 0;
    for (; l + kSumLanes <= count; l += kSumLanes) {
      for (int k = 0; k < kSumLanes; ++k) part[k] += static_cast<double>(seen[l + k]);
    }
    for (int k = 0; l + k < count; ++k) part[k] += static_cast<double>(seen[l + k]);
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) part[l] += part[l + half];
  }
  return part[0];
}

}  // namespace

template <>
void sumOneHotLines<Isa::PULSORA_ISA>(const OneHotRead &read, const DrivenInputs &inputs,
                                      int64_t begin, int64_t end, double *out) {
  for (int64_t line = begin; line < end; ++line) {
    out[line] =
        read.output.hasEffects ? sumOf<true>(read, inputs, line) : sumOf<false>(read, inputs, line);
  }
}

}  // namespace pulsora
