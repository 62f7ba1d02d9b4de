#include <algorithm>
#include <cmath>

#include "array/cell_kernels.h"
#include "array/pulsed_device.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "noise_models/realise.h"

// Retention: what reads see at an age, and drift that becomes the cells' own.

namespace pulsora {
namespace {

// Values of a state.
constexpr const char *kAge = "age";
constexpr const char *kAgeRedraw = "age_redraw";

}  // namespace

void PulsedDevice::retain(const Retention &retention, RandomKey key) {
  ageing_.reset();
  if (!retention.model) return;
  const PulsedParams &p = params_.common();
  ageing_ = std::make_unique<Ageing>(
      Ageing{*retention.model, cellEncoding(retention.cell), std::max(p.w_max, -p.w_min), key});
}

const Age &PulsedDevice::age() const {
  static const Age kNone{};
  return ageing_ ? ageing_->age : kNone;
}

void PulsedDevice::requireAge(double time) const {
  PULSORA_CHECK(ConfigError, std::isfinite(time) && time >= 0.0, "time is ", time,
                "; give seconds since the last pulse, a finite number >= 0");
  if (!ageing_) return;
  const double last = ageing_->model.lastTime();
  PULSORA_CHECK(ConfigError, time <= last, "time is ", time, " s, but the retention ",
                ageing_->model.model().name, " has numbers up to ", last,
                " s; choose an earlier time, or set extrapolate=True in the noise model");
}

// An array of an age has an Ageing, and drifts only then.
// NOLINTBEGIN(bugprone-unchecked-optional-access)
void PulsedDevice::drift(const Context &context, const Age &age) {
  requireAge(age.time);
  if (!ageing_) return;
  const bool isHeld = weights_.data() != nullptr;
  if (isHeld && age.time > 0.0) reserveAge(context);
  ++changes_;
  ageing_->age = {age.time + 0.0, age.redraw};  // not -0
  Buffer<float> &seen = ageing_->seen;
  if (!isHeld) seen = {};
  if (!isHeld || !isAged()) return;
  driftStored(context, 1.0f, seen.data());
  if (visible_.empty()) return;
  forEach(context, size(),
          SeenAtAge{frame(), weights_.data(), visible_.data(), seen.data(), seen.data()});
}

// Makes `values` what is to be stored after drift, with the share `frozen` of the standard
// deviation of read noise, within the bounds.
void PulsedDevice::driftStored(const Context &context, float frozen, float *values) const {
  const Ageing &a = *ageing_;
  const ScaledCells cells{weights_.data(), reference_.data(), a.range};
  forEach(context, size(), RelativeWeight{cells, values});
  Realisation r;
  r.wanted = values;
  r.weights = values;
  r.cells = size();
  r.cell = a.cell;
  r.keys = RealisationKeys::at(key_, key_, {0, a.age.time, a.age.redraw, 0});
  r.keys.device = a.cells;
  r.exact = true;
  r.frozen = frozen;
  realise(context, a.model, a.age.time, r);
  forEach(context, size(), DriftedStored{cells, values});
  confine(context, values);
}

void PulsedDevice::settle(const Context &context) {
  if (!isAged()) return;
  ++changes_;
  driftStored(context, 0.0f, ageing_->seen.data());
  const float *drifted = ageing_->seen.data();
  if (!visible_.empty())
    forEach(context, size(),
            SeenAtAge{frame(), weights_.data(), visible_.data(), drifted, visible_.data()});
  copy(context, rowMajor(drifted, rows_, cols_), rowMajor(weights_.data(), rows_, cols_));
  ageing_->age = {};
}
// NOLINTEND(bugprone-unchecked-optional-access)

// The stored weights that the next pulse acts on; at an age, in `scratch`.
const float *PulsedDevice::storedNow(const Context &context, Buffer<float> &scratch) const {
  if (!isAged()) return weights_.data();
  scratch.reserve(context, size());
  driftStored(context, 0.0f, scratch.data());
  return scratch.data();
}

void PulsedDevice::saveAge(State &state, const std::string &prefix) const {
  if (!ageing_) return;
  state.values[prefix + kAge] = Value(ageing_->age.time);
  state.values[prefix + kAgeRedraw] = Value(ageing_->age.redraw);
}

Age PulsedDevice::readAge(const State &state, const std::string &prefix) const {
  if (!ageing_) return {};
  const double *time = state.values.at(prefix + kAge).real();
  const Age age{time ? *time : -1.0, state.counter(prefix + kAgeRedraw, kMostRedraws)};
  try {
    requireAge(age.time);
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds an age that cannot be read: ", error.what()));
  }
  return age;
}

}  // namespace pulsora
