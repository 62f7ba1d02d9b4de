#pragma once

#include "devices/range_response.h"

namespace pulsora {

/// The step follows a measured curve, given at equally spaced places between the bounds.
struct PiecewiseStep {
  static constexpr const char *kName = "PiecewiseStep";
  static constexpr const char *kDoc =
      "The step follows a measured curve: w += s c(w)(1 + sigma xi), where c interpolates linearly "
      "between nodes that are "
      "equally spaced from the cell's lower to its upper bound.";

  struct Params : PulsedParams {
    static constexpr const char *kName = "PiecewiseStep";
    FloatList piecewise_up{1, {1.0f}};
    FloatList piecewise_down{1, {1.0f}};

    template <class Visitor>
    static void fields(Visitor &f) {
      PulsedParams::fields(f);
      f(&Params::piecewise_up, "piecewise_up", nonNegative(), "dw_min",
        "Up steps at equally spaced weights, the first at the lower bound; 1 to 64 numbers.");
      f(&Params::piecewise_down, "piecewise_down", nonNegative(), "dw_min",
        "Down steps at equally spaced weights, the first at the lower bound; 1 to 64 numbers.");
    }

    template <class Check>
    void check(const Check &c) const {
      PulsedParams::check(c);
      checkNodes(c, piecewise_up, "piecewise_up");
      checkNodes(c, piecewise_down, "piecewise_down");
      c.require(granularity(*this) > 0.0f, c.path("piecewise_up"), " and ",
                c.path("piecewise_down"),
                " are both 0 at weight 0, so that no pulse moves a weight there; "
                "make one of them positive");
    }
    template <class Check>
    static void checkNodes(const Check &c, const FloatList &nodes, const char *name) {
      c.require(nodes.count >= 1, c.path(name), " is empty; give at least one number");
      for (int i = 0; i < nodes.count; ++i) {
        c.require(nodes.values[i] >= 0.0f, c.path(name), "[", i, "] is ", nodes.values[i],
                  "; a step must be >= 0");
      }
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

  /// The curve at `place`, 0 at the first node and 1 at the last.
  PULSORA_HD static float interpolate(const FloatList &nodes, float place) {
    const float last = static_cast<float>(nodes.count - 1);
    // In this order, min and max make a NaN place the first node.
    const float at = pulsora::min(pulsora::max(0.0f, place * last), last);
    const float node = pulsora::min(pulsora::floor(at), pulsora::max(last - 1.0f, 0.0f));
    const auto i = static_cast<int>(node);
    return pulsora::fma(at - node, nodes.values[i + 1] - nodes.values[i], nodes.values[i]);
  }

  PULSORA_HD static float pulse(float w, bool up, const Response &r, const Params &p, float xi) {
    const float place = (w - r.w_min) * r.inverse_range;
    const float curveUp = interpolate(p.piecewise_up, place);
    const float curveDown = interpolate(p.piecewise_down, place);
    const float step = r.step(up) * (up ? curveUp : curveDown);
    return pulsora::fma(step, pulsora::fma(p.dw_min_std, xi, 1.0f), w);
  }

  static float granularity(const Params &p) { return stepAtZero<PiecewiseStep>(p); }
};

}  // namespace pulsora
