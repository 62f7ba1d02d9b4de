#include "compounds/transfer_parameters.h"

#include <cmath>

#include "compounds/transfer_device.h"
#include "parameters/unused.h"

namespace pulsora {
namespace {

// Calls found(member, name, why) for each setting that has no effect beside the others.
template <class Found>
void eachUnused(const TransferParams &p, const Found &found) {
  using P = TransferParams;
  const bool dynamic = p.buffer == TransferBuffer::Dynamic;
  if (p.gamma_vec.count > 0) found(&P::gamma, "gamma", "gamma_vec takes its place");
  if (p.transfer_every_vec.count > 0)
    found(&P::transfer_every, "transfer_every", "transfer_every_vec takes its place");
  if (p.transfer_lr_vec.count > 0)
    found(&P::transfer_lr, "transfer_lr", "transfer_lr_vec takes its place");
  if (p.buffer == TransferBuffer::None) {
    const char *const why = "only buffer = 'sum', 'chopped' and 'dynamic' use it";
    found(&P::step, "step", why);
    found(&P::momentum, "momentum", why);
    found(&P::forget_buffer, "forget_buffer", why);
    found(&P::thres_scale, "thres_scale", "only buffer = 'sum' uses it");
  }
  if (p.no_buffer)
    found(&P::forget_buffer, "forget_buffer", "no_buffer = True keeps nothing of the buffer");
  if (p.buffer != TransferBuffer::Chopped && !dynamic) {
    const char *const why = "only buffer = 'chopped' and 'dynamic' use it";
    found(&P::in_chop_prob, "in_chop_prob", why);
    found(&P::in_chop_random, "in_chop_random", why);
    found(&P::out_chop_prob, "out_chop_prob", why);
    found(&P::buffer_granularity, "buffer_granularity", why);
    found(&P::auto_granularity, "auto_granularity", why);
  }
  if (!p.auto_scale) found(&P::auto_momentum, "auto_momentum", "only auto_scale = True uses it");
  if (!dynamic) found(&P::tail_weightening, "tail_weightening", "only buffer = 'dynamic' uses it");
  if (!dynamic || p.forget_buffer)
    found(&P::buffer_cap, "buffer_cap",
          "only buffer = 'dynamic' with forget_buffer = False uses it");
}

// The same for settings of transfer_update.
template <class Found>
void eachUnusedOfWrites(const TransferParams &p, const Found &found) {
  using P = UpdateParameters;
  if (p.buffer == TransferBuffer::None) return;
  const char *const why = "buffers send numbers of pulses, not pulse trains";
  found(&P::fixed_bl, "fixed_bl", why);
  found(&P::um_grad_scale, "um_grad_scale", why);
  found(&P::res, "res", why);
  found(&P::sto_round, "sto_round", why);
  found(&P::x_res_implicit, "x_res_implicit", why);
  found(&P::d_res_implicit, "d_res_implicit", why);
}

}  // namespace

IOParameters lineReads() {
  IOParameters reads;
  reads.noise_management = NoiseManagement::None;
  reads.bound_management = BoundManagement::None;
  return reads;
}

void TransferParams::check(const ParamsCheck &c) const {
  c.require(!transfer_forward.solvesWires(), c.path("transfer_forward"),
            ".wires is 'solved', which reads of single lines do not offer; choose 'formula'");
  FastRetentionParams::check(c);
  const bool chops = buffer == TransferBuffer::Chopped || buffer == TransferBuffer::Dynamic;
  const auto length = [&](const char *name, const FloatList &list, int64_t wanted) {
    c.require(list.count == 0 || list.count == wanted, c.path(name), " has ", list.count,
              " numbers; a chain of ", arrays(), " arrays takes ", wanted, ", or an empty list");
  };
  length("gamma_vec", gamma_vec, arrays());
  length("transfer_every_vec", transfer_every_vec, arrays() - 1);
  length("transfer_lr_vec", transfer_lr_vec, arrays() - 1);
  c.require(arrays() <= kMostArrays, c.path("fast"), " has ", fast.size(),
            " devices; a chain has at most ", kMostArrays, " arrays, visible included");
  c.require(weightOf(arrays() - 1) != 0.0f, c.path("gamma_vec"),
            " ends with 0, but weights are written to the last array; give it another factor");
  const auto period = [&](const std::string &name, float value) {
    constexpr int64_t kMost = (1 << 24) - 1;  // a float holds these numbers exactly
    const bool whole = value <= static_cast<float>(kMost) && value == std::floor(value);
    c.require(value < 0.0f || whole, c.path(name.c_str()), " is ", value,
              "; periods are whole numbers up to ", kMost, ", and 0 is never. ",
              units_in_mbatch ? "Give a fraction of a mini-batch in samples, with units_in_mbatch "
                                "= False: half of 64 samples is a period of 32"
                              : "It counts samples, because units_in_mbatch is False");
    c.require(value >= 0.0f || chops, c.path(name.c_str()), " is ", value,
              "; only buffer = 'chopped' and 'dynamic' take a period from the pulses of the fast "
              "array's range. Give a number >= 0");
  };
  period("transfer_every", transfer_every);
  for (int k = 0; k < transfer_every_vec.count; ++k)
    period(message("transfer_every_vec[", k, "]"), transfer_every_vec.values[k]);
  c.require(!chops || arrays() == 2, c.path("fast"), " has ", fast.size(),
            " devices; choppers (buffer = 'chopped' or 'dynamic') take one");
  c.require(!chops || !random_selection, c.path("random_selection"),
            " is True, but choppers count the reads of each line in order; set it to False");
  c.require(!chops || with_reset_prob == 0.0f, c.path("with_reset_prob"), " is ", with_reset_prob,
            ", but choppers do not reset lines; set it to 0, or use buffer = 'none' or 'sum'");
  c.require(!chops || thres_scale == 1.0f, c.path("thres_scale"), " is ", thres_scale,
            ", but buffer = 'chopped' and 'dynamic' have their threshold in buffer_granularity; "
            "set it to 1");
  c.require(buffer != TransferBuffer::Dynamic || in_chop_prob > 0.0f, c.path("in_chop_prob"),
            " is 0, but buffer = 'dynamic' compares reads with those before a change of sign; "
            "give a probability > 0");
  c.require(!no_buffer || buffer == TransferBuffer::Chopped, c.path("no_buffer"),
            " is True, which only buffer = 'chopped' knows; set it to False");
  c.require(!auto_scale || (chops && fast_lr > 0.0f), c.path("auto_scale"),
            " is True, which takes buffer = 'chopped' or 'dynamic' and fast_lr > 0");
  c.require(!correct_gradient_magnitudes || chops, c.path("correct_gradient_magnitudes"),
            " is True, which takes buffer = 'chopped' or 'dynamic'");
  c.require(!correct_accumulation || buffer == TransferBuffer::Dynamic,
            c.path("correct_accumulation"), " is True, which takes buffer = 'dynamic'");
  eachUnused(*this, refuseUnused(c, *this));
  eachUnusedOfWrites(*this, refuseUnused(ParamsCheck{c.path("transfer_update")}, transfer_update));
}

Value::Map TransferParams::fromSaved(Value::Map own) {
  const auto params = decidingSettings<TransferParams>(
      own, {"buffer", "gamma_vec", "transfer_every_vec", "transfer_lr_vec", "no_buffer",
            "auto_scale", "forget_buffer"});
  eachUnused(params, [&](auto, const char *name, const char *) { own.erase(name); });
  const auto writes = own.find("transfer_update");
  if (writes == own.end() || !writes->second.map()) return own;
  Value::Map &update = *writes->second.map();
  eachUnusedOfWrites(params, [&](auto, const char *name, const char *) { update.erase(name); });
  return own;
}

std::vector<CompoundVariant> TransferParams::variants() {
  const Value alone(Value::List{Value(Value::Map{{"model", "SoftBounds"},
                                                 {"dw_min", 0.005},
                                                 {"write_noise_std", 0.5},
                                                 {"reset_dtod", 0.01}})});
  const Value counted(Value::Map{{"desired_bl", 2}, {"update_management", false}});
  return {
      {"transfer_random_rows",
       {{"units_in_mbatch", false},
        {"transfer_every", 2},
        {"n_reads_per_transfer", 2},
        {"random_selection", true},
        {"transfer_columns", false},
        {"with_reset_prob", 0.4},
        {"gamma", 0.5}}},
      {"transfer_sum",
       {{"buffer", "sum"},
        {"units_in_mbatch", false},
        {"transfer_every", 1},
        {"transfer_every_vec", Value::List{1, 3}},
        {"transfer_lr", 20.0},
        {"step", 0.7},
        {"forget_buffer", false},
        {"transfer_update", counted}}},
      {"transfer_chopped",
       {{"buffer", "chopped"},
        {"fast", alone},
        {"units_in_mbatch", false},
        {"transfer_every", 1},
        {"in_chop_prob", 0.4},
        {"out_chop_prob", 0.4},
        {"gamma", 0.3},
        {"transfer_lr", 5.0},
        {"transfer_update", counted}}},
      {"transfer_dynamic",
       {{"buffer", "dynamic"},
        {"fast", alone},
        {"transfer_every", 1},
        {"in_chop_prob", 0.5},
        {"in_chop_random", false},
        {"transfer_lr", 5.0},
        {"correct_gradient_magnitudes", true},
        {"transfer_update", counted}}},
  };
}

CompoundFacts TransferParams::facts() const {
  CompoundFacts facts;
  facts.written = "visible";
  facts.pulsesWritten = false;
  return facts;
}

std::unique_ptr<AnalogDevice> TransferParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<TransferDevice>(*this, site));
}

float TransferParams::weightOf(int64_t k) const {
  if (gamma_vec.count > 0) return gamma_vec.values[k];
  float weight = 1.0f;
  for (int64_t power = arrays() - 1 - k; power > 0; --power) weight *= gamma;
  return weight;
}

}  // namespace pulsora
