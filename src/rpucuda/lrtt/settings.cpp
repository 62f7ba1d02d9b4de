#include "lrtt/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "linalg/initialise.h"
#include "lrtt/setting_checks.h"
#include "parameters/limits.h"

namespace pulsora {
namespace {

// 16 components learn better than 8 on every preset ("What the defaults reach" in
// docs/explain/lrtt_study.md).
constexpr int64_t kAutomaticRank = 16;

// transfer_rounds = 'auto': of 'verified', and of 'write_verify'.
constexpr int kRounds = 3;
constexpr int kRoundsOfCells = 64;

// Constants of ab_lr_scale = 'matched', from the study in docs/explain/lrtt_study.md.
//
// Gain of B whose learning is reproduced at every gain.
constexpr double kPlainGain = 0.5;
// Deviation of B after a re-init, as a fraction of the range of its cells.
constexpr double kFillingOfB = 0.2;
// Change of the effective weight within a cycle that corresponds to an element of A at its bound.
constexpr double kChangePerCycle = 1.0 / 16.0;
// Pulse trains carry the update of a sample if lr 3 |x| max|d| is below this value: inputs of root
// mean square 0.5 at lr 0.1 and gradients of 0.003, typical of a mean loss over some tens of
// samples.
constexpr double kTypicalStep = 0.1 * 3.0 * 0.5 * 0.003;

// The number of components, checked.
int64_t rankOf(const LRTTParams &p, int64_t dSize, int64_t xSize) {
  const int64_t largest = std::min(dSize, xSize);
  const int64_t rank = p.rank.automatic ? std::min(kAutomaticRank, largest) : p.rank.value;
  PULSORA_CHECK(ConfigError, rank >= 0 && rank <= largest, "lrtt.rank is ", rank,
                "; for a tile of size [", dSize, ", ", xSize,
                "] it must be between 0 (no adapter) and ", largest, ", or 'auto'");
  if (rank == 0) return 0;
  PULSORA_CHECK(ConfigError, p.rank_chunk == -1 || (p.rank_chunk >= 1 && p.rank_chunk <= rank),
                "lrtt.rank_chunk is ", p.rank_chunk, "; it must be between 1 and the rank, here ",
                rank, ", or -1 for all components at once");
  PULSORA_CHECK(ConfigError, p.rank_offset >= 0 && p.rank_offset < rank, "lrtt.rank_offset is ",
                p.rank_offset, "; it must be at least 0 and below the rank, here ", rank);
  return rank;
}

// What errors of cells may be without a loss of accuracy: one hundredth of their range.
float toleratedShare(const PulsedParams &cell) { return 0.01f * (cell.w_max - cell.w_min); }

// That, or less where its pulses and writes are quieter; never below half a step.
float automaticTolerance(const PulsedParams &cell, float granularity) {
  const float step = granularity * (1.0f + cell.dw_min_std);
  const float noise = std::max(step, cell.write_noise_std * cell.dw_min);
  return std::max(std::min(toleratedShare(cell), noise), 0.5f * granularity);
}

// The parameters with the transfer mode that 'auto' stands for.
LRTTParams withMode(LRTTParams p, const UpdateParameters &update) {
  if (p.transfer_mode == TransferMode::Auto) {
    p.transfer_mode =
        isDigital(update.pulse_type) ? TransferMode::Lossless : TransferMode::WriteVerify;
  }
  return p;
}

UpdateParameters overridden(UpdateParameters update, bool management, bool blManagement,
                            int desiredBl) {
  update.update_management = management;
  update.update_bl_management = blManagement;
  if (desiredBl > 0) update.desired_bl = desiredBl;
  return update;
}

}  // namespace

DeviceParams defaultFast() {
  const auto &models = deviceModels();
  const bool known = std::any_of(models.begin(), models.end(),
                                 [](const DeviceModel &m) { return m.name == "LinearStep"; });
  if (!known) return {};
  // The numbers of the preset SixT1C (python/pulsora/devices/presets.py), which names their source;
  // a test compares the two.
  return DeviceParams::read(Value(Value::Map{{"model", Value("LinearStep")},
                                             {"dw_min", Value(0.001981)},
                                             {"dw_min_dtod", Value(0.1)},
                                             {"dw_min_std", Value(0.3)},
                                             {"up_down_dtod", Value(0.0)},
                                             {"w_max", Value(1.0)},
                                             {"w_min", Value(-1.0)},
                                             {"w_max_dtod", Value(0.1)},
                                             {"w_min_dtod", Value(0.1)},
                                             {"gamma_up", Value(-0.1678)},
                                             {"gamma_down", Value(0.1410)},
                                             {"gamma_up_dtod", Value(0.0)},
                                             {"gamma_down_dtod", Value(0.0)},
                                             {"allow_increasing", Value(true)},
                                             {"mean_bound_reference", Value(true)},
                                             {"write_noise_std", Value(0.0182)}}),
                            "lrtt.fast");
}

LRTTSettings::LRTTSettings(const LRTTParams &p, const UpdateParameters &update, int64_t dSize_,
                           int64_t xSize_)
    : params(withMode(p, update)),
      dSize(dSize_),
      xSize(xSize_),
      rank(rankOf(p, dSize_, xSize_)),
      inputs(p.swap_xd ? dSize_ : xSize_),
      outputs(p.swap_xd ? xSize_ : dSize_),
      fastUpdate(
          overridden(update, p.ab_use_update_management, p.ab_use_bl_management, p.ab_desired_bl)),
      transferUpdate(overridden(update, p.transfer_use_update_management,
                                p.transfer_use_bl_management, p.transfer_desired_bl)) {
  checkCombinations(params, update);
  checkBlocks(*this);
  if (rank == 0) return;
  const auto n = static_cast<double>(inputs);
  const auto k = static_cast<double>(rank);
  const PulsedParams &cell = p.fast.common();
  fastReach = std::min(cell.w_max, -cell.w_min);
  const auto reach = static_cast<double>(fastReach);
  const bool fills = p.ab_lr_scale == LrScale::Matched && reach > 0.0;
  const double unit = std::sqrt(2.0 / n);  // deviation of B at gain 1
  const double filling = fills ? kFillingOfB * reach / unit : kPlainGain;
  gain = p.reinit_gain.automatic ? static_cast<float>(filling) : p.reinit_gain.value;
  const double spread = static_cast<double>(gain) * unit;
  deviation = static_cast<float>(spread);
  rowNorm = static_cast<float>(static_cast<double>(gain) * std::sqrt(2.0));
  // E[B^T B] = K spread^2 I, so with alpha = 1 / (sqrt(K) spread) and lr alpha as the learning rate
  // of A, the first step after a re-init moves the effective weight as far as plain SGD would.
  // Elements of A are then as large as the corresponding changes of the effective weight.
  const double plain = 1.0 / (std::sqrt(k) * spread);
  double enlarged = 1.0;
  if (fills) {
    const double longest = fastUpdate.desired_bl * static_cast<double>(p.fast.granularity());
    enlarged = std::min(reach / kChangePerCycle, longest * std::sqrt(k / n) / kTypicalStep);
  }
  double scale =
      p.lora_alpha.automatic ? plain / enlarged : static_cast<double>(p.lora_alpha.value);
  if (p.rank_scaling == RankScaling::RsLora) scale /= std::sqrt(k);
  PULSORA_CHECK(ConfigError, std::abs(scale) <= kLargestSetting, "lrtt.reinit_gain is ", gain,
                " and lrtt.lora_alpha is ", p.lora_alpha.automatic ? "'auto'" : "a number",
                ", which makes alpha ", scale, "; use a larger reinit_gain, or set lora_alpha");
  PULSORA_CHECK(ConfigError, static_cast<double>(gain) <= kLargestSetting, "lrtt.reinit_gain is ",
                gain, ", which makes B too large for single precision; use a smaller one");
  alpha = static_cast<float>(scale);
  transferLr = p.transfer_lr.automatic ? alpha : p.transfer_lr.value;
  setLearningRates(scale, plain);
}

void LRTTSettings::setLearningRates(double scale, double plain) {
  switch (params.ab_lr_scale) {
    case LrScale::Alpha:
      lrOfA = lrOfB = alpha;
      break;
    case LrScale::None:
      lrOfA = lrOfB = 1.0f;
      break;
    case LrScale::Matched: {
      // A is s = plain / alpha times larger than at the plain alpha, B is t times larger than at
      // the plain gain; learning rates lr alpha s^2 and lr alpha t^2 keep the path of A B.
      const double s = plain / scale;
      const double t = static_cast<double>(gain) / kPlainGain;
      lrOfA = static_cast<float>(scale * s * s);
      lrOfB = static_cast<float>(scale * t * t);
    }
  }
  if (!params.a_lr.automatic) lrOfA = params.a_lr.value;
  if (!params.b_lr.automatic) lrOfB = params.b_lr.value;
  const auto fits = [](float lr) { return std::abs(static_cast<double>(lr)) <= kLargestSetting; };
  PULSORA_CHECK(
      ConfigError, fits(lrOfA) && fits(lrOfB), "lrtt.lora_alpha = ", alpha,
      " and lrtt.reinit_gain = ", gain,
      " make the learning rate of A or B too large for single precision; leave one of them at "
      "'auto', or set a_lr and b_lr");
  response = {std::abs(scale * static_cast<double>(lrOfA)),
              std::abs(scale * static_cast<double>(lrOfB))};
}

float LRTTSettings::heldFrom() const {
  constexpr float kTolerances = 4.0f;
  if (!keepsRest() || !params.forward_inject || alpha != transferLr) return 0.0f;
  const float tolerance = transferRule().program.tolerance;
  return kTolerances * std::max(tolerance, toleratedShare(params.visible.common()));
}

TransferRule LRTTSettings::transferRule() const {
  TransferRule rule;
  rule.components = rank;
  rule.lr = transferLr;
  rule.mode = params.transfer_mode;
  rule.maxTrains = params.transfer_max_trains;
  const bool verifiesCells = rule.mode == TransferMode::WriteVerify;
  const AutoInt &rounds = params.transfer_rounds;
  rule.rounds = rounds.automatic ? (verifiesCells ? kRoundsOfCells : kRounds) : rounds.value;
  if (verifiesCells) {
    const AutoFloat &tolerance = params.transfer_tolerance;
    const DeviceParams &visible = params.visible;
    rule.program = {tolerance.automatic
                        ? automaticTolerance(visible.common(), visible.granularity())
                        : tolerance.value,
                    rule.rounds, params.transfer_max_pulses};
  }
  rule.chunk = params.rank_chunk < 0 ? rank : params.rank_chunk;
  rule.offset = params.rank_offset;
  rule.update = transferUpdate;
  rule.xIsFirst = params.swap_xd;
  return rule;
}

}  // namespace pulsora
