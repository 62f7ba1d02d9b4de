#include "inference/modify_weights.h"
#include "numerics/philox_batch.h"
#include "numerics/simd_copy.h"

// Lanes are neighbouring cells. Sixteen groups are taken at a time: a batch of random blocks.

namespace pulsora {
namespace {

constexpr int kGroups = kPhiloxBatch;
constexpr int kCells = 8 * kGroups;
using Cells = float[kCells];

/// The normals of the groups from `group` on.
void drawNormals(const WeightModifier &work, uint32_t group, Cells &z) {
  PhiloxBatch batch;
  drawBatch(work.key, Purpose::WeightModifier, group, work.number, kNormalIndex, batch);
  float lanes[8][kGroups];
  for (int q = 0; q < 4; ++q) {
    for (int j = 0; j < kGroups; ++j) {
      const NormalPair pair = normalPair16(batch.words[q][j]);
      lanes[2 * q][j] = pair.z0;
      lanes[2 * q + 1][j] = pair.z1;
    }
  }
  for (int j = 0; j < kGroups; ++j)
    for (int l = 0; l < 8; ++l) z[8 * j + l] = lanes[l][j];
}

/// The uniform numbers of the groups from `group` on.
void drawUniforms(const WeightModifier &work, uint32_t group, uint32_t index, Cells &u) {
  for (uint32_t half = 0; half < 2; ++half) {
    PhiloxBatch batch;
    drawBatch(work.key, Purpose::WeightModifier, group, work.number, index + half, batch);
    for (int j = 0; j < kGroups; ++j)
      for (int l = 0; l < 4; ++l)
        u[8 * j + 4 * static_cast<int>(half) + l] = uniform(batch.words[l][j]);
  }
}

/// Lanes up to `count`, and zeros.
void load(const float *from, int count, Cells &to) {
  for (int l = 0; l < kCells; l += kVectorLanes) {
    if (l < count) {
      loadLanesOf(to + l, from + l, count - l < kVectorLanes ? count - l : kVectorLanes);
    } else {
      for (int i = l; i < l + kVectorLanes; ++i) to[i] = 0.0f;
    }
  }
}

/// The scale and the largest magnitude of the row of each cell.
struct Rows {
  Cells scale;
  Cells largest;

  Rows(const WeightModifier &work, int64_t first, int count) {
    int64_t row = first / work.cols;
    int64_t left = work.cols - first % work.cols;  // cells of the row
    for (int l = 0; l < kCells;) {
      const bool isCell = l < count;
      const int end = isCell && left < kCells - l ? l + static_cast<int>(left) : kCells;
      const float s = isCell ? work.scale[row] : 0.0f;
      const float most = isCell ? work.largest[row] : 0.0f;
      for (; l < end; ++l) {
        scale[l] = s;
        largest[l] = most;
      }
      ++row;
      left = work.cols;
    }
  }
};

template <Modifier kModifier, bool kIsMade>
void modify(const WeightModifier &work, int64_t begin, int64_t end) {
  ModifierRule rule = work.rule;
  rule.modifier = kModifier;
  Cells z = {};
  Cells rounds = {};
  Cells drops;
  for (float &drop : drops) drop = 1.0f;
  for (int64_t group = begin; group < end; group += kGroups) {
    const auto element = static_cast<uint32_t>(group);
    const int64_t first = 8 * group;
    const int64_t last = work.cells < 8 * end ? work.cells : 8 * end;
    const int count = static_cast<int>(last - first < kCells ? last - first : kCells);
    Cells given;
    Cells seen = {};
    load(work.weights + first, count, given);
    if (kIsMade) {
      load(work.made + first, count, seen);
    } else {
      drawNormals(work, element, z);
      if (rule.stochastic) drawUniforms(work, element, kRoundIndex, rounds);
    }
    if (rule.drop > 0.0f) drawUniforms(work, element, kDropIndex, drops);
    const Rows rows(work, first, count);
    for (int lanes = 0; lanes < kCells; lanes += kVectorLanes) {
      for (int l = lanes; l < lanes + kVectorLanes; ++l) {
        const float s = rows.scale[l];
        const float clipped = pulsora::clamp(given[l], -s, s);
        if (!kIsMade) seen[l] = modified(rule, clipped, rows.largest[l], z[l], rounds[l]) / s;
        seen[l] = drops[l] < rule.drop || !(s > 0.0f) ? 0.0f : seen[l];
      }
    }
    for (int l = 0; l < count; l += kVectorLanes)
      storeLanesOf(work.to + first + l, seen + l,
                   count - l < kVectorLanes ? count - l : kVectorLanes);
  }
}

}  // namespace

template <>
void modifyGroups<Isa::PULSORA_ISA>(const WeightModifier &modifier, int64_t begin, int64_t end) {
  if (end >> 32 != 0) {  // beyond the elements of a batch of random words
    for (int64_t group = begin; group < end; ++group) modifier(group);
    return;
  }
  if (modifier.made) return modify<Modifier::NoiseModel, true>(modifier, begin, end);
  switch (modifier.rule.modifier) {
    case Modifier::AddNormal:
      return modify<Modifier::AddNormal, false>(modifier, begin, end);
    case Modifier::MultNormal:
      return modify<Modifier::MultNormal, false>(modifier, begin, end);
    case Modifier::Discretize:
      return modify<Modifier::Discretize, false>(modifier, begin, end);
    case Modifier::DiscretizeAddNormal:
      return modify<Modifier::DiscretizeAddNormal, false>(modifier, begin, end);
    case Modifier::DoReFa:
      return modify<Modifier::DoReFa, false>(modifier, begin, end);
    case Modifier::Poly:
      return modify<Modifier::Poly, false>(modifier, begin, end);
    case Modifier::ProgNoise:
      return modify<Modifier::ProgNoise, false>(modifier, begin, end);
    case Modifier::None:
    case Modifier::NoiseModel:
      return modify<Modifier::None, false>(modifier, begin, end);
  }
}

}  // namespace pulsora
