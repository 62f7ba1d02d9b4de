#include "lrtt/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/initialise.h"

namespace RPU {
namespace {

void checkTrainLength(int length, const char *name) {
  RPU_CHECK(ConfigError, length == -1 || (length >= 1 && length <= 65536), "lrtt.", name, " is ",
            length,
            "; it must be between 1 and 65536, or -1 for the update parameters' desired_bl");
}

void checkRank(const LRTTParams &p, int64_t dSize, int64_t xSize) {
  const int64_t largest = std::min(dSize, xSize);
  RPU_CHECK(ConfigError, p.rank >= 0 && p.rank <= largest, "lrtt.rank is ", p.rank,
            "; for a tile of size [", dSize, ", ", xSize,
            "] it must be between 0 (no adapter) and ", largest);
  if (p.rank == 0) return;
  RPU_CHECK(ConfigError, p.rank_chunk == -1 || (p.rank_chunk >= 1 && p.rank_chunk <= p.rank),
            "lrtt.rank_chunk is ", p.rank_chunk, "; it must be between 1 and lrtt.rank = ", p.rank,
            ", or -1 for all components at once");
  RPU_CHECK(ConfigError, p.rank_offset >= 0 && p.rank_offset < p.rank, "lrtt.rank_offset is ",
            p.rank_offset, "; it must be at least 0 and below lrtt.rank = ", p.rank);
}

void checkCombinations(const LRTTParams &p) {
  if (p.projection == Projection::Reuse) {
    RPU_CHECK(ConfigError, p.forward_inject,
              "lrtt.projection is 'reuse' and lrtt.forward_inject is False, so no forward reads B "
              "x; set forward_inject "
              "to True or projection to 'analog' or 'exact'");
    RPU_CHECK(ConfigError, p.inject_io == InjectIo::PerArray,
              "lrtt.projection is 'reuse' and lrtt.inject_io is 'shared', which never digitises B "
              "x; set inject_io to "
              "'per_array' or projection to 'analog' or 'exact'");
  }
  RPU_CHECK(ConfigError, p.transfer_every >= 0, "lrtt.transfer_every is ", p.transfer_every,
            "; it must be >= 1, or 0 for no transfers");
  RPU_CHECK(ConfigError, p.transfer_max_trains >= 1 && p.transfer_max_trains <= 65536,
            "lrtt.transfer_max_trains is ", p.transfer_max_trains,
            "; it must be between 1 and 65536");
  RPU_CHECK(ConfigError, p.reinit_gain > 0.0f && std::isfinite(p.reinit_gain),
            "lrtt.reinit_gain is ", p.reinit_gain, "; it must be > 0 and finite");
  RPU_CHECK(ConfigError, std::isfinite(p.reinit_decay), "lrtt.reinit_decay is ", p.reinit_decay,
            "; it must be finite");
  RPU_CHECK(ConfigError, p.lora_alpha.automatic || std::isfinite(p.lora_alpha.value),
            "lrtt.lora_alpha is ", p.lora_alpha.value, "; it must be finite, or 'auto'");
  RPU_CHECK(ConfigError, p.transfer_lr.automatic || std::isfinite(p.transfer_lr.value),
            "lrtt.transfer_lr is ", p.transfer_lr.value, "; it must be finite, or 'alpha'");
  checkTrainLength(p.ab_desired_bl, "ab_desired_bl");
  checkTrainLength(p.transfer_desired_bl, "transfer_desired_bl");
}

UpdateParameters overridden(UpdateParameters update, bool management, bool blManagement,
                            int desiredBl) {
  update.update_management = management;
  update.update_bl_management = blManagement;
  if (desiredBl > 0) update.desired_bl = desiredBl;
  return update;
}

}  // namespace

LRTTSettings::LRTTSettings(const LRTTParams &p, const UpdateParameters &update, int64_t dSize_,
                           int64_t xSize_)
    : params(p),
      dSize(dSize_),
      xSize(xSize_),
      rank(p.rank),
      inputs(p.swap_xd ? dSize_ : xSize_),
      outputs(p.swap_xd ? xSize_ : dSize_),
      fastUpdate(
          overridden(update, p.ab_use_update_management, p.ab_use_bl_management, p.ab_desired_bl)),
      transferUpdate(overridden(update, p.transfer_use_update_management,
                                p.transfer_use_bl_management, p.transfer_desired_bl)) {
  checkRank(p, dSize, xSize);
  checkCombinations(p);
  if (rank == 0) return;
  const double n = static_cast<double>(inputs);
  const double k = static_cast<double>(rank);
  const double gain = static_cast<double>(p.reinit_gain);
  // With E[B^T B] = (2 gain^2 K / inputs) I, this alpha makes alpha^2 E[B^T B] = I: the first step
  // after a re-init then moves the effective weight as far as plain SGD would.
  double scale = p.lora_alpha.automatic ? std::sqrt(n / (2.0 * k)) / gain
                                        : static_cast<double>(p.lora_alpha.value);
  if (p.rank_scaling == RankScaling::RsLora) scale /= std::sqrt(k);
  constexpr double kLargest = std::numeric_limits<float>::max();
  RPU_CHECK(ConfigError, std::abs(scale) <= kLargest, "lrtt.reinit_gain is ", p.reinit_gain,
            " and lrtt.lora_alpha is ", p.lora_alpha.automatic ? "'auto'" : "a number",
            ", which makes alpha ", scale, "; use a larger reinit_gain, or set lora_alpha");
  RPU_CHECK(ConfigError, gain * std::sqrt(2.0) <= kLargest, "lrtt.reinit_gain is ", p.reinit_gain,
            ", which makes B too large for single precision; use a smaller one");
  alpha = static_cast<float>(scale);
  deviation = kaimingDeviation(inputs, p.reinit_gain);
  rowNorm = static_cast<float>(gain * std::sqrt(2.0));
  transferLr = p.transfer_lr.automatic ? alpha : p.transfer_lr.value;
}

TransferRule LRTTSettings::transferRule() const {
  TransferRule rule;
  rule.components = rank;
  rule.lr = transferLr;
  rule.mode = params.transfer_mode;
  rule.maxTrains = params.transfer_max_trains;
  rule.chunk = params.rank_chunk < 0 ? rank : params.rank_chunk;
  rule.offset = params.rank_offset;
  rule.update = transferUpdate;
  rule.xIsFirst = params.swap_xd;
  return rule;
}

}  // namespace RPU
