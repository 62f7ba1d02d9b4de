#include "transfer/line_read.h"

#include "core/backend.h"
#include "transfer/line_functors.h"

namespace RPU {

MatrixView<const float> LineRead::run(const Context &context, MatrixView<const float> weights,
                                      uint64_t firstRead) {
  Buffer<float> unit(context, lines_ * lines_);
  forEach(context, lines_ * lines_, UnitMatrix{lines_, unit.data()});
  values_.reserve(context, lines_ * outputs_);
  const auto values = rowMajor(values_.data(), lines_, outputs_);
  read_.run(context, weights, rowMajor<const float>(unit.data(), lines_, lines_), values,
            firstRead);
  return values;
}

}  // namespace RPU
