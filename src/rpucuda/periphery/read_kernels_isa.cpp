#include "numerics/philox_batch.h"
#include "numerics/row_max.h"
#include "periphery/read_kernels.h"

// Lanes are neighbouring lines. Rows are taken in groups of up to eight consecutive samples that
// share their blocks of random words, so that each block is drawn once.

namespace pulsora {
namespace {

constexpr int kTile = 128;

/// Entries [begin, end) of a list whose samples share their blocks.
struct Group {
  int64_t begin;
  int64_t end;
  uint64_t block;
  int32_t round;
};

uint64_t sampleOf(const StageDraws &draws, int64_t row) {
  return draws.firstSample + static_cast<uint64_t>(row);
}

Group groupAt(const RowList &list, const RowState &state, const StageDraws &draws, int64_t begin,
              int64_t end) {
  const int64_t first = list[begin];
  Group group{begin, begin + 1, sampleOf(draws, first) >> 3, state.round[first]};
  while (group.end < end && sampleOf(draws, list[group.end]) >> 3 == group.block &&
         state.round[list[group.end]] == group.round) {
    ++group.end;
  }
  return group;
}

/// The samples that the group needs of the eight samples of a block, as bits.
uint32_t samplesOf(const Group &group, const RowList &list, const StageDraws &draws) {
  uint32_t samples = 0;
  for (int64_t k = group.begin; k < group.end; ++k) samples |= 1U << (sampleOf(draws, list[k]) & 7);
  return samples;
}

struct NormalTile {
  float z[8][kTile];
};

/// `count` lines, rounded up to whole vectors.
int padded(int count) { return (count + kVectorLanes - 1) / kVectorLanes * kVectorLanes; }

/// The normals of `count` lines, for the needed samples of a block; lines up to the end of a vector
/// may get normals too.
PULSORA_HD void fillNormals(NormalTile &tile, RandomKey key, Purpose purpose, int64_t line,
                            int count, uint64_t block, uint32_t index, uint32_t samples) {
  static_assert(kVectorLanes == kPhiloxBatch, "a vector holds the lines of one batch");
  const auto first = static_cast<uint32_t>(line);
  for (int l = 0; l < count; l += kPhiloxBatch) {
    PhiloxBatch batch;
    drawBatch(key, purpose, first + static_cast<uint32_t>(l), block, index, batch);
    for (int q = 0; q < 4; ++q) {
      if ((samples >> (2 * q) & 3U) == 0) continue;
      for (int k = 0; k < kPhiloxBatch; ++k) {
        const NormalPair pair = normalPair16(batch.words[q][k]);
        tile.z[2 * q][l + k] = pair.z0;
        tile.z[2 * q + 1][l + k] = pair.z1;
      }
    }
  }
}

void fillUniforms(float *u, RandomKey key, Purpose purpose, int64_t line, int count,
                  uint64_t sample, uint32_t index) {
  const uint32_t first = static_cast<uint32_t>(line);
  for (int l = 0; l < count; ++l) {
    u[l] = uniform(draw(key, purpose, first + static_cast<uint32_t>(l), sample, index).v[0]);
  }
}

int tileSize(int64_t begin, int64_t end) {
  return static_cast<int>(end - begin < kTile ? end - begin : kTile);
}

void measure(const InputStage &s, int64_t row) {
  const VectorView<const float> values = s.in.row(row);
  const float absMax = absMaxOf<AbsMaxIgnoringNaN>(values);
  if (values.stride == 1) {  // a literal stride makes vector loads
    prepareRow(s, row, {values.data, values.size, 1}, absMax);
  } else {
    prepareRow(s, row, values, absMax);
  }
}

/// Lines [begin, begin + count) of a row, and zeros up to the end of a vector.
void loadTile(float *x, VectorView<const float> row, int64_t begin, int count) {
  const float *from = row.data + begin * row.stride;
  if (row.stride == 1) {
    for (int l = 0; l < count; l += kVectorLanes) {
      loadLanesOf(x + l, from + l, count - l < kVectorLanes ? count - l : kVectorLanes);
    }
  } else {
    for (int l = 0; l < count; ++l) x[l] = from[l * row.stride];
    for (int l = count; l < padded(count); ++l) x[l] = 0.0f;
  }
}

void storeTile(VectorView<float> row, int64_t begin, int count, const float *y) {
  float *to = row.data + begin * row.stride;
  if (row.stride == 1) {
    for (int l = 0; l < count; l += kVectorLanes) {
      storeLanesOf(to + l, y + l, count - l < kVectorLanes ? count - l : kVectorLanes);
    }
  } else {
    for (int l = 0; l < count; ++l) to[l * row.stride] = y[l];
  }
}

/// Stores lines [begin, begin + count) of the row at element `row` of the stage's memory.
void storeConverted(const InputStage &s, int64_t row, int64_t begin, int count, const float *v) {
  if (s.converted) storeTile({s.converted + row, s.in.cols}, begin, count, v);
  if (!s.levels) return;
  int16_t *to = s.levels + row + begin;
  for (int l = 0; l < count; ++l) {
    const float level = v[l] == v[l] ? v[l] : 0.0f;  // no integer is NaN
    to[l] = static_cast<int16_t>(static_cast<int32_t>(level));
  }
}

/// Lines [begin, begin + count) of entry k; z and u are zeros without noise or stochastic rounding.
void convertTile(const InputStage &s, int64_t k, int64_t begin, int count, const float *z,
                 const float *u) {
  const int64_t n = s.in.cols;
  const int64_t row = s.list[k];
  const InputConverter c = s.converter;
  const float scale = s.state.scale[row];
  float x[kTile];
  float v[kTile];
  loadTile(x, s.in.row(row), begin, count);
  for (int first = 0; first < count; first += kVectorLanes) {
    for (int l = first; l < first + kVectorLanes; ++l)
      v[l] = convertedInput(c, x[l], scale, z[l], u[l]);
  }
  if (s.passes == 1) {
    storeConverted(s, k * n, begin, count, v);
    return;
  }
  for (int part = 0; part < 2; ++part) {
    for (int l = 0; l < padded(count); ++l) x[l] = signPart(v[l], part);
    storeConverted(s, (part * s.list.count + k) * n, begin, count, x);
  }
}

/// Buffers that the rows of a stage share.
struct InputTile {
  NormalTile normals = {};
  float zeros[kTile] = {};
  float u[kTile] = {};
};

void convertGroup(const InputStage &s, const Group &group, InputTile &tile) {
  const int64_t n = s.in.cols;
  const StageDraws &d = s.draws;
  const uint32_t index = drawIndex(group.round, 0);
  const uint32_t samples = samplesOf(group, s.list, d);
  const bool noisy = s.converter.noise > 0.0f;
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int count = tileSize(begin, n);
    if (noisy) fillNormals(tile.normals, d.key, d.noise, begin, count, group.block, index, samples);
    for (int64_t k = group.begin; k < group.end; ++k) {
      const uint64_t sample = sampleOf(d, s.list[k]);
      if (s.converter.dac.stochastic) {
        fillUniforms(tile.u, d.key, d.round, begin, count, sample, index);
      }
      convertTile(s, k, begin, count, noisy ? tile.normals.z[sample & 7] : tile.zeros, tile.u);
    }
  }
}

/// The sums of one pass of one row, for the lines of a tile; zeros where there are none.
struct PassTile {
  float sum[kTile];
  float absSum[kTile];
  float lateSum[kTile];
  float squares[kTile];
  float inputSum;

  PULSORA_HD LineSums at(int l) const {
    return {sum[l], absSum[l], lateSum[l], squares[l], inputSum};
  }
};

template <bool kEffects>
void loadPass(PassTile &tile, const OutputStage &s, int64_t r, int64_t begin, int count) {
  const int64_t n = s.out.cols;
  loadTile(tile.sum, {s.sums + r * n, n}, begin, count);
  if constexpr (kEffects) {
    if (s.absSums) loadTile(tile.absSum, {s.absSums + r * n, n}, begin, count);
    if (s.lateSums) loadTile(tile.lateSum, {s.lateSums + r * n, n}, begin, count);
    if (s.squareSums) {
      loadTile(tile.squares, {s.squareSums + r * n, n}, begin, count);
    } else if (s.inputSquares) {
      const float squares = squaresOf(s, r);
      for (int l = 0; l < count; ++l) tile.squares[l] = squares;
    }
    tile.inputSum = inputSumOf(s, r);
  }
}

/// Random numbers of one pass, for the lines of a tile.
struct DrawTile {
  NormalTile weight;
  NormalTile noise;
  float round[kTile];
};

/// Buffers of finishing. Values that an earlier tile left behind the lines of a tile, or where
/// nothing is drawn, have no effect.
struct FinishTile {
  DrawTile draws[2];
  PassTile in[2];
  float lineNoise[kTile];
  float lineOffset[kTile];
  float lineBend[kTile];
  float lineGain[kTile];
};

template <Passes kPasses, bool kEffects>
uint32_t finishTile(const OutputStage &s, int64_t row, int64_t begin, int count,
                    const FinishTile &tile) {
  constexpr int kLast = kPasses == Passes::One ? 0 : 1;
  const ArrayEffects e = s.effects;
  const OutputConverter c = s.converter;
  const float scale = s.state.scale[row] * s.outScale;
  const int z = static_cast<int>(sampleOf(s.draws, row) & 7);
  float y[kTile];
  uint32_t clipped[kVectorLanes] = {};
  for (int first = 0; first < count; first += kVectorLanes) {
    for (int lane = 0; lane < kVectorLanes; ++lane) {
      const int l = first + lane;
      const LineSpread line{tile.lineNoise[l], tile.lineOffset[l], tile.lineBend[l],
                            tile.lineGain[l]};
      LineSums sums[2];
      OutputDraws random[2];
      for (int p = 0; p <= kLast; ++p) {
        const DrawTile &draws = tile.draws[p];
        sums[p] = tile.in[p].at(l);
        random[p] = {draws.weight.z[z][l], draws.noise.z[z][l], draws.round[l]};
      }
      const Reading r = readLine<kPasses, kEffects>(e, c, line, sums, random);
      y[l] = r.value * scale;
      clipped[lane] |= r.clipped & (0U - static_cast<uint32_t>(l < count));
    }
  }
  storeTile(s.out.row(row), begin, count, y);
  uint64_t pairs[kVectorLanes / 2];
  __builtin_memcpy(pairs, clipped, sizeof clipped);
  uint64_t any = 0;
  for (const uint64_t pair : pairs) any |= pair;
  return any != 0 ? 1U : 0U;
}

template <Passes kPasses, bool kEffects>
void finishGroup(const OutputStage &s, const Group &group, FinishTile &tile) {
  constexpr int kPassCount = kPasses == Passes::One ? 1 : 2;
  const StageDraws &d = s.draws;
  const int64_t n = s.out.cols;
  const uint32_t samples = samplesOf(group, s.list, d);
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int count = tileSize(begin, n);
    loadTile(tile.lineNoise, {s.lineNoise, n}, begin, count);
    loadTile(tile.lineOffset, {s.lineOffset, n}, begin, count);
    loadTile(tile.lineBend, {s.lineBend, n}, begin, count);
    for (float &gain : tile.lineGain) gain = 1.0f;
    if (s.lineGain) loadTile(tile.lineGain, {s.lineGain, n}, begin, count);
    for (int p = 0; p < kPassCount; ++p) {
      const uint32_t index = drawIndex(group.round, p);
      DrawTile &draws = tile.draws[p];
      if (s.noisy) {
        fillNormals(draws.noise, d.key, d.noise, begin, count, group.block, index, samples);
      }
      if (s.effects.weightNoise > 0.0f) {
        fillNormals(draws.weight, d.key, d.weight, begin, count, group.block, index, samples);
      }
    }
    for (int64_t k = group.begin; k < group.end; ++k) {
      const int64_t row = s.list[k];
      for (int p = 0; p < kPassCount; ++p) {
        loadPass<kEffects>(tile.in[p], s, p * s.list.count + k, begin, count);
        if (s.converter.adc.stochastic) {
          fillUniforms(tile.draws[p].round, d.key, d.round, begin, count, sampleOf(d, row),
                       drawIndex(group.round, p));
        }
      }
      if (finishTile<kPasses, kEffects>(s, row, begin, count, tile) != 0) s.state.clipped[row] = 1;
    }
  }
}

void finishGroup(const OutputStage &s, const Group &group, FinishTile &tile) {
  switch (s.passes) {
    case Passes::AnalogSum:
      return finishGroup<Passes::AnalogSum, true>(s, group, tile);
    case Passes::DigitalSum:
      return finishGroup<Passes::DigitalSum, true>(s, group, tile);
    default:
      return s.hasEffects ? finishGroup<Passes::One, true>(s, group, tile)
                          : finishGroup<Passes::One, false>(s, group, tile);
  }
}

}  // namespace

template <>
void measureInputs<Isa::PULSORA_ISA>(const InputStage &stage, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) measure(stage, i);
}

template <>
void convertInputs<Isa::PULSORA_ISA>(const InputStage &stage, bool measureFirst, int64_t begin,
                                     int64_t end) {
  InputTile tile;
  int64_t k = begin;
  while (k < end) {
    // Eight rows at a time, so that a row is still in the cache when it is converted.
    const int64_t last = end - k < 8 ? end : k + 8;
    if (measureFirst) {
      for (int64_t i = k; i < last; ++i) measure(stage, i);
    }
    while (k < last) {
      const Group group = groupAt(stage.list, stage.state, stage.draws, k, last);
      convertGroup(stage, group, tile);
      k = group.end;
    }
  }
  if (stage.sums || stage.squares) {
    for (int p = 0; p < stage.passes; ++p) {
      for (int64_t i = begin; i < end; ++i) sumConverted(stage, p * stage.list.count + i);
    }
  }
}

template <>
void convertQuietly<Isa::PULSORA_ISA>(const QuietInput &quiet, int64_t begin, int64_t end) {
  float x[kTile];
  float y[kTile];
  for (int64_t i = begin; i < end; ++i) {
    const float scale = quiet.scale[i];
    for (int64_t first = 0; first < quiet.in.cols; first += kTile) {
      const int count = tileSize(first, quiet.in.cols);
      loadTile(x, quiet.in.row(i), first, count);
      for (int lanes = 0; lanes < count; lanes += kVectorLanes) {
        for (int l = lanes; l < lanes + kVectorLanes; ++l) y[l] = quiet.value(x[l], scale);
      }
      storeTile(quiet.out.row(i), first, count, y);
    }
  }
}

template <>
void finishOutputs<Isa::PULSORA_ISA>(const OutputStage &stage, int64_t begin, int64_t end) {
  FinishTile tile = {};
  int64_t k = begin;
  while (k < end) {
    const Group group = groupAt(stage.list, stage.state, stage.draws, k, end);
    finishGroup(stage, group, tile);
    k = group.end;
  }
}

template <>
void addRows<Isa::PULSORA_ISA>(const ScaledAdder &adder, int64_t begin, int64_t end) {
  const MatrixView<float> to = adder.to;
  if (to.colStride == 1) {  // a literal stride makes vector loads
    const ScaledAdder rowMajorAdder{
        adder.from, adder.alpha, {to.data, to.rows, to.cols, to.rowStride, 1}};
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < to.cols; ++j) rowMajorAdder.add(i, j);
    }
  } else {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < to.cols; ++j) adder.add(i, j);
    }
  }
}

}  // namespace pulsora
