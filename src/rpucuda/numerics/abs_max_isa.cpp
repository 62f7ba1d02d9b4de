#include "numerics/abs_max.h"
#include "numerics/row_max.h"

namespace pulsora {

template <>
float absMax<Isa::PULSORA_ISA>(MatrixView<const float> a) {
  if (a.isContiguous()) return absMaxOf<AbsMaxWithNaN>({a.data, a.size(), 1});
  AbsMaxWithNaN all;
  float values[kVectorLanes] = {};
  for (int64_t i = 0; i < a.rows; ++i) {
    values[0] = absMaxOf<AbsMaxWithNaN>(a.row(i));
    all.add(values);
  }
  return all.result();
}

template <>
double sumOfAbsMaxProducts<Isa::PULSORA_ISA>(MatrixView<const float> x, MatrixView<const float> d) {
  double sum = 0.0;
  for (int64_t i = 0; i < x.rows; ++i) {
    const float xLargest = absMaxOf<AbsMaxWithNaN>(x.row(i));
    sum += static_cast<double>(xLargest) * static_cast<double>(absMaxOf<AbsMaxWithNaN>(d.row(i)));
  }
  return sum;
}

template <>
void rowAbsMax<Isa::PULSORA_ISA>(MatrixView<const float> a, int64_t begin, int64_t end,
                                 float *out) {
  for (int64_t i = begin; i < end; ++i) out[i] = absMaxOf<AbsMaxIgnoringNaN>(a.row(i));
}

}  // namespace pulsora
