#pragma once

#include "parameters/value.h"

namespace pulsora {

/// The sources of the models in a configuration that were compiled at run time, for saved states: a
/// map from the name of each to {"sha256", "source"}. Empty if there are none.
Value::Map deviceSourcesOf(const Value &config);

/// The sources of noise models in a configuration, likewise.
Value::Map noiseSourcesOf(const Value &config);

/// StateError unless a model of the same name and SHA-256 is registered for each entry of such a
/// map. Nothing in it is compiled or run.
void requireDeviceSources(const Value &sources);
void requireNoiseSources(const Value &sources);

}  // namespace pulsora
