#include "array/cell_kernels.h"
#include "array/events.h"
#include "array/line_copies.h"
#include "array/program_cells.h"
#include "array/pulsed_device.h"

// Reads, pulses and resets of visited lines; program and verify.

namespace pulsora {

void PulsedDevice::reserveTaps(const Context &context, int64_t visits, bool columns) {
  taps_.reserve(context, 2 * visits * cellsOfLines(columns).others());
}

void PulsedDevice::tap(const Context &context, LineTaps taps) {
  const CellLoan loan(context, cells_);
  taps.reset.resets = loan.resets();
  const CellArray a = array(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  const int64_t elements = taps.visits.count * cellsOfLines(taps.columns).others();
  overCells(context, elements, 2 + taps.words.samples,
            [&](int64_t begin, int64_t end, void *stream) {
              kernels.tapLines(a, taps, begin, end, stream);
            });
}

// The taps are taken from the weights before the mini-batch, with the rule that the update itself
// follows; after it, only lines that were reset have other weights.
void PulsedDevice::applyPulses(const Context &context, const PulseWords &words, LineTaps taps,
                               float *seen) {
  PULSORA_ASSERT(params_.common().noise_merge != NoiseMerge::Batch);
  if (taps.visits.count == 0) {
    applyPulses(context, words);
    return;
  }
  settle(context);
  const LineCells cells = cellsOfLines(taps.columns);
  const int64_t elements = taps.visits.count * cells.others();
  const bool resets = taps.reset.probability > 0.0f;
  reserveTaps(context, taps.visits.count, taps.columns);
  taps.words = words;
  taps.values = taps_.data();
  taps.finals = resets ? taps_.data() + elements : nullptr;
  tap(context, taps);
  forEach(context, elements,
          TapReader{frame(), taps, cells, visible_.empty() ? 0.0f : writeNoise(), key_, seen});
  pulse(context, words);
  if (resets)
    forEach(context, elements, LineWriter{taps.visits, cells, taps.finals, weights_.data()});
  afterWrite(context, words.endSample);
}

void PulsedDevice::applyToLines(const Context &context, const LinePulses &pulses) {
  if (pulses.visits.count == 0) return;
  settle(context);
  const CellLoan loan(context, cells_);
  const CellArray a = array(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  const int64_t elements = pulses.visits.count * cellsOfLines(pulses.columns).others();
  overCells(context, elements, kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.pulseLines(a, pulses, counts_.data(), begin, end, stream);
  });
  afterWrite(context, pulses.firstSample + static_cast<uint64_t>(pulses.visits.count));
}

void PulsedDevice::program(const Context &context, CellProgram program) {
  settle(context);
  const CellLoan loan(context, cells_);
  const CellArray a = array(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  program.frame = frame();
  program.visible = visible_.data();
  program.writeNoise = visible_.empty() ? 0.0f : writeNoise();
  ++changes_;
  overCells(context, size(), kCellSteps * 4, [&](int64_t begin, int64_t end, void *stream) {
    kernels.program(a, program, counts_.data(), begin, end, stream);
  });
}

void PulsedDevice::readLines(const Context &context, const LineVisits &visits, bool columns,
                             float *seen) const {
  const LineCells cells = cellsOfLines(columns);
  forEach(context, visits.count * cells.others(), LineReader{visits, cells, weights().data, seen});
}

void PulsedDevice::resetLines(const Context &context, const LineVisits &visits, bool columns,
                              float probability, uint64_t event) {
  if (probability == 0.0f || visits.count == 0) return;
  settle(context);
  reserveTaps(context, visits.count, columns);
  LineTaps taps{};
  taps.visits = visits;
  taps.columns = columns;
  taps.reset = {probability, nullptr, event};
  taps.finals = taps_.data();
  tap(context, taps);
  const LineCells cells = cellsOfLines(columns);
  forEach(context, visits.count * cells.others(),
          LineWriter{visits, cells, taps.finals, weights_.data()});
  afterWrite(context, kResetEvents + event);
}

}  // namespace pulsora
