#include "core/magnitudes.h"

#include "core/with_isa.h"

namespace RPU {

float largestMagnitude(const Context &context, MatrixView<const float> a) {
  return withIsa(context.cpu.isa, [&](auto isa) { return largestMagnitude<isa>(a); });
}

double sumOfLargestProducts(const Context &context, MatrixView<const float> x,
                            MatrixView<const float> d) {
  return withIsa(context.cpu.isa, [&](auto isa) { return sumOfLargestProducts<isa>(x, d); });
}

}  // namespace RPU
