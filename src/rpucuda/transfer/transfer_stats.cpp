#include "core/check.h"
#include "transfer/pulse_transfer.h"

namespace RPU {
namespace {

// One list of the numbers of TransferStats, for saving and loading.
template <class Stats, class Visitor>
void visitStats(Stats &s, const Visitor &visit) {
  visit("transfers", s.transfers);
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

struct Reader {
  const State &state;
  std::string prefix;

  void operator()(const char *name, double &out) const {
    const auto found = state.values.find(prefix + name);
    const double *value = found == state.values.end() ? nullptr : found->second.real();
    RPU_CHECK(StateError, value, "the state has no number '", prefix, name,
              "'; it is incomplete or was made by another version");
    out = *value;
  }
  void operator()(const char *name, uint64_t &out) const { out = state.counter(prefix + name); }
};

void put(State &state, const std::string &prefix, const TransferStats &stats) {
  visitStats(stats,
             [&](const char *name, auto value) { state.values[prefix + name] = Value(value); });
}

}  // namespace

Value::Map TransferStats::describe() const {
  return {{"transfers", Value(transfers)},
          {"gain", Value(gain())},
          {"undelivered", Value(undelivered())},
          {"trains", Value(trains)},
          {"pulses", Value(pulses)},
          {"clipped_components", Value(clippedComponents)},
          {"norm_a", Value(normA)},
          {"norm_b", Value(normB)}};
}

TransferStats LRTTTransfer::latest(const Context &context) const {
  TransferStats stats;
  detail::copyToHost(context, &stats, stats_.data(), sizeof stats);
  return stats;
}

TransferStats LRTTTransfer::total(const Context &context) const {
  TransferStats stats;
  detail::copyToHost(context, &stats, stats_.data() + 1, sizeof stats);
  return stats;
}

void LRTTTransfer::saveTo(const Context &context, State &state, const std::string &prefix) const {
  readA_.saveTo(context, state, prefix + "read_a/");
  readB_.saveTo(context, state, prefix + "read_b/");
  put(state, prefix + "total/", total(context));
  put(state, prefix + "last/", latest(context));
}

void LRTTTransfer::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  TransferStats stats[2];
  visitStats(stats[0], Reader{state, prefix + "last/"});
  visitStats(stats[1], Reader{state, prefix + "total/"});
  readA_.loadFrom(context, state, prefix + "read_a/");
  readB_.loadFrom(context, state, prefix + "read_b/");
  detail::copyFromHost(context, stats_.data(), stats, sizeof stats);
  transfers_ = stats[1].transfers;
}

}  // namespace RPU
