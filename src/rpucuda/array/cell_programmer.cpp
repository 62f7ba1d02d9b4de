#include "array/cell_programmer.h"

#include <algorithm>

#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {
void CellProgrammer::reserve(const Context &context, const PulsedDevice &array, int rounds) {
  array.reserveCells(context);
  longest_.reserve(context, rounds * std::min(array.rows(), array.cols()));
  counts_.reserve(context, 1);
}

void CellProgrammer::run(const Context &context, PulsedDevice &array,
                         MatrixView<const float> targets, const ProgramSettings &settings,
                         uint64_t firstSample, const uint32_t *due) {
  reserve(context, array, settings.rounds);
  const bool byColumns = array.rows() > array.cols();
  const int64_t numbers = settings.rounds * std::min(array.rows(), array.cols());
  forEach(context, numbers + 1, ProgramStart{longest_.data(), numbers, counts_.data()});
  CellProgram program{};
  program.targets = targets;
  program.tolerance = settings.tolerance;
  program.rounds = settings.rounds;
  program.most = static_cast<float>(settings.most);
  program.firstSample = firstSample;
  program.byColumns = byColumns;
  program.longest = longest_.data();
  program.counts = counts_.data();
  program.due = due;
  array.program(context, program);
  forEach(context, std::min(numbers, SlotAdder::kParts),
          SlotAdder{longest_.data(), numbers, counts_.data()});
}

}  // namespace pulsora
