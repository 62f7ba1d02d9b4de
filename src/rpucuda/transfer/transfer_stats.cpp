#include "transfer/transfer_stats.h"

#include "numerics/math.h"

namespace pulsora {
namespace {

// One list of the numbers of TransferStats, for saving and loading.
template <class Stats, class Visitor>
void visitStats(Stats &s, const Visitor &visit) {
  visit("transfers", s.transfers);
  visit("sendings", s.sendings);
  visit("trains", s.trains);
  visit("pulses", s.pulses);
  visit("clipped_components", s.clippedComponents);
  visit("delivered", s.delivered);
  visit("intended", s.intended);
  visit("driven", s.driven);
  visit("wanted", s.wanted);
  visit("norm_a", s.normA);
  visit("norm_b", s.normB);
}

// Like visitStats(), for the numbers of program and verify.
template <class Stats, class Visitor>
void visitProgram(Stats &s, const Visitor &visit) {
  visit("slots", s.slots);
  visit("reads", s.reads);
  visit("outside", s.outside);
  visit("most_pulses", s.mostPulses);
  visit("error_sum", s.errorSum);
  visit("error_square", s.errorSquare);
  visit("cells", s.cells);
}

struct Reader {
  const State &state;
  std::string prefix;

  void operator()(const char *name, double &out) const { out = state.number(prefix + name); }
  void operator()(const char *name, uint64_t &out) const { out = state.counter(prefix + name); }
};

}  // namespace

double TransferStats::error() const {
  return cells > 0 ? pulsora::sqrt(errorSquare / static_cast<double>(cells)) : 0.0;
}

Value::Map TransferStats::describe() const {
  return {{"transfers", Value(transfers)},
          {"gain", Value(gain())},
          {"undelivered", Value(undelivered())},
          {"sendings", Value(sendings)},
          {"trains", Value(trains)},
          {"pulses", Value(pulses)},
          {"clipped_components", Value(clippedComponents)},
          {"slots", Value(slots)},
          {"reads", Value(reads)},
          {"outside_cells", Value(outside)},
          {"most_pulses", Value(mostPulses)},
          {"error", Value(error())},
          {"norm_a", Value(normA)},
          {"norm_b", Value(normB)}};
}

void TransferStats::saveTo(State &state, const std::string &prefix, bool verifies) const {
  const auto put = [&](const char *name, auto value) {
    state.values[prefix + name] = Value(value);
  };
  visitStats(*this, put);
  if (verifies) visitProgram(*this, put);
}

TransferStats TransferStats::loadFrom(const State &state, const std::string &prefix,
                                      bool verifies) {
  TransferStats stats;
  const Reader reader{state, prefix};
  visitStats(stats, reader);
  if (verifies) visitProgram(stats, reader);
  return stats;
}

}  // namespace pulsora
