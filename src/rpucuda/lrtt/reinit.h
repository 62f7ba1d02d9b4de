#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/context.h"
#include "core/random.h"
#include "core/view.h"
#include "array/pulsed_device.h"

namespace RPU {

/// Samples of the pulses that write an array are numbered from here, out of the way of an update's
/// samples.
constexpr uint64_t kWritePulseSamples = uint64_t{1} << 44;
/// Events of digital writes are numbered from here, out of the way of the write noise after pulses.
constexpr uint64_t kWriteEvents = uint64_t{1} << 45;

/// out [rows, cols] = deviation * independent normals: values number `number` of this key.
void drawNormalRows(const Context &context, RandomKey key, uint64_t number, float deviation,
                    MatrixView<float> out);

/// Random rows with out out^T = rowNorm^2 I: the rows of drawNormalRows, made orthogonal by
/// Gram-Schmidt in double precision on the host, in a fixed order of operations. Needs rows <=
/// cols; `out` is gapless.
void drawOrthogonalRows(const Context &context, RandomKey key, uint64_t number, float rowNorm,
                        MatrixView<float> out);

/// out = vectors, each row scaled to norm `rowNorm`; a row of zeros stays. `out` is gapless.
void scaleRows(const Context &context, MatrixView<const float> vectors, float rowNorm,
               MatrixView<float> out);

/// Moves `array` to `target` by deterministic pulses: kVerifyRounds times, each cell is read
/// exactly and gets round(|target - w| / granularity) pulses towards its target. Within its bounds
/// a cell without cycle-to-cycle noise ends within half a step. `event` numbers the write.
void programByPulses(const Context &context, PulsedDevice &array, MatrixView<const float> target,
                     uint64_t event);
constexpr int kVerifyRounds = 8;

}  // namespace RPU
