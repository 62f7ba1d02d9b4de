#include "lrtt/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "linalg/initialise.h"
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

void checkTrainLength(int length, const char *name) {
  PULSORA_CHECK(ConfigError, length == -1 || (length >= 1 && length <= 65536), "lrtt.", name,
                " is ", length,
                "; it must be between 1 and 65536, or -1 for the update parameters' desired_bl");
}

void checkFinite(const AutoFloat &number, const char *name) {
  PULSORA_CHECK(ConfigError, number.automatic || std::isfinite(number.value), "lrtt.", name, " is ",
                number.value, "; it must be finite, or 'auto'");
}

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

template <class Enum>
const char *nameOf(Enum value) {
  return EnumNames<Enum>::kNames[static_cast<int>(value)];
}

// Modes that correct what pulses have left undone need pulses.
void checkMode(TransferMode mode, PulseType pulses) {
  const bool verifies = mode == TransferMode::Verified || mode == TransferMode::WriteVerify;
  PULSORA_CHECK(ConfigError, !verifies || !isDigital(pulses), "lrtt.transfer_mode is '",
                nameOf(mode), "' and update.pulse_type is '", nameOf(pulses),
                "', which sends no pulses; set transfer_mode to 'auto' or 'exact', or pulse_type "
                "to 'stochastic_compressed'");
}

void checkTolerance(const LRTTParams &p, const UpdateParameters &update) {
  const AutoFloat &tolerance = p.transfer_tolerance;
  PULSORA_CHECK(ConfigError,
                tolerance.automatic || (tolerance.value > 0.0f && std::isfinite(tolerance.value)),
                "lrtt.transfer_tolerance is ", tolerance.value,
                "; it must be > 0 and finite, or 'auto'");
  if (p.transfer_mode != TransferMode::WriteVerify) {
    PULSORA_CHECK(ConfigError, tolerance.automatic, "lrtt.transfer_tolerance is ", tolerance.value,
                  ", which lrtt.transfer_mode = '", nameOf(p.transfer_mode), "' does not use",
                  isDigital(update.pulse_type)
                      ? " (pulse_type sends no pulses); set transfer_tolerance to 'auto'"
                      : "; set transfer_mode to 'write_verify', or transfer_tolerance to 'auto'");
    const LRTTParams usual;
    PULSORA_CHECK(ConfigError, p.transfer_max_pulses == usual.transfer_max_pulses,
                  "lrtt.transfer_max_pulses is ", p.transfer_max_pulses,
                  ", which lrtt.transfer_mode = '", nameOf(p.transfer_mode),
                  "' does not use; set transfer_mode to 'write_verify', or leave it at ",
                  usual.transfer_max_pulses);
    return;
  }
  const float least = 0.5f * p.visible.granularity();
  PULSORA_CHECK(ConfigError, tolerance.automatic || tolerance.value >= least,
                "lrtt.transfer_tolerance is ", tolerance.value,
                ", but a step of the visible cells is ", 2.0f * least,
                ", so that they hold no value to less than ", least,
                "; set transfer_tolerance to that or more, or to 'auto'");
}

void checkVerifyRead(const LRTTParams &p) {
  const AutoInt &reads = p.verify_reads;
  if (p.verify_read == TransferRead::Exact) {
    PULSORA_CHECK(ConfigError, reads.automatic, "lrtt.verify_reads is ", reads.value,
                  " and lrtt.verify_read is 'exact', which has no error to average; set "
                  "verify_read to 'analog' or verify_reads to 'auto'");
    return;
  }
  PULSORA_CHECK(ConfigError, p.transfer_mode == TransferMode::WriteVerify,
                "lrtt.verify_read is 'analog', but lrtt.transfer_mode = '", nameOf(p.transfer_mode),
                "' reads no cells one by one; set transfer_mode to 'write_verify' (with a "
                "pulse_type that sends pulses), or verify_read to 'exact'");
  PULSORA_CHECK(ConfigError, reads.automatic || (reads.value >= 1 && reads.value <= 1024),
                "lrtt.verify_reads is ", reads.value, "; it must be between 1 and 1024, or 'auto'");
}

void checkPeriod(const LRTTParams &p) {
  if (!p.transfer_every.automatic) {
    PULSORA_CHECK(ConfigError, p.transfer_every.value >= 0, "lrtt.transfer_every is ",
                  p.transfer_every.value, "; it must be >= 1, 0 for no transfers, or 'auto'");
    return;
  }
  PULSORA_CHECK(ConfigError, p.units_in_mbatch,
                "lrtt.transfer_every is 'auto', which looks at A and B at the ends of "
                "mini-batches, but lrtt.units_in_mbatch is False, a schedule in samples; set "
                "units_in_mbatch to True or transfer_every to a number of samples");
  const PulsedParams &cell = p.fast.common();
  PULSORA_CHECK(ConfigError,
                cell.w_min < 0.0f && cell.w_max > 0.0f && std::isfinite(cell.w_min) &&
                    std::isfinite(cell.w_max),
                "lrtt.transfer_every is 'auto', a share of the range of the fast cells, but "
                "lrtt.fast reaches from ",
                cell.w_min, " to ", cell.w_max,
                "; give cells with finite bounds on both sides of 0, or a number of mini-batches");
}

void checkCombinations(const LRTTParams &p, const UpdateParameters &update) {
  if (p.ab_update == FactorUpdate::Accumulated) {
    PULSORA_CHECK(ConfigError, !isDigital(update.pulse_type),
                  "lrtt.ab_update is 'accumulated' and update.pulse_type is '",
                  nameOf(update.pulse_type),
                  "', which sends no pulses; set ab_update to 'sample' or pulse_type to "
                  "'stochastic_compressed'");
  }
  PULSORA_CHECK(ConfigError,
                p.reference_pulses == 0 || p.reference == FastReference::SymmetricPoint,
                "lrtt.reference_pulses is ", p.reference_pulses,
                " and lrtt.reference is 'none', which needs no pulses; set reference to "
                "'symmetric_point' or reference_pulses to 0");
  PULSORA_CHECK(ConfigError, p.reference_pulses >= 0 && p.reference_pulses <= 100000,
                "lrtt.reference_pulses is ", p.reference_pulses,
                "; it must be between 1 and 100000, or 0 for exact references");
  PULSORA_CHECK(ConfigError, p.chopper_prob >= 0.0f && p.chopper_prob <= 1.0f,
                "lrtt.chopper_prob is ", p.chopper_prob, "; it must be between 0 and 1");
  PULSORA_CHECK(
      ConfigError, p.chopper == Chopper::None || p.reinit != Reinit::None,
      "lrtt.chopper is 'reinit' and lrtt.reinit is 'none', so that A is never 0 and its signs "
      "cannot turn; set chopper to 'none' or reinit to 'decay'");
  if (p.projection == Projection::Reuse) {
    PULSORA_CHECK(
        ConfigError, p.forward_inject,
        "lrtt.projection is 'reuse' and lrtt.forward_inject is False, so no forward reads B "
        "x; set forward_inject "
        "to True or projection to 'analog' or 'exact'");
    PULSORA_CHECK(
        ConfigError, p.inject_io == InjectIo::PerArray,
        "lrtt.projection is 'reuse' and lrtt.inject_io is 'shared', which never digitises B "
        "x; set inject_io to "
        "'per_array' or projection to 'analog' or 'exact'");
  }
  checkPeriod(p);
  PULSORA_CHECK(ConfigError, p.transfer_max_trains >= 1 && p.transfer_max_trains <= 65536,
                "lrtt.transfer_max_trains is ", p.transfer_max_trains,
                "; it must be between 1 and 65536");
  const AutoInt &rounds = p.transfer_rounds;
  PULSORA_CHECK(ConfigError, rounds.automatic || (rounds.value >= 1 && rounds.value <= 64),
                "lrtt.transfer_rounds is ", rounds.value,
                "; it must be between 1 and 64, or 'auto'");
  PULSORA_CHECK(ConfigError, p.transfer_max_pulses >= 1 && p.transfer_max_pulses <= 65536,
                "lrtt.transfer_max_pulses is ", p.transfer_max_pulses,
                "; it must be between 1 and 65536");
  checkMode(p.transfer_mode, update.pulse_type);
  checkTolerance(p, update);
  checkVerifyRead(p);
  const AutoFloat &gain = p.reinit_gain;
  PULSORA_CHECK(ConfigError, gain.automatic || (gain.value > 0.0f && std::isfinite(gain.value)),
                "lrtt.reinit_gain is ", gain.value, "; it must be > 0 and finite, or 'auto'");
  PULSORA_CHECK(ConfigError, p.ab_step_limit >= 0.0f && std::isfinite(p.ab_step_limit),
                "lrtt.ab_step_limit is ", p.ab_step_limit,
                "; it must be > 0 and finite, or 0 for no limit");
  checkFinite(p.a_lr, "a_lr");
  checkFinite(p.b_lr, "b_lr");
  PULSORA_CHECK(ConfigError, std::isfinite(p.reinit_decay), "lrtt.reinit_decay is ", p.reinit_decay,
                "; it must be finite");
  checkFinite(p.lora_alpha, "lora_alpha");
  PULSORA_CHECK(
      ConfigError,
      p.ab_lr_scale != LrScale::Matched || p.lora_alpha.automatic || p.lora_alpha.value != 0.0f,
      "lrtt.lora_alpha is 0 and lrtt.ab_lr_scale is 'matched', but no learning rate of A "
      "makes an adapter of no weight match plain SGD; set lora_alpha to 'auto' or "
      "ab_lr_scale to 'none'");
  PULSORA_CHECK(ConfigError, p.transfer_lr.automatic || std::isfinite(p.transfer_lr.value),
                "lrtt.transfer_lr is ", p.transfer_lr.value, "; it must be finite, or 'alpha'");
  checkTrainLength(p.ab_desired_bl, "ab_desired_bl");
  checkTrainLength(p.transfer_desired_bl, "transfer_desired_bl");
}

void checkLimit(const LRTTParams &p, int64_t limit, const char *name) {
  PULSORA_CHECK(ConfigError, limit >= 0, "lrtt.", name, " is ", limit,
                "; it must be >= 1, or 0 for no limit");
  PULSORA_CHECK(ConfigError, limit == 0 || p.adapter_span == AdapterSpan::Layer, "lrtt.", name,
                " is ", limit,
                " and lrtt.adapter_span is 'tile', but a tile is not cut; set adapter_span to "
                "'layer' or ",
                name, " to 0");
}

// Checks the blocks of a layer that is one tile.
void checkBlocks(const LRTTSettings &s) {
  constexpr int64_t kMostBlocks = 4096;  // each has converters and memory of its own
  const LRTTParams &p = s.params;
  checkLimit(p, p.max_input_size, "max_input_size");
  checkLimit(p, p.max_output_size, "max_output_size");
  const int64_t wide = countOfRanges(s.xSize, p.max_input_size);
  const int64_t high = countOfRanges(s.dSize, p.max_output_size);
  PULSORA_CHECK(ConfigError, wide <= kMostBlocks / high, "lrtt.max_output_size is ",
                p.max_output_size, " and lrtt.max_input_size is ", p.max_input_size,
                ", which cuts a tile of size [", s.dSize, ", ", s.xSize, "] into more than ",
                kMostBlocks, " blocks; raise them");
  PULSORA_CHECK(
      ConfigError,
      wide * high == 1 || s.rank == 0 || !p.forward_inject || p.inject_io == InjectIo::PerArray,
      "lrtt.inject_io is 'shared', but a tile of size [", s.dSize, ", ", s.xSize, "] is read in ",
      wide * high,
      " blocks, whose converters each see a part of B x; set inject_io to 'per_array', or "
      "adapter_span to 'tile'");
  PULSORA_CHECK(ConfigError,
                wide * high == 1 || s.rank == 0 || p.verify_read == TransferRead::Exact,
                "lrtt.verify_read is 'analog', but a tile of size [", s.dSize, ", ", s.xSize,
                "] is read in ", wide * high,
                " blocks, whose converters see one line each; set verify_read to 'exact', or "
                "adapter_span to 'tile'");
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
  const double n = static_cast<double>(inputs);
  const double k = static_cast<double>(rank);
  const bool matched = p.ab_lr_scale == LrScale::Matched;
  const PulsedParams &cell = p.fast.common();
  fastReach = std::min(cell.w_max, -cell.w_min);
  const auto reach = static_cast<double>(fastReach);
  const double unit = std::sqrt(2.0 / n);  // deviation of B at gain 1
  const double filling = matched && reach > 0.0 ? kFillingOfB * reach / unit : kPlainGain;
  gain = p.reinit_gain.automatic ? static_cast<float>(filling) : p.reinit_gain.value;
  const double spread = static_cast<double>(gain) * unit;
  deviation = static_cast<float>(spread);
  rowNorm = static_cast<float>(static_cast<double>(gain) * std::sqrt(2.0));
  // E[B^T B] = K spread^2 I, so with alpha = 1 / (sqrt(K) spread) and lr alpha as the learning rate
  // of A, the first step after a re-init moves the effective weight as far as plain SGD would.
  // Elements of A are then as large as the corresponding changes of the effective weight.
  const double plain = 1.0 / (std::sqrt(k) * spread);
  double enlarged = 1.0;
  if (matched && reach > 0.0) {
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
  switch (p.ab_lr_scale) {
    case LrScale::Alpha:
      lrOfA = lrOfB = alpha;
      break;
    case LrScale::None:
      lrOfA = lrOfB = 1.0f;
      break;
    case LrScale::Matched: {
      // A is s = plain / alpha times larger than in the comment above, B is t times larger than at
      // the plain gain; learning rates lr alpha s^2 and lr alpha t^2 keep the path of A B.
      const double s = plain / scale;
      const double t = static_cast<double>(gain) / kPlainGain;
      lrOfA = static_cast<float>(scale * s * s);
      lrOfB = static_cast<float>(scale * t * t);
    }
  }
  if (!p.a_lr.automatic) lrOfA = p.a_lr.value;
  if (!p.b_lr.automatic) lrOfB = p.b_lr.value;
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
