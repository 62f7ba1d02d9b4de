#include "periphery/read_kernels.h"

// Lanes are neighbouring lines. Rows are taken in groups of up to eight consecutive samples that
// share their blocks of random words, so that each block is drawn once.

namespace RPU {
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

/// Which of the eight samples of a block the group needs, as bits.
uint32_t samplesOf(const Group &group, const RowList &list, const StageDraws &draws) {
  uint32_t samples = 0;
  for (int64_t k = group.begin; k < group.end; ++k) samples |= 1U << (sampleOf(draws, list[k]) & 7);
  return samples;
}

struct NormalTile {
  float z[8][kTile];
};

/// The normals of `count` lines, for the samples of a block that are needed.
void fillNormals(NormalTile &tile, RandomKey key, Purpose purpose, int64_t line, int count,
                 uint64_t block, uint32_t index, uint32_t samples) {
  uint32_t words[4][kTile];
  const uint32_t first = static_cast<uint32_t>(line);
  for (int l = 0; l < count; ++l) {
    const Philox4 r = draw(key, purpose, first + static_cast<uint32_t>(l), block, index);
    for (int q = 0; q < 4; ++q) words[q][l] = r.v[q];
  }
  for (int q = 0; q < 4; ++q) {
    if ((samples >> (2 * q) & 3U) == 0) continue;
    for (int l = 0; l < count; ++l) {
      const NormalPair pair = normalPair16(words[q][l]);
      tile.z[2 * q][l] = pair.z0;
      tile.z[2 * q + 1][l] = pair.z1;
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
  if (values.stride == 1) {  // a literal stride makes vector loads
    measureRow(s, row, {values.data, values.size, 1});
  } else {
    measureRow(s, row, values);
  }
}

void loadTile(float *x, VectorView<const float> row, int64_t begin, int count) {
  const float *from = row.data + begin * row.stride;
  if (row.stride == 1) {
    for (int l = 0; l < count; ++l) x[l] = from[l];
  } else {
    for (int l = 0; l < count; ++l) x[l] = from[l * row.stride];
  }
}

void storeTile(VectorView<float> row, int64_t begin, int count, const float *y) {
  float *to = row.data + begin * row.stride;
  if (row.stride == 1) {
    for (int l = 0; l < count; ++l) to[l] = y[l];
  } else {
    for (int l = 0; l < count; ++l) to[l * row.stride] = y[l];
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
  loadTile(x, s.in.row(row), begin, count);
  float *first = s.converted + k * n + begin;
  for (int l = 0; l < count; ++l) first[l] = convertedInput(c, x[l], scale, z[l], u[l]);
  if (s.passes == 1) return;
  float *second = first + s.list.count * n;
  for (int l = 0; l < count; ++l) second[l] = signPart(first[l], 1);
  for (int l = 0; l < count; ++l) first[l] = signPart(first[l], 0);
}

void convertGroup(const InputStage &s, const Group &group) {
  const int64_t n = s.in.cols;
  const StageDraws &d = s.draws;
  const uint32_t index = drawIndex(group.round, 0);
  const uint32_t samples = samplesOf(group, s.list, d);
  const bool noisy = s.converter.noise > 0.0f;
  NormalTile normals;
  float zeros[kTile] = {};
  float u[kTile] = {};
  for (int64_t begin = 0; begin < n; begin += kTile) {
    const int count = tileSize(begin, n);
    if (noisy) fillNormals(normals, d.key, d.noise, begin, count, group.block, index, samples);
    for (int64_t k = group.begin; k < group.end; ++k) {
      const uint64_t sample = sampleOf(d, s.list[k]);
      if (s.converter.dac.stochastic) {
        fillUniforms(u, d.key, d.round, begin, count, sample, index);
      }
      convertTile(s, k, begin, count, noisy ? normals.z[sample & 7] : zeros, u);
    }
  }
}

/// The sums of one pass of one row, for the lines of a tile.
struct PassTile {
  const float *sum;
  const float *absSum;
  const float *lateSum;
  const float *squares;
  float inputSum;
  float filled[kTile];  // what `squares` points to when all lines share it

  RPU_HD LineSums at(int l) const { return {sum[l], absSum[l], lateSum[l], squares[l], inputSum}; }
};

void loadPass(PassTile &tile, const OutputStage &s, int64_t r, int64_t begin, int count,
              const float *zeros) {
  const int64_t at = r * s.out.cols + begin;
  tile.sum = s.sums + at;
  tile.absSum = s.absSums ? s.absSums + at : zeros;
  tile.lateSum = s.lateSums ? s.lateSums + at : zeros;
  tile.squares = s.squareSums ? s.squareSums + at : tile.filled;
  tile.inputSum = s.inputSums ? s.inputSums[r] : 0.0f;
  const float squares = s.inputSquares ? s.inputSquares[r] : 0.0f;
  for (int l = 0; l < count; ++l) tile.filled[l] = squares;
}

/// Random numbers of one pass, for the lines of a tile.
struct DrawTile {
  NormalTile weight;
  NormalTile noise;
  float round[kTile];
};

template <Passes kPasses, bool kEffects>
uint32_t finishTile(const OutputStage &s, int64_t row, int64_t begin, int count,
                    const PassTile (&in)[2], const DrawTile (&draws)[2]) {
  constexpr int kLast = kPasses == Passes::One ? 0 : 1;
  const ArrayEffects e = s.effects;
  const OutputConverter c = s.converter;
  const float scale = s.state.scale[row] * s.outScale;
  const int z = static_cast<int>(sampleOf(s.draws, row) & 7);
  const float *noise = s.lineNoise + begin;
  const float *offset = s.lineOffset + begin;
  const float *bend = s.lineBend + begin;
  float y[kTile];
  uint32_t clipped = 0;
  for (int l = 0; l < count; ++l) {
    const LineSpread line{noise[l], offset[l], bend[l]};
    LineSums sums[2];
    OutputDraws random[2];
    for (int p = 0; p <= kLast; ++p) {
      sums[p] = in[p].at(l);
      random[p] = {draws[p].weight.z[z][l], draws[p].noise.z[z][l], draws[p].round[l]};
    }
    const Reading r = readLine<kPasses, kEffects>(e, c, line, sums, random);
    y[l] = r.value * scale;
    clipped |= r.clipped;
  }
  storeTile(s.out.row(row), begin, count, y);
  return clipped;
}

template <Passes kPasses, bool kEffects>
void finishGroup(const OutputStage &s, const Group &group) {
  constexpr int kPassCount = kPasses == Passes::One ? 1 : 2;
  const StageDraws &d = s.draws;
  const uint32_t samples = samplesOf(group, s.list, d);
  DrawTile draws[2] = {};
  PassTile in[2];
  const float zeros[kTile] = {};
  for (int64_t begin = 0; begin < s.out.cols; begin += kTile) {
    const int count = tileSize(begin, s.out.cols);
    for (int p = 0; p < kPassCount; ++p) {
      const uint32_t index = drawIndex(group.round, p);
      if (s.noisy) {
        fillNormals(draws[p].noise, d.key, d.noise, begin, count, group.block, index, samples);
      }
      if (s.effects.weightNoise > 0.0f) {
        fillNormals(draws[p].weight, d.key, d.weight, begin, count, group.block, index, samples);
      }
    }
    for (int64_t k = group.begin; k < group.end; ++k) {
      const int64_t row = s.list[k];
      for (int p = 0; p < kPassCount; ++p) {
        loadPass(in[p], s, p * s.list.count + k, begin, count, zeros);
        if (s.converter.adc.stochastic) {
          fillUniforms(draws[p].round, d.key, d.round, begin, count, sampleOf(d, row),
                       drawIndex(group.round, p));
        }
      }
      if (finishTile<kPasses, kEffects>(s, row, begin, count, in, draws) != 0) {
        s.state.clipped[row] = 1;
      }
    }
  }
}

void finishGroup(const OutputStage &s, const Group &group) {
  switch (s.passes) {
    case Passes::AnalogSum:
      return finishGroup<Passes::AnalogSum, true>(s, group);
    case Passes::DigitalSum:
      return finishGroup<Passes::DigitalSum, true>(s, group);
    default:
      return s.hasEffects ? finishGroup<Passes::One, true>(s, group)
                          : finishGroup<Passes::One, false>(s, group);
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
  int64_t k = begin;
  while (k < end) {
    // Eight rows at a time, so that a row is still in the cache when it is converted.
    const int64_t last = end - k < 8 ? end : k + 8;
    if (measureFirst) {
      for (int64_t i = k; i < last; ++i) measure(stage, i);
    }
    while (k < last) {
      const Group group = groupAt(stage.list, stage.state, stage.draws, k, last);
      convertGroup(stage, group);
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
void finishOutputs<Isa::PULSORA_ISA>(const OutputStage &stage, int64_t begin, int64_t end) {
  int64_t k = begin;
  while (k < end) {
    const Group group = groupAt(stage.list, stage.state, stage.draws, k, end);
    finishGroup(stage, group);
    k = group.end;
  }
}

}  // namespace RPU
