// Unit tests of your own device model: the formula alone, then a tile of its cells.

#include <gtest/gtest.h>
#include <pulsora/single.h>
#include <pulsora/tile.h>
#include <vector>

#include "quadratic_step.h"

using pulsora::QuadraticStep;

namespace {

/// Parameters without spread, so that every cell is the nominal cell.
QuadraticStep::Params nominal() {
  QuadraticStep::Params p;
  p.dw_min_std = p.dw_min_dtod = p.up_down_dtod = p.w_max_dtod = p.w_min_dtod = 0.0f;
  p.curvature_dtod = 0.0f;
  return p;
}

TEST(QuadraticStep, StepFallsAsTheFormulaSays) {
  const QuadraticStep::Params p = nominal();
  pulsora::CellDraws draws(pulsora::RandomKey{1, 2}, 0);
  const auto cell = QuadraticStep::response(QuadraticStep::construct(p, draws, false), p);
  const float range = (p.w_max - p.w_min) / 2.0f;
  for (const float share : {-1.0f, -0.5f, 0.0f, 0.25f, 1.0f}) {
    const float step = p.dw_min * (1.0f - p.curvature * share * share);
    const float w = share * range;
    EXPECT_NEAR(QuadraticStep::pulse(w, true, cell, p, 0.0f) - w, step, 1e-6f);
    EXPECT_NEAR(w - QuadraticStep::pulse(w, false, cell, p, 0.0f), step, 1e-6f);
  }
}

TEST(QuadraticStep, ParametersAreChecked) {
  QuadraticStep::Params p;
  p.curvature = 1.5f;
  EXPECT_THROW(pulsora::DeviceParams{p}, pulsora::ConfigError);
}

TEST(QuadraticStep, ATileOfItStaysWithinItsBounds) {
  pulsora::SingleParams array;
  array.device = nominal();
  pulsora::TileConfig config;
  config.compound = array;
  pulsora::Tile tile(3, 5, config, /*seed=*/1);
  const std::vector<float> x(5, 1.0f), d(3, -1.0f);
  std::vector<float> w(3 * 5);
  for (int step = 0; step < 500; ++step) {
    tile.update(pulsora::rowMajor(x.data(), 1, 5), pulsora::rowMajor(d.data(), 1, 3), 0.02f);
  }
  tile.getWeights(pulsora::rowMajor(w.data(), 3, 5));
  for (const float weight : w) {
    EXPECT_GT(weight, 0.3f);
    EXPECT_LE(weight, nominal().w_max);
  }
}

}  // namespace
