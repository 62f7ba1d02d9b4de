#include "lrtt/setting_checks.h"

#include <cmath>

#include "core/check.h"

namespace pulsora {
namespace {

template <class Number>
void checkBetween(Number value, Number least, Number most, const char *name) {
  PULSORA_CHECK(ConfigError, value >= least && value <= most, "lrtt.", name, " is ", value,
                "; it must be between ", least, " and ", most);
}

void checkBetween(const AutoInt &number, int least, int most, const char *name) {
  PULSORA_CHECK(ConfigError, number.automatic || (number.value >= least && number.value <= most),
                "lrtt.", name, " is ", number.value, "; it must be between ", least, " and ", most,
                ", or 'auto'");
}

void checkTrainLength(int length, const char *name) {
  PULSORA_CHECK(ConfigError, length == -1 || (length >= 1 && length <= 65536), "lrtt.", name,
                " is ", length,
                "; it must be between 1 and 65536, or -1 for the update parameters' desired_bl");
}

void checkFinite(const AutoFloat &number, const char *name) {
  PULSORA_CHECK(ConfigError, number.automatic || std::isfinite(number.value), "lrtt.", name, " is ",
                number.value, "; it must be finite, or 'auto'");
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
  checkBetween(reads, 1, 1024, "verify_reads");
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

void checkLimit(const LRTTParams &p, int64_t limit, const char *name) {
  PULSORA_CHECK(ConfigError, limit >= 0, "lrtt.", name, " is ", limit,
                "; it must be >= 1, or 0 for no limit");
  PULSORA_CHECK(ConfigError, limit == 0 || p.adapter_span == AdapterSpan::Layer, "lrtt.", name,
                " is ", limit,
                " and lrtt.adapter_span is 'tile', but a tile is not cut; set adapter_span to "
                "'layer' or ",
                name, " to 0");
}

}  // namespace

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
  checkBetween(p.chopper_prob, 0.0f, 1.0f, "chopper_prob");
  PULSORA_CHECK(
      ConfigError, p.chopper == Chopper::None || p.reinit != Reinit::None,
      "lrtt.chopper is 'reinit' and lrtt.reinit is 'none', so that A is never 0 and its signs "
      "cannot turn; set chopper to 'none' or reinit to 'decay'");
  if (p.projection == Projection::Reuse) {
    PULSORA_CHECK(
        ConfigError, p.forward_inject,
        "lrtt.projection is 'reuse' and lrtt.forward_inject is False, so no forward reads B x; set "
        "forward_inject to True or projection to 'analog' or 'exact'");
    PULSORA_CHECK(
        ConfigError, p.inject_io == InjectIo::PerArray,
        "lrtt.projection is 'reuse' and lrtt.inject_io is 'shared', which never digitises B x; set "
        "inject_io to 'per_array' or projection to 'analog' or 'exact'");
  }
  checkPeriod(p);
  checkBetween(p.transfer_max_trains, 1, 65536, "transfer_max_trains");
  checkBetween(p.transfer_rounds, 1, 64, "transfer_rounds");
  checkBetween(p.transfer_max_pulses, 1, 65536, "transfer_max_pulses");
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

}  // namespace pulsora
