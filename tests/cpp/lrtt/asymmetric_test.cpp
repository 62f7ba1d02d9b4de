#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "devices/symmetric_point.h"
#include "lrtt/lrtt_test_util.h"

// A and B of cells whose steps up and down differ: references at symmetric points, and choppers.

namespace pulsora {
namespace {

constexpr int64_t kOut = 7, kIn = 11, kRank = 3;

// Up steps are larger, so that the symmetric point lies at w_max kUpDown / (2 - kUpDown).
constexpr float kUpDown = 0.4f;
SoftBounds::Params leaning() {
  SoftBounds::Params cells;
  cells.dw_min = 0.004f;
  cells.up_down = kUpDown;
  cells.w_max = 0.6f;
  cells.w_min = -0.6f;
  cells.dw_min_dtod = cells.w_max_dtod = cells.w_min_dtod = cells.up_down_dtod = 0.0f;
  return cells;
}
const double kPoint = 0.6 * double(kUpDown) / (2.0 - double(kUpDown));

// Cells of every kind of spread.
SoftBounds::Params spread() {
  SoftBounds::Params cells = noisyCells(1e-3f);
  cells.up_down = 0.2f;
  cells.up_down_dtod = 0.2f;
  cells.write_noise_std = 2.0f;
  return cells;
}

LrttRig noisy() {
  LrttRig rig(kOut, kIn, kRank);
  rig.params.fast = spread();
  rig.params.visible = noisyCells(5e-4f);
  rig.params.transfer_every = 12;  // samples: within the third mini-batch of 5
  rig.params.reinit = Reinit::Decay;
  rig.params.reference = FastReference::SymmetricPoint;
  rig.params.chopper = Chopper::Reinit;
  rig.forwardIo = rig.backwardIo = IOParameters{};
  return rig;
}

// Mini-batches of 5 samples, cut in one place or not at all.
void run(LrttRig &rig, uint64_t first, int batches, int64_t cut = 0) {
  for (uint64_t n = first; n < first + uint64_t(batches); ++n) {
    const Mat in = randomMat(5, kIn, 1.0f, 10 + n), grad = randomMat(5, kOut, 0.3f, 50 + n);
    if (cut > 0) rig.learn(in.rowsFrom(0, cut), grad.rowsFrom(0, cut), 0.02f);
    rig.learn(in.rowsFrom(cut, 5 - cut), grad.rowsFrom(cut, 5 - cut), 0.02f);
    rig.endMiniBatch();
  }
}

bool sameArrays(const LrttRig &a, const LrttRig &b) {
  return sameBits(a.a(), b.a()) && sameBits(a.b(), b.b()) && sameBits(a.w(), b.w());
}

State saved(const LrttRig &rig) {
  State state;
  rig.device->saveTo(rig.context, state, "");
  return state;
}

std::vector<float> tensorOf(const State &state, const std::string &name) {
  const Tensor &tensor = state.tensors.at(name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// --- references

// Gradients of random signs carry no information: after some thousand pulses, A and B drift to the
// symmetric points of their cells. In each component 300 cells have random directions of their own.
TEST(LrttAsymmetric, Property32_ReferencesMakeTheDriftEndAt0) {
  constexpr int64_t kMany = 300;
  for (const bool ofA : {true, false}) {
    for (const bool referenced : {false, true}) {
      LrttRig rig = ofA ? LrttRig(kMany, 8, 2) : LrttRig(8, kMany, 2);
      rig.params.fast = leaning();
      rig.params.projection = Projection::Exact;
      rig.params.reinit = Reinit::Orthogonal;
      (ofA ? rig.params.b_lr : rig.params.a_lr) = 0.0f;
      if (referenced) rig.params.reference = FastReference::SymmetricPoint;
      rig.build();
      if (!ofA) rig.setFactors(randomMat(8, 2, 0.1f, 1), rig.b());
      for (uint64_t n = 0; n < 12; ++n)
        rig.learn(randomMat(64, rig.x, 1.0f, 10 + n), randomMat(64, rig.d, 1.0f, 50 + n), 0.3f);
      const Mat cells = ofA ? rig.a() : rig.b();
      const double expected = referenced ? 0.0 : kPoint;
      for (int64_t k = 0; k < 2; ++k) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < kMany; ++i) {
          const double w = ofA ? double(cells(i, k)) : double(cells(k, i));
          sum += w;
          squares += w * w;
        }
        const double mean = sum / double(kMany);
        const double error = std::sqrt((squares / double(kMany) - mean * mean) / double(kMany - 1));
        EXPECT_NEAR(mean, expected, 5.0 * error) << ofA << referenced << k;
        EXPECT_LT(5.0 * error, 0.5 * kPoint);
      }
    }
  }
}

TEST(LrttAsymmetric, WeightsAreReadAndWrittenLessTheirReferences) {
  LrttRig rig = noisy(), plain = noisy();
  SoftBounds::Params cells = spread();
  cells.write_noise_std = 0.0f;
  rig.params.fast = plain.params.fast = cells;
  plain.params.reference = FastReference::None;
  rig.build();
  plain.build();
  EXPECT_TRUE(sameBits(rig.a(), Mat(kOut, kRank)));  // as without: 0 after a re-init
  const Mat a = randomMat(kOut, kRank, 0.01f, 1), b = randomMat(kRank, kIn, 0.01f, 2);
  rig.setFactors(a, b);
  plain.setFactors(a, b);
  for (int64_t i = 0; i < kOut; ++i)
    for (int64_t k = 0; k < kRank; ++k) ASSERT_NEAR(rig.a()(i, k), a(i, k), 1e-7);
  const Mat in = randomMat(4, kIn, 1.0f, 3);
  rig.device->forward(rig.context, in.view(), Mat(4, kOut).view(), rig.counters);
  const Mat w = rig.effective(), other = plain.effective();
  for (size_t i = 0; i < w.v.size(); ++i) ASSERT_NEAR(w.v[i], other.v[i], 1e-5);
  // The stored values, and bounds and symmetric points as seen by a read.
  const State state = saved(rig);
  const std::vector<float> stored = tensorOf(state, "fast_a/weights");
  const std::vector<float> reference = tensorOf(state, "fast_a/reference");
  const Buffer<float> planes = rig.device->factors().a().describeCells(rig.context);
  const Buffer<float> bounds = plain.device->factors().a().describeCells(plain.context);
  const Buffer<float> points = plain.device->factors().a().symmetricPoints(plain.context);
  for (size_t i = 0; i < stored.size(); ++i) {
    ASSERT_EQ(rig.a().v[i], stored[i] - reference[i]);
    ASSERT_EQ(reference[i], points.data()[i]);
    ASSERT_EQ(planes.data()[i], bounds.data()[i] - reference[i]);
    ASSERT_EQ(planes.data()[stored.size() + i], bounds.data()[stored.size() + i] - reference[i]);
  }
  // Values beyond the bounds of the cells stop at them.
  rig.setFactors(Mat(kOut, kRank, 9.0f), b);
  for (size_t i = 0; i < stored.size(); ++i) ASSERT_EQ(rig.a().v[i], planes.data()[i]);
}

// References found by pulses are equal to those of single pulses one after another, and approach
// the exact references with more pulses.
TEST(LrttAsymmetric, PulsesFindTheSymmetricPoints) {
  LrttRig exact = noisy(), few = noisy(), many = noisy();
  few.params.reference_pulses = 3;
  many.params.reference_pulses = 3000;
  SoftBounds::Params cells = leaning();
  cells.dw_min_std = 0.5f;
  for (LrttRig *rig : {&exact, &few, &many}) {
    rig->params.fast = cells;
    rig->build();
  }
  const RandomKey key = TileKeys{1, 0}.of(LRTTAdapter::kSlotB, Role::Reference);
  const auto r = SoftBounds::response(SoftBounds::Cell{1.0f, 1.0f, 1.0f, 1.0f}, cells);
  const std::vector<float> found = tensorOf(saved(few), "fast_b/reference");
  for (size_t i = 0; i < found.size(); ++i) {
    float w = 0.0f;
    for (uint64_t n = 0; n < 6; ++n) {
      const float xi = normalOfSample(key, Purpose::CycleNoise, i, n);
      w = clipWeight(SoftBounds::pulse(w, n % 2 == 0, r, cells, xi), r);
    }
    ASSERT_EQ(found[i], w);
  }
  double mean = 0.0, squares = 0.0;
  const std::vector<float> late = tensorOf(saved(many), "fast_b/reference");
  const auto count = double(late.size());
  for (const float w : late) mean += double(w) / count;
  for (const float w : late) squares += (double(w) - mean) * (double(w) - mean);
  EXPECT_NEAR(tensorOf(saved(exact), "fast_b/reference")[0], kPoint, 1e-6);
  // After the last pulse, a down, a cell is half a step below on average.
  EXPECT_NEAR(mean, kPoint, 5.0 * std::sqrt(squares / count / (count - 1.0)) + 0.002);
}

// --- choppers

// Under gradients of random signs A drifts the same way in every cycle, which sums up in W; with a
// chopper, A drifts either way in its 8 components and 30 cycles, independently.
TEST(LrttAsymmetric, Property48_ChoppersGiveADriftAMeanOf0) {
  constexpr int kCycles = 30, kMany = 8;
  for (const bool chopped : {false, true}) {
    LrttRig rig(16, 16, kMany);
    rig.params.fast = leaning();
    rig.params.projection = Projection::Exact;
    rig.params.reinit = Reinit::KeepB;
    rig.params.b_lr = 0.0f;
    if (chopped) rig.params.chopper = Chopper::Reinit;
    rig.build();
    double sum = 0.0, squares = 0.0;
    for (uint64_t n = 0; n < kCycles + 1; ++n) {
      for (uint64_t m = 0; m < 4; ++m)
        rig.learn(randomMat(64, 16, 1.0f, 10 + 4 * n + m), randomMat(64, 16, 1.0f, 500 + 4 * n + m),
                  0.3f);
      const Mat a = rig.a();
      for (int64_t k = 0; k < kMany && n > 0; ++k) {  // in the first cycle all signs are 1
        double mean = 0.0;
        for (int64_t i = 0; i < 16; ++i) mean += double(a(i, k)) / 16.0;
        sum += mean;
        squares += mean * mean;
      }
      rig.device->adapter()->transfer(rig.context);
    }
    constexpr double kCount = kCycles * kMany;
    const double size = std::sqrt(squares / kCount), error = size / std::sqrt(kCount);
    EXPECT_GT(size, 0.5 * kPoint);
    if (chopped) {
      EXPECT_LT(std::fabs(sum / kCount), 5.0 * error);
    } else {
      EXPECT_GT(sum / kCount, 0.5 * kPoint);
    }
  }
}

// If cells are symmetric, turning a sign changes neither W nor learning: A follows a floating-point
// update whatever the signs.
TEST(LrttAsymmetric, SignsAreUndoneWhereAIsReadWrittenAndPulsed) {
  for (const bool accumulated : {false, true}) {
    LrttRig rig(kOut, kIn, kRank), plain(kOut, kIn, kRank);
    for (LrttRig *each : {&rig, &plain}) {
      each->params.fast = idealCells(1e-6f);
      each->params.projection = Projection::Exact;
      each->params.reinit = Reinit::KeepB;
      each->update.desired_bl = 65536;
      each->params.ab_update = accumulated ? FactorUpdate::Accumulated : FactorUpdate::Sample;
      each->update.pulse_type = PulseType::DeterministicImplicit;
    }
    rig.params.chopper = Chopper::Reinit;
    rig.params.chopper_prob = 1.0f;
    rig.build();
    plain.build();
    for (uint64_t n = 0; n < 3; ++n) {
      for (LrttRig *each : {&rig, &plain}) {
        each->learn(randomMat(5, kIn, 1.0f, 10 + n), randomMat(5, kOut, 0.1f, 50 + n), 0.05f);
        each->endMiniBatch();
      }
      const float sign = n % 2 == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(rig.device->factors().a().columnSigns()[kRank - 1], sign);
      const std::vector<float> stored = tensorOf(saved(rig), "fast_a/weights");
      for (size_t i = 0; i < stored.size(); ++i) {
        ASSERT_EQ(rig.a().v[i], sign * stored[i]);
        ASSERT_NEAR(rig.a().v[i], plain.a().v[i], 3e-6) << accumulated << n;
      }
      const Mat w = rig.effective(), other = plain.effective();
      for (size_t i = 0; i < w.v.size(); ++i) ASSERT_NEAR(w.v[i], other.v[i], 1e-4);
      if (n == 2) break;
      rig.device->adapter()->transfer(rig.context);
      plain.device->adapter()->transfer(plain.context);
      plain.setW(rig.w());
    }
    const Mat a = randomMat(kOut, kRank, 0.3f, 5);
    rig.setFactors(a, rig.b());
    EXPECT_TRUE(sameBits(rig.a(), a));
  }
}

TEST(LrttAsymmetric, SignsThatNeverTurnLeaveTheBits) {
  LrttRig rig = noisy(), plain = noisy();
  rig.params.chopper_prob = 0.0f;
  plain.params.chopper = Chopper::None;
  rig.build();
  plain.build();
  run(rig, 0, 6);
  run(plain, 0, 6);
  EXPECT_EQ(rig.transfers(), 2u);
  EXPECT_TRUE(sameArrays(rig, plain));
}

// A re-init by pulses meets A as it is stored.
TEST(LrttAsymmetric, AReinitByPulsesEndsNear0) {
  LrttRig rig(kOut, kIn, kRank);
  SoftBounds::Params cells = leaning();
  cells.dw_min_std = 0.0f;
  rig.params.fast = cells;
  rig.params.reinit = Reinit::Decay;
  rig.params.reinit_write = ReinitWrite::Pulsed;
  rig.params.chopper = Chopper::Reinit;
  rig.params.reference = FastReference::SymmetricPoint;
  rig.build();
  for (uint64_t n = 0; n < 4; ++n) {
    rig.setFactors(randomMat(kOut, kRank, 0.1f, 10 + n), rig.b());
    rig.device->adapter()->transfer(rig.context);
    for (const float a : rig.a().v) ASSERT_LE(std::fabs(a), 0.5f * 1.4f * cells.dw_min);
  }
}

// --- both

TEST(LrttAsymmetric, Property37_CutsOfABatchLeaveTheBits) {
  for (const FactorUpdate how : {FactorUpdate::Sample, FactorUpdate::Accumulated}) {
    for (const bool swap : {false, true}) {
      LrttRig whole = noisy(), parts = noisy(), threads = noisy();
      for (LrttRig *rig : {&whole, &parts, &threads}) {
        rig->params.ab_update = how;
        rig->params.reference_pulses = 4;
        rig->params.swap_xd = swap;
      }
      threads.context.cpu.threads = 3;
      run(whole.build(), 0, 6);
      run(parts.build(), 0, 6, 3);
      run(threads.build(), 0, 6);
      EXPECT_EQ(whole.transfers(), 2u);
      EXPECT_TRUE(sameArrays(whole, parts));
      EXPECT_TRUE(sameArrays(whole, threads));
    }
  }
}

TEST(LrttAsymmetric, Property38_ReferencesAndSignsAreSaved) {
  for (const int before : {1, 4}) {  // without and with signs that have turned
    LrttRig rig = noisy(), other = noisy();
    for (LrttRig *each : {&rig, &other}) {
      each->params.ab_update = FactorUpdate::Accumulated;
      each->params.reference_pulses = 4;
    }
    rig.build();
    other.build();
    run(rig, 0, before);
    other.device->loadFrom(other.context, saved(rig), "");
    other.counters = rig.counters;
    run(rig, uint64_t(before), 4);
    run(other, uint64_t(before), 4);
    EXPECT_TRUE(sameArrays(rig, other));
    EXPECT_EQ(tensorOf(saved(rig), "fast_a/column_signs"),
              tensorOf(saved(other), "fast_a/column_signs"));
  }
}

// Neither setting changes other random numbers: sampled cells, and the first draw of B.
TEST(LrttAsymmetric, OtherDrawsStay) {
  LrttRig rig = noisy(), plain = noisy();
  rig.params.reference_pulses = 5;
  plain.params.reference = FastReference::None;
  plain.params.chopper = Chopper::None;
  rig.build();
  plain.build();
  const State one = saved(rig), other = saved(plain);
  for (const char *name : {"fast_a/cells", "fast_b/cells", "visible/cells"})
    EXPECT_TRUE(one.tensors.at(name).bytes == other.tensors.at(name).bytes);
  EXPECT_EQ(other.tensors.count("fast_a/reference"), 0u);
  EXPECT_EQ(other.tensors.count("fast_a/column_signs"), 0u);
}

TEST(LrttAsymmetric, ExplainTellsOfIt) {
  const auto told = [](bool leans, FastReference reference) {
    LrttRig rig(kOut, kIn, kRank);
    if (leans) rig.params.fast = leaning();
    rig.params.reference = reference;
    rig.build();
    const Mat in = randomMat(5, kIn, 1.0f, 1), grad = randomMat(5, kOut, 1e-3f, 2);
    return rig.device->explain(rig.context, in.view(), grad.view(), 0.01f);
  };
  const auto warning = [](const Value::Map &map) -> std::string {
    for (const Value &text : *map.at("warnings").list())
      if (text.text()->find("fast: steps of A and B") == 0) return *text.text();
    return "";
  };
  EXPECT_EQ(warning(told(false, FastReference::None)), "");
  const Value::Map without = told(true, FastReference::None);
  EXPECT_NEAR(*without.at("fast_symmetric_point").real(), kPoint, 1e-4);
  EXPECT_GT(*without.at("fast_asymmetry").real(), 0.15);
  EXPECT_NE(warning(without).find("reference='symmetric_point'"), std::string::npos);
  EXPECT_NE(warning(without).find("ab_update='accumulated'"), std::string::npos);
  const Value::Map with = told(true, FastReference::SymmetricPoint);
  EXPECT_NEAR(*with.at("fast_symmetric_point").real(), 0.0, 1e-6);
  EXPECT_LT(*with.at("fast_asymmetry").real(), *without.at("fast_asymmetry").real());
}

}  // namespace
}  // namespace pulsora
