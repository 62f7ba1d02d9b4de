#include "compounds/array_group.h"

#include "linalg/math_util.h"
#include "periphery/additive_reads.h"

namespace pulsora {
namespace {

std::vector<std::unique_ptr<Crossbar>> makeArrays(const CompoundSite &site,
                                                  const std::vector<GroupMember> &members) {
  const PulseType type = site.periphery.update.pulse_type;
  PULSORA_CHECK(ConfigError, !isDigital(type), "update.pulse_type is '", nameOf(type),
                "', but the arrays of this tile take pulses alone; use 'stochastic_compressed', "
                "SingleConfig for one array that takes outer products, or IdealConfig for weights "
                "in floating point");
  std::vector<std::unique_ptr<Crossbar>> arrays;
  arrays.reserve(members.size());
  for (const GroupMember &member : members) {
    arrays.push_back(std::make_unique<Crossbar>(site.context, member.device, site.dSize, site.xSize,
                                                site.periphery, site.keys,
                                                static_cast<uint32_t>(arrays.size())));
  }
  return arrays;
}

std::vector<float> gammasOf(const std::vector<GroupMember> &members) {
  std::vector<float> gammas;
  gammas.reserve(members.size());
  for (const GroupMember &member : members) gammas.push_back(member.gamma);
  return gammas;
}

}  // namespace

ArrayGroup::ArrayGroup(const CompoundSite &site, const std::vector<GroupMember> &members,
                       GroupIo io)
    : gammas_(gammasOf(members)),
      io_(io),
      arrays_(makeArrays(site, members)),
      weight_(cells(), gammas_) {
  for (const GroupMember &member : members) names_.push_back(member.name);
  if (io == GroupIo::Shared) weight_.reserve(site.context);
}

std::vector<const PulsedDevice *> ArrayGroup::cells() const {
  std::vector<const PulsedDevice *> cells;
  cells.reserve(arrays_.size());
  for (const auto &array : arrays_) cells.push_back(&array->cells());
  return cells;
}

std::vector<NamedArray> ArrayGroup::arrays() {
  std::vector<NamedArray> named;
  named.reserve(arrays_.size());
  for (size_t k = 0; k < arrays_.size(); ++k) named.push_back({names_[k], arrays_[k].get()});
  return named;
}

std::vector<AnalogRead *> ArrayGroup::reads() {
  if (io_ == GroupIo::PerArray) return AnalogDevice::reads();
  return {&arrays_.front()->read(Pass::Forward), &arrays_.front()->read(Pass::Backward)};
}

void ArrayGroup::boundReads(const Context &context) {
  std::vector<double> bounds;
  bounds.reserve(arrays_.size());
  for (const auto &array : arrays_) bounds.push_back(array->boundReads(context));
  if (io_ != GroupIo::Shared) return;
  for (Pass pass : {Pass::Forward, Pass::Backward})
    at(0).read(pass).setWeightBound(weight_.bound(bounds));
}

void ArrayGroup::read(const Context &context, Pass pass, MatrixView<const float> in,
                      MatrixView<float> out, uint64_t firstSample) {
  if (io_ == GroupIo::Shared) {
    const MatrixView<const float> weight = weight_.weights(context);
    at(0).read(pass).run(context, pass == Pass::Forward ? weight : weight.transposed(), in, out,
                         firstSample);
    return;
  }
  // A read may change a running mean, so all reads must have their storage before the first one.
  result_.reserve(context, out.size());
  for (size_t k = 0; k < size(); ++k)
    if (gammas_[k] != 0.0f) at(k).read(pass).reserve(context, at(k).weights(pass), in.rows);
  const MatrixView<float> result = rowMajor(result_.data(), out.rows, out.cols);
  bool isFirst = true;
  for (size_t k = 0; k < size(); ++k) {
    if (gammas_[k] == 0.0f) continue;
    at(k).run(context, pass, in, isFirst ? out : result, firstSample);
    if (isFirst) {
      scal(context, gammas_[k], out);
    } else {
      addScaled(context, {result.data, gammas_[k], out});
    }
    isFirst = false;
  }
}

void ArrayGroup::countHardware(const Counters &c, HardwareCounts &counts) const {
  const auto read = [&](size_t k, uint64_t together) {
    counts.addReads(names_[k], "forward", at(k).read(Pass::Forward), c.forwardSamples, together);
    counts.addReads(names_[k], "backward", at(k).read(Pass::Backward), c.backwardSamples, together);
  };
  uint64_t together = 0;
  for (size_t k = 0; k < size(); ++k) {
    const PulsedDevice &driven = at(sharesTrains() ? 0 : k).cells();
    counts.addArray(names_[k], at(k).cells(), driven.slotCount(counts.context()));
    if (gammas_[k] == 0.0f) continue;
    ++together;
    if (io_ == GroupIo::PerArray) read(k, 1);
  }
  if (io_ == GroupIo::Shared) read(0, together);
}

}  // namespace pulsora
