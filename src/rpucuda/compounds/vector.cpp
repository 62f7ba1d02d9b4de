#include "compounds/vector.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/backend.h"

namespace pulsora {
namespace {

std::vector<GroupMember> membersOf(const VectorParams &p) {
  std::vector<GroupMember> members;
  members.reserve(p.devices.size());
  for (size_t k = 0; k < p.devices.size(); ++k) {
    members.push_back({"array_" + std::to_string(k), p.devices[k], p.gamma(static_cast<int>(k))});
  }
  return members;
}

}  // namespace

CompoundFacts VectorParams::facts() const {
  const int k = update_policy == UpdatePolicy::SingleFixed ? first_update_idx : 0;
  return {message("devices[", k, "]")};
}

std::unique_ptr<AnalogDevice> VectorParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<VectorDevice>(*this, site));
}

std::vector<CompoundVariant> VectorParams::variants() {
  return {{"vector_fixed", {{"update_policy", "single_fixed"}, {"first_update_idx", 1}}},
          {"vector_sequential", {{"update_policy", "single_sequential"}, {"first_update_idx", 1}}},
          {"vector_random", {{"update_policy", "single_random"}, {"read_io", "per_array"}}}};
}

VectorDevice::VectorDevice(const VectorParams &params, const CompoundSite &site)
    : ArrayGroup(site, membersOf(params), params.read_io),
      policy_(params.update_policy),
      fixed_(static_cast<size_t>(params.first_update_idx)),
      choice_{policy_ == UpdatePolicy::SingleRandom, static_cast<uint32_t>(fixed_),
              static_cast<uint32_t>(size()), site.keys.of(0, Role::Update)} {}

// The mean change of a pulse over all arrays, by which pulse trains for all of them are scaled.
float VectorDevice::granularity() const {
  float sum = 0.0f;
  for (size_t k = 0; k < size(); ++k) sum += at(k).cells().granularity();
  return sum / static_cast<float>(size());
}

MatrixView<const float> VectorDevice::rowsFor(const Context &context, size_t k,
                                              MatrixView<const float> d, uint64_t firstSample) {
  forEach(context, d.size(),
          ChosenRows{d, choice_, static_cast<uint32_t>(k), firstSample, rows_.data()});
  return rowMajor<const float>(rows_.data(), d.rows, d.cols);
}

void VectorDevice::update(const Context &context, MatrixView<const float> x,
                          MatrixView<const float> d, float lr, const Counters &c) {
  if (x.rows == 0) return;
  reserveUpdate(context, x.rows, lr);
  if (pulsesOne()) {
    at(fixed_).update(context, x, d, lr, c.updateSamples);
    return;
  }
  const SampleRange samples{c.updateSamples, x.rows, nullptr};
  std::vector<ArrayPulses> pulses;
  pulses.reserve(size());  // memory is taken before slots are counted
  if (pulsesAll())
    at(0).updater().makeWords(context, granularity(), x, d, lr, samples,
                              at(0).cells().slotCounter());
  for (size_t k = 0; k < size(); ++k) {
    PulsedDevice &cells = at(k).cells();
    PulsedWeightUpdater &updater = at(pulsesAll() ? 0 : k).updater();
    if (!pulsesAll()) {
      updater.makeWords(context, cells.granularity(), x, rowsFor(context, k, d, c.updateSamples),
                        lr, samples, cells.slotCounter());
    }
    pulses.push_back({&cells, &updater.words()});
  }
  PulsedDevice::applyPulsesToEach(context, pulses.data(), static_cast<int>(pulses.size()));
}

void VectorDevice::reserveUpdate(const Context &context, int64_t samples, float lr) {
  if (pulsesOne()) {
    at(fixed_).updater().reserve(context, at(fixed_).cells(), samples, lr);
  } else if (pulsesAll()) {
    at(0).updater().bitLineMaker().reserve(context, samples, xSize(), dSize(), lr, granularity(),
                                           at(0).updater().parameters());
  } else {
    rows_.reserve(context, samples * dSize());
    for (size_t k = 0; k < size(); ++k)
      at(k).updater().reserve(context, at(k).cells(), samples, lr);
  }
}

float VectorDevice::countedStep() const {
  if (pulsesOne()) return gamma(fixed_) * at(fixed_).cells().granularity();
  float sum = 0.0f;
  for (size_t k = 0; k < size(); ++k) sum += gamma(k) * at(k).cells().granularity();
  return pulsesAll() ? sum : sum / static_cast<float>(size());
}

void VectorDevice::reserveCounts(const Context &context, int64_t visits) {
  if (!pulsesAll() && !pulsesOne()) rows_.reserve(context, visits * std::max(dSize(), xSize()));
}

void VectorDevice::applyCounts(const Context &context, const LinePulses &pulses) {
  if (pulsesOne()) {
    at(fixed_).cells().applyToLines(context, pulses);
    return;
  }
  const int64_t others = pulses.columns ? dSize() : xSize();
  const auto counts = rowMajor<const float>(pulses.values, pulses.visits.count, others);
  for (size_t k = 0; k < size(); ++k) {
    LinePulses own = pulses;
    if (!pulsesAll()) own.values = rowsFor(context, k, counts, pulses.firstSample).data;
    at(k).cells().applyToLines(context, own);
  }
}

bool VectorDevice::updateLooksForFaults(const Context &context, int64_t) const {
  return !context.onCpu() && (pulsesAll() || pulsesOne());
}

void VectorDevice::setWeights(const Context &context, MatrixView<const float> weights,
                              const Counters &c) {
  for (size_t k = 0; k < size(); ++k) {
    if (pulsesOne() && k != fixed_) continue;
    at(k).cells().setWeights(context, weights, c.events);
  }
}

Value::Map VectorDevice::explain(const Context &context, MatrixView<const float> x,
                                 MatrixView<const float> d, float lr) const {
  const float step = pulsesAll() ? granularity() : at(fixed_).cells().granularity();
  Value::Map numbers = explainPulses(context, at(0).updater().parameters(), step, x, d, lr);
  float read = 0.0f;  // of a weight 1 that is written
  for (size_t k = 0; k < size(); ++k) read += !pulsesOne() || k == fixed_ ? gamma(k) : 0.0f;
  if (std::fabs(read - 1.0f) > 1e-5f) {
    numbers.at("warnings")
        .list()
        ->emplace_back(message(
            "written weights are read as ", read,
            " times what was written, the sum of gamma_vec over the arrays that take them; "
            "divide gamma_vec by this number, or write each array by itself (tile.arrays)"));
  }
  return numbers;
}

}  // namespace pulsora
