#pragma once

#include "devices/range_response.h"

namespace pulsora {

/// How a table is read between its nodes.
enum class TableCurve { Linear, Cubic };
template <>
struct EnumNames<TableCurve> {
  static constexpr const char *kNames[] = {"linear", "cubic"};
};

/// The step that a table of cycle noise refers to.
enum class TableSpread {
  Relative,  ///< the step at that weight
  Absolute,  ///< the step of the cell before its table, whatever the weight
};
template <>
struct EnumNames<TableSpread> {
  static constexpr const char *kNames[] = {"relative", "absolute"};
};

/// Mean and cycle noise of the step are tables over the weight, at any nodes.
struct TableStep {
  static constexpr const char *kName = "TableStep";
  static constexpr const char *kDoc =
      "The step and its cycle noise follow measured tables: w += s c(w)(1 + sigma t(w) xi), or s "
      "(c(w) + sigma t(w) xi) with an absolute spread. Nodes lie at weights of the mean cell; the "
      "tables of a cell with other bounds are stretched to them. Beyond the outermost nodes their "
      "values hold.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "TableStep";
    FloatList table_w{};
    FloatList table_up{1, {1.0f}};
    FloatList table_down{1, {1.0f}};
    FloatList table_std_up{1, {1.0f}};
    FloatList table_std_down{1, {1.0f}};
    TableCurve table_curve = TableCurve::Linear;
    TableSpread table_spread = TableSpread::Relative;

    template <class Visitor>
    static void fields(Visitor &f) {
      using P = Params;
      PulsedParams::fields(f);
      f(&P::table_w, "table_w", anyNumber(), "weight",
        "Weights of the nodes, increasing, from w_min to w_max at most; 2 to 64 numbers. Empty: "
        "equally spaced from bound to bound.");
      f(&P::table_up, "table_up", nonNegative(), "dw_min",
        "Up steps at the nodes; one number holds everywhere.");
      f(&P::table_down, "table_down", nonNegative(), "dw_min",
        "Down steps at the nodes; one number holds everywhere.");
      f(&P::table_std_up, "table_std_up", nonNegative(), "dw_min_std",
        "Cycle noise of up steps at the nodes; one number holds everywhere.");
      f(&P::table_std_down, "table_std_down", nonNegative(), "dw_min_std",
        "Cycle noise of down steps at the nodes; one number holds everywhere.");
      f(&P::table_curve, "table_curve", anyNumber(), "",
        "Interpolation of tables between nodes: 'cubic' is monotone (PCHIP), so that values are "
        "never negative, nor beyond neighbouring nodes.");
      f(&P::table_spread, "table_spread", anyNumber(), "",
        "Whether cycle noise is relative to the step at that weight, or to dw_min (with the gain "
        "of the cell), whatever the weight.");
    }

    template <class Check>
    void check(const Check &c) const {
      PulsedParams::check(c);
      c.require(table_w.count != 1, c.path("table_w"), " has 1 number; give 2 to 64, or none");
      for (int i = 0; i < table_w.count; ++i) {
        const float at = table_w.values[i];
        c.require(at >= w_min && at <= w_max, c.path("table_w"), "[", i, "] is ", at,
                  ", outside of w_min = ", w_min, " to w_max = ", w_max);
        c.require(i == 0 || at > table_w.values[i - 1], c.path("table_w"), "[", i, "] is ", at,
                  "; it must be larger than the number before it");
      }
      checkTable(c, table_up, "table_up");
      checkTable(c, table_down, "table_down");
      checkTable(c, table_std_up, "table_std_up");
      checkTable(c, table_std_down, "table_std_down");
      c.require(granularity(*this) > 0.0f, c.path("table_up"), " and ", c.path("table_down"),
                " are both 0 at weight 0, so that no pulse moves a weight there; "
                "make one of them positive");
    }
    template <class Check>
    void checkTable(const Check &c, const FloatList &table, const char *name) const {
      c.require(table.count == 1 || table.count == nodes(), c.path(name), " has ", table.count,
                " numbers; give 1, or as many as ",
                table_w.count > 0 ? "table_w" : "the longest table", ", which has ", nodes());
      for (int i = 0; i < table.count; ++i) {
        c.require(table.values[i] >= 0.0f, c.path(name), "[", i, "] is ", table.values[i],
                  "; it must be >= 0");
      }
    }

    PULSORA_HD int nodes() const {
      const int means = pulsora::max(table_up.count, table_down.count);
      const int spreads = pulsora::max(table_std_up.count, table_std_down.count);
      return table_w.count > 0 ? table_w.count : pulsora::max(pulsora::max(means, spreads), 2);
    }
    PULSORA_HD float node(int i) const {
      return table_w.count > 0 ? table_w.values[i] : static_cast<float>(i);
    }
  };
  using Cell = PulsedCell;
  using Response = RangeResponse;

  PULSORA_HD static Cell construct(const Params &p, CellDraws &draws, bool bias) {
    return sampleCell(p, draws, bias);
  }
  PULSORA_HD static Response response(const Cell &cell, const Params &p) {
    return rangeResponse(cell, p);
  }

  /// Position of a weight in the tables: in the interval after `node`, which may be first or last.
  struct Spot {
    int node;
    bool first;
    bool last;
    float offset;  // from the node
    float before;  // length of the previous interval; `length` if there is none
    float length;
    float after;
  };

  /// `place` is 0 at the lower bound and 1 at the upper.
  PULSORA_HD static Spot spot(float place, const Params &p) {
    const int last = p.nodes() - 1;
    const bool given = p.table_w.count > 0;
    const float wanted =
        given ? pulsora::fma(place, p.w_max - p.w_min, p.w_min) : place * static_cast<float>(last);
    // In this order, min and max make a NaN place the first node.
    const float at = pulsora::min(pulsora::max(p.node(0), wanted), p.node(last));
    int node = 0;
    if (given) {
      for (int step = FloatList::kCapacity / 2; step > 0; step /= 2) {
        const int next = node + step;
        node = next < last && p.table_w.values[next] <= at ? next : node;
      }
    } else {
      node = static_cast<int>(pulsora::min(pulsora::floor(at), static_cast<float>(last - 1)));
    }
    Spot s{};
    s.node = node;
    s.first = node == 0;
    s.last = node == last - 1;
    s.offset = at - p.node(node);
    s.length = p.node(node + 1) - p.node(node);
    s.before = s.first ? s.length : p.node(node) - p.node(node - 1);
    s.after = s.last ? s.length : p.node(node + 2) - p.node(node + 1);
    return s;
  }

  /// The slope of the monotone cubic at a node between intervals of the given lengths and slopes
  /// (Fritsch and Butland, SIAM J. Sci. Stat. Comput. 5:300, 1984).
  PULSORA_HD static float slopeBetween(float left, float slopeLeft, float right, float slopeRight) {
    const float product = slopeLeft * slopeRight;
    const float mean =
        pulsora::fma(2.0f * right + left, slopeRight, (right + 2.0f * left) * slopeLeft);
    return product > 0.0f ? 3.0f * (left + right) * product / mean : 0.0f;
  }
  /// The slope at the outermost node, from the interval that ends there and its neighbour.
  PULSORA_HD static float slopeAtEnd(float own, float slopeOwn, float next, float slopeNext) {
    const float slope = pulsora::fma(2.0f * own + next, slopeOwn, -own * slopeNext) / (own + next);
    if (!(slope * slopeOwn > 0.0f)) return 0.0f;
    const bool beyond =
        slopeOwn * slopeNext <= 0.0f && pulsora::abs(slope) > 3.0f * pulsora::abs(slopeOwn);
    return beyond ? 3.0f * slopeOwn : slope;
  }

  PULSORA_HD static float read(const FloatList &table, const Spot &s, TableCurve curve) {
    if (table.count == 1) return table.values[0];
    const float *y = table.values + s.node;
    const float slope = (y[1] - y[0]) / s.length;
    if (curve == TableCurve::Linear) return pulsora::fma(s.offset, slope, y[0]);
    const float before = s.first ? slope : (y[0] - y[-1]) / s.before;
    const float after = s.last ? slope : (y[2] - y[1]) / s.after;
    const float atNode = s.first ? slopeAtEnd(s.length, slope, s.after, after)
                                 : slopeBetween(s.before, before, s.length, slope);
    const float atNext = s.last ? slopeAtEnd(s.length, slope, s.before, before)
                                : slopeBetween(s.length, slope, s.after, after);
    const float cube = (atNode + atNext - 2.0f * slope) / s.length;
    const float t = s.offset / s.length;
    const float square = 3.0f * slope - 2.0f * atNode - atNext;
    const float value =
        pulsora::fma(s.offset, pulsora::fma(t, pulsora::fma(s.offset, cube, square), atNode), y[0]);
    return pulsora::max(value, 0.0f);  // only rounding makes it negative
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    const Spot s = spot((w - r.w_min) * r.inverse_range, p);
    const float mean = read(up ? p.table_up : p.table_down, s, p.table_curve);
    const float spread = read(up ? p.table_std_up : p.table_std_down, s, p.table_curve);
    const float step = r.step(up);
    const float base = p.table_spread == TableSpread::Relative ? step * mean : step;
    return pulsora::fma(base, p.dw_min_std * spread * xi, pulsora::fma(step, mean, w));
  }

  static float granularity(const Params &p) { return stepAtZero<TableStep>(p); }
};

}  // namespace pulsora
