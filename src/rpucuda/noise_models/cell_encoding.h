#pragma once

#include "core/platform.h"
#include "numerics/math.h"
#include "parameters/field_types.h"

namespace pulsora {

/// The devices of a cell and how they share its weight.
enum class CellKind { Pair, TwoSidedPair, Pairs, Single, Slices, Table };
template <>
struct EnumNames<CellKind> {
  static constexpr const char *kNames[] = {"pair",   "two_sided_pair", "pairs",
                                           "single", "slices",         "table"};
};

/// The reference of a cell of one device.
enum class CellReference { Digital, Column };
template <>
struct EnumNames<CellReference> {
  static constexpr const char *kNames[] = {"digital", "column"};
};

/// The weights that the range of a cell of one device holds: from -s to s, or from the smallest to
/// the largest weight.
enum class SingleSpan { Symmetric, Data };
template <>
struct EnumNames<SingleSpan> {
  static constexpr const char *kNames[] = {"symmetric", "data"};
};

/// One device of a cell for a weight w in [-1, 1]: its conductance above g_min, relative to g_max -
/// g_min, is clip(slope w + offset, 0, 1), and adds `share` times that to the weight.
struct DeviceOfCell {
  float slope;
  float offset;
  float share;
};

/// A weight as conductances and back: w = constant + sum_k share_k g_k. Every encoding is of this
/// form.
struct CellEncoding {
  static constexpr int kMostDevices = 16;

  int devices = 0;
  float constant = 0.0f;
  float levels = 0.0f;  ///< steps between the smallest and the largest target; 0 is continuous
  DeviceOfCell device[kMostDevices] = {};

  /// The target of device k for a weight, in [0, 1].
  PULSORA_HD float target(float w, int k) const {
    const float g = continuousTarget(w, k);
    return pulsora::select(levels > 0.0f, rounded(g), g);
  }
  /// The target before it is rounded to a level.
  PULSORA_HD float continuousTarget(float w, int k) const {
    const DeviceOfCell &d = device[k];
    return pulsora::clamp(pulsora::fma(d.slope, w, d.offset), 0.0f, 1.0f);
  }
  /// A target rounded to a level.
  PULSORA_HD float rounded(float g) const { return pulsora::rint(g * levels) / levels; }
  /// The weight that these conductances stand for.
  PULSORA_HD float weight(const float *g) const {
    float w = constant;
    for (int k = 0; k < devices; ++k) w = pulsora::fma(device[k].share, g[k], w);
    return w;
  }
  void add(const DeviceOfCell &more) { device[devices++] = more; }
};

/// The encoding of a kind of cell, docs/reference/inference.md. `significance` are the factors of
/// the pairs of kind Pairs, in the order in which they are filled; `bits` of targets, 0 is
/// continuous. Of kinds Slices and Table, it is that of a slice, or of a device.
inline CellEncoding cellEncoding(CellKind kind, const FloatList &significance, int bits) {
  CellEncoding cell;
  if (bits > 0) cell.levels = static_cast<float>((1 << bits) - 1);
  switch (kind) {
    case CellKind::Pair:
    case CellKind::Slices:
      cell.add({1.0f, 0.0f, 1.0f});
      cell.add({-1.0f, 0.0f, -1.0f});
      break;
    case CellKind::TwoSidedPair:
      cell.add({0.5f, 0.5f, 1.0f});
      cell.add({-0.5f, 0.5f, -1.0f});
      break;
    case CellKind::Single:
      cell.constant = -1.0f;
      cell.add({0.5f, 0.5f, 2.0f});
      break;
    case CellKind::Table:
      cell.add({1.0f, 0.0f, 1.0f});
      break;
    case CellKind::Pairs: {
      float sum = 0.0f;
      for (int i = 0; i < significance.count; ++i) sum += significance.values[i];
      float lower = 0.0f;
      for (int i = 0; i < significance.count; ++i) {
        const float factor = significance.values[i];
        cell.add({sum / factor, -lower / factor, factor / sum});
        cell.add({-sum / factor, -lower / factor, -factor / sum});
        lower += factor;
      }
      break;
    }
  }
  return cell;
}

}  // namespace pulsora
