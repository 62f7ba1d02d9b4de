#include "transfer/line_read.h"

#include "core/backend.h"
#include "transfer/line_functors.h"

namespace pulsora {

void LineRead::reserve(const Context &context) {
  unit_.reserve(context, lines_ * lines_);
  values_.reserve(context, lines_ * outputs_);
  read_.reserve(context, rowMajor<const float>(nullptr, outputs_, lines_), lines_);
}

MatrixView<const float> LineRead::run(const Context &context, MatrixView<const float> weights,
                                      uint64_t firstRead) {
  reserve(context);
  forEach(context, lines_ * lines_, UnitMatrix{lines_, unit_.data()});
  const auto values = rowMajor(values_.data(), lines_, outputs_);
  read_.run(context, weights, rowMajor<const float>(unit_.data(), lines_, lines_), values,
            firstRead);
  return values;
}

}  // namespace pulsora
