#include "transfer/pulse_writer.h"

#include <algorithm>

#include "array/events.h"
#include "core/backend.h"
#include "pulses/bit_line_maker.h"
#include "transfer/line_functors.h"

namespace RPU {

void writeByPulses(const Context &context, PulsedDevice &array, MatrixView<const float> target,
                   uint64_t event) {
  UpdateParameters parameters;
  parameters.pulse_type = PulseType::DeterministicImplicit;
  parameters.desired_bl = 65536;
  // One sample per line of the shorter side: that line alone is driven, against the differences of
  // the other side.
  const bool byColumns = array.rows() > array.cols();
  const int64_t lines = std::min(array.rows(), array.cols());
  const int64_t others = std::max(array.rows(), array.cols());
  Buffer<float> selection(context, lines * lines);
  Buffer<float> difference(context, array.size());
  forEach(context, lines * lines, UnitMatrix{lines, selection.data()});
  const MatrixView<const float> selected = rowMajor<const float>(selection.data(), lines, lines);
  const MatrixView<const float> missing = rowMajor<const float>(difference.data(), lines, others);
  const MatrixView<const float> weights =
      byColumns ? array.weights().transposed() : array.weights();
  const MatrixView<const float> wanted = byColumns ? target.transposed() : target;
  BitLineMaker maker;
  for (int round = 0; round < kVerifyRounds; ++round) {
    forEach(context, array.size(), DifferenceWriter{weights, wanted, difference.data()});
    const uint64_t write = event * kVerifyRounds + static_cast<uint64_t>(round);
    maker.makeWords(context, byColumns ? selected : missing, byColumns ? missing : selected, 1.0f,
                    array.granularity(), parameters, RandomKey{},
                    kWritePulseSamples + write * static_cast<uint64_t>(lines));
    array.applyPulses(context, maker.words());
  }
}

}  // namespace RPU
