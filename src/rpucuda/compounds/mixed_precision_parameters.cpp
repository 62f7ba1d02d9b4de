#include "compounds/mixed_precision_parameters.h"

#include "compounds/mixed_precision.h"
#include "compounds/one_sided.h"
#include "compounds/single.h"
#include "parameters/unused.h"

namespace pulsora {
namespace {

// Calls found(member, name, why) for each setting that has no effect beside the others.
template <class Found>
void eachUnused(const MixedPrecisionParams &p, const Found &found) {
  using P = MixedPrecisionParams;
  if (p.cells != FollowingCells::Vector) {
    const char *const why = "only cells = 'vector' uses it";
    found(&P::others, "others", why);
    found(&P::gamma_vec, "gamma_vec", why);
    found(&P::update_policy, "update_policy", why);
  }
  if (p.cells != FollowingCells::Reference) {
    const char *const why = "only cells = 'reference' uses it";
    found(&P::reference_start, "reference_start", why);
    found(&P::reference_pulses, "reference_pulses", why);
  }
  if (p.cells != FollowingCells::OneSided) {
    const char *const why = "only cells = 'one_sided' uses it";
    found(&P::refresh_every, "refresh_every", why);
    found(&P::refresh_upper_thres, "refresh_upper_thres", why);
    found(&P::refresh_lower_thres, "refresh_lower_thres", why);
  }
  if (p.cells == FollowingCells::Single)
    found(&P::read_io, "read_io", "cells = 'single' is one array");
  if (p.n_rows_per_transfer == 0)
    found(&P::random_row, "random_row", "n_rows_per_transfer = 0 sends all rows");
  if (p.n_x_bins == 0) found(&P::stoc_round_x, "stoc_round_x", "n_x_bins = 0 rounds nothing");
  if (p.n_d_bins == 0) found(&P::stoc_round_d, "stoc_round_d", "n_d_bins = 0 rounds nothing");
}

}  // namespace

void MixedPrecisionParams::check(const ParamsCheck &c) const {
  RetentionParams::check(c);
  eachUnused(*this, refuseUnused(c, *this));
  const int arrays = static_cast<int>(others.size()) + 1;
  c.require(n_x_bins != 1, c.path("n_x_bins"),
            " is 1, which leaves 0 alone; give 2 levels or more");
  c.require(n_d_bins != 1, c.path("n_d_bins"),
            " is 1, which leaves 0 alone; give 2 levels or more");
  c.require(gamma_vec.count == 0 || gamma_vec.count == arrays, c.path("gamma_vec"), " has ",
            gamma_vec.count, " factors for ", arrays,
            " arrays; give one for each, or none for 1/n each");
  c.require(arrays <= static_cast<int>(DeviceList::kMost), c.path("others"), " has ", arrays - 1,
            " devices; at most ", DeviceList::kMost, " arrays are possible, visible included");
}

Value::Map MixedPrecisionParams::fromSaved(Value::Map own) {
  const auto params = decidingSettings<MixedPrecisionParams>(
      own, {"cells", "n_rows_per_transfer", "n_x_bins", "n_d_bins"});
  eachUnused(params, [&](auto, const char *name, const char *) { own.erase(name); });
  return own;
}

CompoundFacts MixedPrecisionParams::facts() const {
  CompoundFacts facts;
  facts.written = "visible";
  facts.pulsesWritten = false;
  facts.digitalWeight = digital_weight;
  facts.follows = digital_weight;
  return facts;
}

std::unique_ptr<CountedDevice> MixedPrecisionParams::makeCells(const CompoundSite &site) const {
  if (cells == FollowingCells::Single) {
    SingleParams single;
    single.device = visible;
    return std::make_unique<SingleDevice>(single, site);
  }
  if (cells == FollowingCells::Vector) {
    std::vector<DeviceParams> devices{visible};
    devices.insert(devices.end(), others.begin(), others.end());
    VectorParams vector;
    vector.devices = DeviceList(std::move(devices));
    vector.gamma_vec = gamma_vec;
    vector.update_policy = update_policy;
    vector.read_io = read_io;
    return std::make_unique<VectorDevice>(vector, site);
  }
  if (cells == FollowingCells::Reference) {
    ReferenceParams pair;
    pair.visible = visible;
    pair.reference = reference;
    pair.reference_start = reference_start;
    pair.reference_pulses = reference_pulses;
    pair.read_io = read_io;
    return std::make_unique<ReferenceDevice>(pair, site);
  }
  OneSidedParams pair;
  pair.device = visible;
  pair.refresh_every = refresh_every;
  pair.refresh_upper_thres = refresh_upper_thres;
  pair.refresh_lower_thres = refresh_lower_thres;
  pair.read_io = read_io;
  return std::make_unique<OneSidedDevice>(pair, site);
}

std::unique_ptr<AnalogDevice> MixedPrecisionParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<MixedPrecisionDevice>(*this, site));
}

std::vector<CompoundVariant> MixedPrecisionParams::variants() {
  return {{"mixed_precision_rows",
           {{"digital_weight", false},
            {"transfer_every", 2},
            {"n_rows_per_transfer", 2},
            {"random_row", true},
            {"granularity", 0.01},
            {"transfer_lr", 0.7},
            {"bl_max", 2},
            {"n_x_bins", 5},
            {"n_d_bins", 8}}},
          {"mixed_precision_trains",
           {{"transfer_every", 1}, {"exact_counts", false}, {"cells", "reference"}}},
          {"mixed_precision_vector",
           {{"transfer_every", 1},
            {"cells", "vector"},
            {"update_policy", "single_random"},
            {"read_io", "per_array"}}},
          {"mixed_precision_one_sided",
           {{"transfer_every", 1},
            {"cells", "one_sided"},
            {"refresh_every", 2},
            {"refresh_upper_thres", 0.02},
            {"refresh_lower_thres", 0.01}}}};
}

}  // namespace pulsora
