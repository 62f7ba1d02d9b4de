#include <algorithm>

#include "core/backend.h"
#include "core/math_util.h"
#include "lrtt/lrtt_transfer_device.h"

namespace RPU {
namespace {

void takeWarnings(Value::Map &from, const char *what, Value::List &to) {
  const auto found = from.find("warnings");
  if (found == from.end()) return;
  for (const Value &warning : *found->second.list())
    to.emplace_back(message(what, ": ", *warning.text()));
  from.erase(found);
}

Value::Map explainTransfer(const Context &context, const LRTTSettings &s, float granularity,
                           const LRTTAdapter &adapter, Value::List &warnings) {
  Value::Map map{
      {"mode", Value(EnumNames<TransferMode>::kNames[static_cast<int>(s.params.transfer_mode)])}};
  const TransferRule rule = s.transferRule();
  if (!rule.sendsPulses()) return map;
  const TransferPlan plan =
      planTransfer(context, rule, granularity, adapter.dFactor(), adapter.xFactor());
  int most = 0;
  int64_t clipped = 0;
  float strongest = 0.0f;
  double driven = 0.0;
  double wanted = 0.0;
  for (const ComponentPlan &component : plan.components) {
    most = std::max(most, component.trains);
    clipped += component.clipped;
    strongest = std::max(strongest, component.strength);
    driven += component.driven;
    wanted += component.wanted;
  }
  const double lost = wanted > 0.0 ? 1.0 - driven / wanted : 0.0;
  map["bl"] = Value(s.transferUpdate.desired_bl);
  map["trains"] = Value(plan.trains());
  map["most_trains_per_component"] = Value(most);
  map["pulses_of_largest"] = Value(static_cast<double>(strongest));
  map["clipped_components"] = Value(clipped);
  map["undelivered"] = Value(lost);
  if (clipped > 0) {
    warnings.emplace_back(message("transfer: ", clipped, " of ", s.rank,
                                  " components do not fit their trains and ", 100.0 * lost,
                                  " % of A B would be lost if it were due now; use "
                                  "transfer_mode='lossless' with a larger transfer_max_trains, "
                                  "a larger transfer_desired_bl, or a smaller transfer_every"));
  }
  return map;
}

}  // namespace

Value::Map LRTTTransferDevice::explain(const Context &context, MatrixView<const float> x,
                                       MatrixView<const float> d, float lr) const {
  if (!adapter_) {
    return explainPulses(context, visible_.updater().parameters(), visible().granularity(), x, d,
                         lr);
  }
  const LRTTSettings &s = settings_;
  const MatrixView<const float> in = s.params.swap_xd ? d : x;
  const MatrixView<const float> out = s.params.swap_xd ? x : d;
  Buffer<float> gValues(context, in.rows * s.rank);
  Buffer<float> eValues(context, in.rows * s.rank);
  const auto g = rowMajor(gValues.data(), in.rows, s.rank);
  const auto e = rowMajor(eValues.data(), in.rows, s.rank);
  gemm(context, 1.0f, in, adapter_->b().weights().transposed(), 0.0f, g);
  gemm(context, 1.0f, out, adapter_->a().weights(), 0.0f, e);

  const float lrA = lr * s.lrOfA;
  const float lrB = lr * s.lrOfB;
  Value::List warnings;
  Value::Map a = explainPulses(context, s.fastUpdate, adapter_->a().granularity(), g, out, lrA);
  Value::Map b = explainPulses(context, s.fastUpdate, adapter_->b().granularity(), in, e, lrB);
  takeWarnings(a, "update of A", warnings);
  const double asked = *a.at("mean_pulses_of_largest").real();
  if (!warnings.empty() && asked > s.fastUpdate.desired_bl) {
    warnings.emplace_back(message("update of A: with lora_alpha = ",
                                  static_cast<double>(s.alpha) * asked / s.fastUpdate.desired_bl,
                                  " instead of ", s.alpha,
                                  ", elements of A and their updates are smaller, and trains carry "
                                  "them"));
  }
  // At the beginning of a cycle A is 0, and so is the update of B.
  const bool begins = schedule_.period() > 0 && schedule_.since() == 0;
  Value::List early;
  takeWarnings(b, "update of B", begins ? early : warnings);
  Value::Map transfer = explainTransfer(context, s, visible().granularity(), *adapter_, warnings);
  if (s.alpha == 0.0f) {
    warnings.emplace_back(
        "lrtt.lora_alpha is 0: the adapter has no part in the forward and, with "
        "ab_lr_scale='alpha', "
        "does not learn; set lora_alpha to 'auto'");
  }
  if (s.params.reinit == Reinit::None && s.params.transfer_every > 0) {
    warnings.emplace_back(
        "lrtt.reinit is 'none': what a transfer has moved into W stays in A B and is moved again "
        "by "
        "the next one");
  }
  return {{"rank", Value(s.rank)},
          {"alpha", Value(static_cast<double>(s.alpha))},
          {"transfer_lr", Value(static_cast<double>(s.transferLr))},
          {"a_lr", Value(static_cast<double>(lrA))},
          {"b_lr", Value(static_cast<double>(lrB))},
          {"reinit_std", Value(static_cast<double>(s.deviation))},
          {"transfer_every", Value(s.params.transfer_every)},
          {"since_transfer", Value(schedule_.since())},
          {"a", Value(std::move(a))},
          {"b", Value(std::move(b))},
          {"transfer", Value(std::move(transfer))},
          {"warnings", Value(std::move(warnings))}};
}

}  // namespace RPU
