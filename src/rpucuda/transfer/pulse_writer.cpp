#include "transfer/pulse_writer.h"

#include <algorithm>

#include "array/events.h"
#include "core/backend.h"
#include "transfer/line_functors.h"

namespace pulsora {
namespace {

UpdateParameters writing() {
  UpdateParameters parameters;
  parameters.pulse_type = PulseType::DeterministicImplicit;
  parameters.desired_bl = 65536;
  return parameters;
}

// One sample per line of the shorter side: that line alone is driven, against the differences of
// the other side.
struct Sides {
  bool byColumns;
  int64_t lines;
  int64_t others;

  explicit Sides(const PulsedDevice &array)
      : byColumns(array.rows() > array.cols()),
        lines(std::min(array.rows(), array.cols())),
        others(std::max(array.rows(), array.cols())) {}
};

bool mergesNoise(const PulsedDevice &array) {
  return array.params().common().noise_merge == NoiseMerge::Batch;
}

}  // namespace

void PulseWriter::reserve(const Context &context, const PulsedDevice &array) {
  const Sides sides(array);
  array.reserveCells(context);
  difference_.reserve(context, array.size());
  if (!mergesNoise(array)) {
    lines_.reserve(context, sides.lines, sides.others, sides.byColumns, 1.0f, array.granularity(),
                   writing());
    return;
  }
  selection_.reserve(context, sides.lines * sides.lines);
  maker_.reserve(context, sides.lines, array.cols(), array.rows(), 1.0f, array.granularity(),
                 writing());
}

void PulseWriter::write(const Context &context, PulsedDevice &array, MatrixView<const float> target,
                        uint64_t event) {
  reserve(context, array);
  array.settle(context);
  const Sides sides(array);
  const MatrixView<const float> weights =
      sides.byColumns ? array.weights().transposed() : array.weights();
  const MatrixView<const float> wanted = sides.byColumns ? target.transposed() : target;
  for (int round = 0; round < kVerifyRounds; ++round) {
    forEach(context, array.size(), DifferenceWriter{weights, wanted, difference_.data()});
    const uint64_t write = event * kVerifyRounds + static_cast<uint64_t>(round);
    send(context, array, kWritePulseSamples + write * static_cast<uint64_t>(sides.lines));
  }
}

void PulseWriter::send(const Context &context, PulsedDevice &array, uint64_t firstSample) {
  const Sides sides(array);
  const int64_t lines = sides.lines;
  const MatrixView<const float> missing =
      rowMajor<const float>(difference_.data(), lines, sides.others);
  if (!mergesNoise(array)) {
    LineVisits visits;
    visits.lines = visits.count = lines;
    lines_.count(context, missing, sides.byColumns, 1.0f, array.granularity(), writing(),
                 RandomKey{}, firstSample, difference_.data(), array.slotCounter());
    array.applyToLines(context, {visits, sides.byColumns, false, difference_.data(), firstSample});
    return;
  }
  // Merged noise is drawn for all samples of an update together.
  forEach(context, lines * lines, UnitMatrix{lines, selection_.data()});
  const MatrixView<const float> selected = rowMajor<const float>(selection_.data(), lines, lines);
  maker_.makeWords(context, sides.byColumns ? selected : missing,
                   sides.byColumns ? missing : selected, 1.0f, array.granularity(), writing(),
                   RandomKey{}, firstSample, array.slotCounter());
  array.applyPulses(context, maker_.words());
}

void PulseWriter::flush(const Context &context, PulsedDevice &array, MatrixView<float> accumulated,
                        int most, uint64_t number) {
  reserve(context, array);
  const Sides sides(array);
  const PulsedParams &cell = array.params().common();
  forEach(context, array.size(),
          WholePulses{sides.byColumns ? accumulated.transposed() : accumulated, array.granularity(),
                      static_cast<float>(most), cell.w_max - cell.w_min, difference_.data(),
                      context.nonfiniteFlag});
  send(context, array, number * static_cast<uint64_t>(sides.lines));
}

uint64_t PulseWriter::mostSendings(const PulsedDevice &array) {
  return kWritePulseSamples / static_cast<uint64_t>(Sides(array).lines);
}

}  // namespace pulsora
