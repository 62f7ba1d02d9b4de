#pragma once

#include <cstdint>

#include "array/line_visits.h"
#include "core/view.h"
#include "devices/pulsed_model.h"
#include "numerics/random.h"
#include "pulses/pulse_words.h"

namespace pulsora {

/// The fixed properties of an array of sampled cells. Element (i, j) has index i * cols + j.
struct SampledCells {
  int64_t rows = 0;
  int64_t cols = 0;
  const uint16_t *cells = nullptr;  // a plane of size() half floats per member of the model's Cell
  const PulsedParams *params = nullptr;  // the model's Params (see paramsOf), in host memory
  RandomKey key{};                       // of this array

  int64_t size() const { return rows * cols; }
};

/// One array of cells, as the kernels see it.
struct CellArray : SampledCells {
  float *weights = nullptr;      // the stored weights, which pulses change
  uint32_t *deferred = nullptr;  // size() + 1 numbers if a GPU merges noise, else null
};

/// The events of every cell at the end of a mini-batch, in this order: diffusion, then decay
/// towards the reset value, then the bounds. Planes are half floats relative to the nominal value;
/// null where the cells do not differ.
struct Relaxation {
  const uint16_t *decayRates = nullptr;
  const uint16_t *diffusions = nullptr;
  const uint16_t *resets = nullptr;
  uint64_t event = 0;               // index of the mini-batch, which keys the draws
  const uint32_t *fault = nullptr;  // see Context::nonfiniteFlag; may be null
};

/// A reset of the cells whose draw falls below `probability`, in columns [firstCol, firstCol +
/// cols) taken modulo the array's width, and among them only those that are chosen.
struct ResetEvent {
  const uint16_t *resets = nullptr;
  int64_t firstCol = 0;
  int64_t cols = 0;
  float probability = 1.0f;
  uint64_t event = 0;
  const float *chosen = nullptr;  // of each cell, 0 for no; null: all
};

struct CellProgram;  // array/program_cells.h

/// Most arrays that a GPU updates in one launch, which takes them as parameters.
constexpr int kMostTogether = 16;

/// An array, the pulses of a mini-batch for it, and where to add the number of coincidences.
struct PulsedUpdate {
  CellArray array;
  PulseWords words;
  uint64_t *coincidences;
};

/// Kernels of one device model on one backend. CPU kernels treat the cells [begin, end); CUDA
/// kernels enqueue that work on `stream`. No kernel allocates, throws or synchronises.
struct PulsedKernels {
  /// Samples the stored planes (rows * cols per plane) from the array's key.
  void (*construct)(const SampledCells &array, uint16_t *cells, int64_t begin, int64_t end,
                    void *stream);
  /// Applies a mini-batch of pulses, and adds the number of coincidences to `*coincidences`.
  void (*update)(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                 int64_t begin, int64_t end, void *stream);
  /// Updates different arrays of this model, none of which merges noise, in as few launches as
  /// possible. Null on the CPU, where one launch gains nothing.
  void (*updateTogether)(const PulsedUpdate *updates, int count, void *stream);
  /// Each cell's bounds and mean steps at its weight: out = {w_max, w_min, up step, down step},
  /// four planes of rows * cols.
  void (*describe)(const SampledCells &array, const float *weights, float *out, int64_t begin,
                   int64_t end, void *stream);
  /// Each cell's symmetric point (devices/symmetric_point.h): exact, or as found by `pairs` > 0
  /// pulses up and down with the noise of the array's key.
  void (*balance)(const SampledCells &array, int64_t pairs, float *points, int64_t begin,
                  int64_t end, void *stream);
  /// Carries out a Relaxation.
  void (*relax)(const CellArray &array, const Relaxation &event, int64_t begin, int64_t end,
                void *stream);
  /// Carries out a ResetEvent.
  void (*reset)(const CellArray &array, const ResetEvent &event, int64_t begin, int64_t end,
                void *stream);
  /// Writes `from`, or the current weights if `from` is empty, confined to each cell's bounds; no
  /// weight is then -0 (see clipWeight).
  void (*write)(const CellArray &array, MatrixView<const float> from, int64_t begin, int64_t end,
                void *stream);
  /// Carries out LinePulses for the elements [begin, end) of [visits, others], and adds the number
  /// of pulses to `*sent`.
  void (*pulseLines)(const CellArray &array, const LinePulses &pulses, uint64_t *sent,
                     int64_t begin, int64_t end, void *stream);
  /// Carries out LineTaps for the elements [begin, end) of [visits, others].
  void (*tapLines)(const CellArray &array, const LineTaps &taps, int64_t begin, int64_t end,
                   void *stream);
  /// Carries out a CellProgram, and adds the number of pulses to `*sent`.
  void (*program)(const CellArray &array, const CellProgram &program, uint64_t *sent, int64_t begin,
                  int64_t end, void *stream);
};

}  // namespace pulsora
