#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/isa.h"
#include "noise_models/noise_model_params.h"
#include "noise_models/programmed_point.h"
#include "noise_models/realise_cells.h"

namespace pulsora {

/// The key of a chip, where `key` is that of chip 0.
RandomKey keyOfChip(RandomKey key, uint64_t chip);

/// Key of a read of a programmed array, of which `key` numbers the reads: a key for each point.
RandomKey keyAt(RandomKey key, const ProgrammedPoint &point);

/// Groups [begin, end) of a realisation, compiled once per instruction set.
template <Isa isa, class Model>
void realiseGroups(const Realise<Model> &realise, int64_t begin, int64_t end);

/// Makes a realisation `time` seconds after programming, on the context's backend.
void realise(const Context &context, const NoiseModelParams &model, double time,
             const Realisation &realisation);

/// A realisation, and its time in s after programming.
struct TimedRealisation {
  double time;
  Realisation realisation;
};

/// Makes several readings of one programming: realisations that differ in what CellReading holds,
/// alone. On a GPU, what does not depend on the time is made once for eight of them.
void realiseReadings(const Context &context, const NoiseModelParams &model,
                     const std::vector<TimedRealisation> &readings);

}  // namespace pulsora
