#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "linalg/math_util.h"
#include "lrtt/adapter_noise.h"
#include "lrtt/lrtt_transfer_device.h"

namespace pulsora {
namespace {

// Limits of an adapter: texts, each with the share of a signal that is lost or drowned in noise.
class Limits {
 public:
  void add(double share, std::string text) { limits_.push_back({share, std::move(text)}); }
  // Moves the warnings out of the explanation of an update; the share of each is the update's
  // "undelivered".
  void takeFrom(Value::Map &update, const char *what) {
    const auto found = update.find("warnings");
    if (found == update.end()) return;
    const double lost = *update.at("undelivered").real();
    for (const Value &warning : *found->second.list())
      add(lost, message(what, ": ", *warning.text()));
    update.erase(found);
  }
  bool empty() const { return limits_.empty(); }
  // The texts, the most important one first.
  Value::List list() {
    std::stable_sort(limits_.begin(), limits_.end(),
                     [](const Limit &a, const Limit &b) { return a.share > b.share; });
    Value::List texts;
    for (Limit &limit : limits_) texts.emplace_back(std::move(limit.text));
    return texts;
  }

 private:
  struct Limit {
    double share;
    std::string text;
  };
  std::vector<Limit> limits_;
};

// Warns if the adapter adds more than twice the noise of W to a forward. A is the second array
// unless the sides are exchanged.
void judgeNoise(const AdapterNoise &noise, const LRTTSettings &s, Limits &limits) {
  if (noise.total() < 4.0) return;
  const bool ofB = s.params.swap_xd ? noise.second > noise.first : noise.first > noise.second;
  const bool free = s.params.ab_lr_scale == LrScale::Matched;
  limits.add(
      noise.total() / (1.0 + noise.total()),
      message("forward: the adapter brings ", std::round(10.0 * std::sqrt(noise.total())) / 10.0,
              " times the noise of the read of W, most of it from the read of ", ofB ? "B" : "A",
              "; inject_io='shared' adds none, and a ",
              ofB ? "larger reinit_gain than " : "smaller lora_alpha than ", ofB ? s.gain : s.alpha,
              " less", free ? "" : " (with ab_lr_scale='matched', so that A B learns as before)"));
}

// The pulses that accumulated gradients send for an update by (x, d, lr).
Value::Map explainAccumulated(const Context &context, const UpdateParameters &update,
                              float granularity, MatrixView<const float> x,
                              MatrixView<const float> d, float lr, const char *what,
                              Limits &limits) {
  Buffer<float> change = Buffer<float>::zeros(context, d.cols * x.cols);
  const auto accumulated = rowMajor(change.data(), d.cols, x.cols);
  gemm(context, lr, d.transposed(), x, 0.0f, accumulated);
  double sum = 0.0;
  double largest = 0.0;
  for (const float value : onHost(context, accumulated)) {
    const double pulses = std::abs(static_cast<double>(value)) / static_cast<double>(granularity);
    sum += pulses;
    largest = std::max(largest, pulses);
  }
  const double late = largest > 0.0 ? 1.0 - update.desired_bl / largest : 0.0;
  if (late > 0.0) {
    limits.add(late,
               message(what, ": the largest element asks for ", largest,
                       " pulses in a mini-batch, of which desired_bl admits ", update.desired_bl,
                       "; the others are sent later; raise desired_bl or lower lr"));
  }
  return {{"samples", Value(x.rows)},
          {"mean_pulses", Value(sum / static_cast<double>(accumulated.size()))},
          {"largest_pulses", Value(largest)}};
}

// g and e as an update pulses A and B by them, with lines about the limit of their steps.
struct Steps {
  Buffer<float> g;
  Buffer<float> e;
  Value::Map lines;
};

Steps limitedSteps(const Context &context, const LRTTSettings &s, MatrixView<const float> in,
                   MatrixView<const float> out, MatrixView<const float> g,
                   MatrixView<const float> e) {
  const double most = static_cast<double>(s.params.ab_step_limit);
  Steps steps{Buffer<float>(context, g.size()),
              Buffer<float>(context, e.size()),
              {{"ab_step_limit", Value(most)}}};
  const auto limitedG = rowMajor(steps.g.data(), g.rows, g.cols);
  const auto limitedE = rowMajor(steps.e.data(), e.rows, e.cols);
  copy(context, g, limitedG);
  copy(context, e, limitedE);
  if (most == 0.0 || in.rows == 0) return steps;
  StepLimit limit;
  limit.apply(context, s.response, most, in, out, limitedG, limitedE);
  const StepLimit::Effect effect = limit.effect(context, s.response, most, in.rows);
  steps.lines["limited_samples"] = Value(effect.limited);
  steps.lines["mean_step_factor"] = Value(effect.meanFactor);
  return steps;
}

// Deviation of the cells of A and B from symmetry around 0.
struct Asymmetry {
  double steps = 0.0;  // of mean steps, at the present weights
  double point = 0.0;  // root mean square of their symmetric points
};

Asymmetry asymmetryOf(const Context &context, const LRTTAdapter &adapter) {
  double differences = 0.0;
  double sums = 0.0;
  double squares = 0.0;
  double cells = 0.0;
  for (const PulsedDevice *array : {&adapter.a(), &adapter.b()}) {
    const int64_t size = array->size();
    const Buffer<float> planes = array->describeCells(context);
    const Buffer<float> points = array->symmetricPoints(context);
    const std::vector<float> steps =
        onHost(context, rowMajor<const float>(planes.data() + 2 * size, 2, size));
    const std::vector<float> at = onHost(context, rowMajor<const float>(points.data(), 1, size));
    for (size_t i = 0; i < at.size(); ++i) {
      const auto up = static_cast<double>(steps[i]);
      const auto down = static_cast<double>(steps[i + at.size()]);
      differences += std::abs(up + down);
      sums += std::abs(up - down);
      squares += static_cast<double>(at[i]) * static_cast<double>(at[i]);
    }
    cells += static_cast<double>(size);
  }
  return {sums > 0.0 ? differences / sums : 0.0, std::sqrt(squares / cells)};
}

// Warns if steps up and down differ by more than a tenth on average.
void judgeAsymmetry(const Asymmetry &asymmetry, const LRTTSettings &s, Limits &limits) {
  const bool bySample = s.params.ab_update == FactorUpdate::Sample;
  const bool apart = asymmetry.point > 0.05 * static_cast<double>(s.params.fast.common().w_max);
  if (asymmetry.steps < 0.1 || !(bySample || apart)) return;
  limits.add(
      asymmetry.steps,
      message("fast: steps of A and B up and down differ by ",
              std::round(1000.0 * asymmetry.steps) / 10.0,
              " % of their mean, so that pulses pull cells to their symmetric points, ",
              std::round(1000.0 * asymmetry.point) / 1000.0,
              " away from 0 (root mean square), whatever the gradient;",
              apart ? " reference='symmetric_point' makes these points 0" : "",
              apart && bySample ? "," : "",
              bySample ? " ab_update='accumulated' sends fewer pulses for the same change" : ""));
}

// The share of cells at their targets that write noise of this deviation leaves outside of the
// tolerance: each round draws it anew, until a draw is accepted.
double missedCells(const ProgramSettings &program, double noise) {
  const auto beyond = [&](float error) {
    return noise > 0.0 ? std::erfc(static_cast<double>(error) / (noise * std::sqrt(2.0))) : 0.0;
  };
  const double outside = beyond(program.tolerance);
  double going = 1.0;
  double missed = 0.0;
  for (int round = 1; round < program.rounds; ++round) {
    const double next = beyond(acceptedError(program.tolerance, round, program.rounds));
    missed += going * (outside - next);
    going *= next;
  }
  return missed + going * outside;
}

// Rounds of program and verify end at a write whose noise is accepted.
void explainProgram(const LRTTSettings &s, const ProgramSettings &program,
                    const CellVerifier *verifier, Value::Map &map, Limits &limits) {
  const PulsedParams &cell = s.params.visible.common();
  const double noise = static_cast<double>(cell.write_noise_std) * static_cast<double>(cell.dw_min);
  const double tolerance = static_cast<double>(program.tolerance);
  const double missed = missedCells(program, noise);
  map["tolerance"] = Value(tolerance);
  map["rounds"] = Value(program.rounds);
  map["missed_cells"] = Value(missed);
  if (verifier) {
    map["verify_reads"] = Value(verifier->reads());
    map["read_error"] = Value(verifier->error());
    if (verifier->error() > tolerance) {
      limits.add(0.1, message("transfer: with verify_read = 'analog', the mean of ",
                              verifier->reads(), " readings of a cell has an error of ",
                              verifier->error(), ", more than transfer_tolerance = ", tolerance,
                              "; use a larger verify_reads or transfer_tolerance"));
    }
  }
  if (missed <= 0.01) return;
  limits.add(missed, message("transfer: the write noise of the visible cells, ", noise, ", leaves ",
                             100.0 * missed,
                             " % of the cells that are pulsed outside transfer_tolerance = ",
                             tolerance, " after ", program.rounds,
                             " rounds; use a larger transfer_tolerance or transfer_rounds"));
}

Value::Map explainTransfer(const Context &context, const LRTTSettings &s, float granularity,
                           const LRTTAdapter &adapter, const LRTTTransfer &transfers,
                           Limits &limits) {
  Value::Map map{{"mode", Value(nameOf(s.params.transfer_mode))}};
  const TransferRule rule = s.transferRule();
  if (rule.mode == TransferMode::WriteVerify)
    explainProgram(s, rule.program, transfers.verifier(), map, limits);
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
    limits.add(lost, message("transfer: ", clipped, " of ", s.rank,
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

  Steps steps = limitedSteps(context, s, in, out, g, e);
  const auto gOfUpdate = rowMajor<const float>(steps.g.data(), in.rows, s.rank);
  const auto eOfUpdate = rowMajor<const float>(steps.e.data(), in.rows, s.rank);
  const float lrA = lr * s.lrOfA;
  const float lrB = lr * s.lrOfB;
  // At the beginning of a cycle A is 0, and so is the update of B.
  const int64_t since = filling_ ? filling_->since() : schedule_.since();
  const bool begins = (filling_ || schedule_.period() > 0) && since == 0;
  Limits limits;
  Limits early;
  const bool accumulated = s.params.ab_update == FactorUpdate::Accumulated;
  const auto update = [&](const PulsedDevice &array, MatrixView<const float> inputs,
                          MatrixView<const float> gradients, float rate, const char *what,
                          Limits &to) {
    if (accumulated) {
      return explainAccumulated(context, s.fastUpdate, array.granularity(), inputs, gradients, rate,
                                what, to);
    }
    Value::Map map =
        explainPulses(context, s.fastUpdate, array.granularity(), inputs, gradients, rate);
    to.takeFrom(map, what);
    return map;
  };
  Value::Map a = update(adapter_->a(), gOfUpdate, out, lrA, "update of A", limits);
  const double asked = accumulated ? 0.0 : *a.at("mean_pulses_of_largest").real();
  if (!limits.empty() && asked > s.fastUpdate.desired_bl) {
    limits.add(
        *a.at("undelivered").real(),
        message("update of A: with lora_alpha = ",
                static_cast<double>(s.alpha) * asked / s.fastUpdate.desired_bl, " instead of ",
                s.alpha, ", elements of A and their updates are smaller, and trains carry them"));
  }
  Value::Map b = update(adapter_->b(), in, eOfUpdate, lrB, "update of B", begins ? early : limits);
  Value::Map transfer =
      explainTransfer(context, s, visible().granularity(), *adapter_, *transfers_, limits);
  const bool swap = s.params.swap_xd;
  const auto noiseOf = [&](Pass pass, MatrixView<const float> inputs) {
    const bool fromB = (pass == Pass::Forward) != swap;  // whether B is the first of the two
    Crossbar &second = fromB ? adapter_->arrayA() : adapter_->arrayB();
    const Pass own = fromB ? Pass::Forward : Pass::Backward;
    return adapterNoise(context, s, visible_.read(pass), inputs, fromB ? g : e,
                        {second.read(own), second.weights(own)});
  };
  const AdapterNoise noise = noiseOf(Pass::Forward, x);
  judgeNoise(noise, s, limits);
  const Asymmetry asymmetry = asymmetryOf(context, *adapter_);
  judgeAsymmetry(asymmetry, s, limits);
  if (s.alpha == 0.0f) {
    limits.add(1.0,
               "lrtt.lora_alpha is 0: the adapter has no part in the forward and, with "
               "ab_lr_scale='alpha', does not learn; set lora_alpha to 'auto'");
  }
  const AutoLong &every = s.params.transfer_every;
  if (s.params.reinit == Reinit::None && (filling_ || every.value > 0)) {
    limits.add(
        1.0,
        "lrtt.reinit is 'none': what a transfer has moved into W stays in A B and is moved again "
        "by the next one");
  }
  Value::Map result{
      {"rank", Value(s.rank)},
      {"alpha", Value(static_cast<double>(s.alpha))},
      {"transfer_lr", Value(static_cast<double>(s.transferLr))},
      {"a_lr", Value(static_cast<double>(lrA))},
      {"b_lr", Value(static_cast<double>(lrB))},
      {"reinit_std", Value(static_cast<double>(s.deviation))},
      {"transfer_every", filling_ ? Value("auto") : Value(every.value)},
      {"since_transfer", Value(since)},
      {"a", Value(std::move(a))},
      {"b", Value(std::move(b))},
      {"adapter_noise", Value(std::sqrt(noise.total()))},
      {"adapter_noise_backward", Value(std::sqrt(noiseOf(Pass::Backward, d).total()))},
      {"fast_asymmetry", Value(asymmetry.steps)},
      {"fast_symmetric_point", Value(asymmetry.point)},
      {"transfer", Value(std::move(transfer))},
      {"warnings", Value(limits.list())}};
  result.merge(steps.lines);
  if (transfers_->count() == 0 && schedule_.period() > 0) {
    result["first_transfer"] = Value(message(
        "no transfer before ", s.params.units_in_mbatch ? "mini-batch " : "sample ", every.value));
  }
  if (filling_) {
    result["filling"] = Value(filling_->describe(context, *adapter_));
    if (transfers_->count() == 0) {
      result["first_transfer"] =
          Value(message("no transfer before A or B has a filling of ", AdapterFilling::kFull));
    }
  }
  return result;
}

}  // namespace pulsora
