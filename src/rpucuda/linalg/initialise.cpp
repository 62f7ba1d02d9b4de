#include "linalg/initialise.h"

#include <cmath>

#include "core/backend.h"
#include "linalg/math_util.h"
#include "linalg/matrix_functors.h"

namespace pulsora {

void drawNormalRows(const Context &context, RandomKey key, uint64_t number, float deviation,
                    MatrixView<float> out) {
  forEach(context, (out.size() + 1) / 2, NormalPairWriter{key, number, deviation, out});
}

float kaimingDeviation(int64_t fanIn, float gain) {
  PULSORA_CHECK(InputError, fanIn >= 1, "fanIn is ", fanIn,
                "; it must be at least 1: the number of inputs that an output sums");
  return static_cast<float>(static_cast<double>(gain) *
                            std::sqrt(2.0 / static_cast<double>(fanIn)));
}

void kaimingNormal(const Context &context, RandomKey key, uint64_t number, int64_t fanIn,
                   float gain, MatrixView<float> out) {
  drawNormalRows(context, key, number, kaimingDeviation(fanIn, gain), out);
}

void kaimingRows(const Context &context, RandomKey key, uint64_t number, int64_t count, float gain,
                 MatrixView<float> w) {
  PULSORA_CHECK(InputError, count >= 0 && count <= w.rows, "kaimingRows: count is ", count,
                "; it must be between 0 and the ", w.rows, " rows of w");
  if (count == 0 || w.cols == 0) return;
  kaimingNormal(context, key, number, w.cols, gain, w.block(0, 0, count, w.cols));
}

void kaimingColumns(const Context &context, RandomKey key, uint64_t number, int64_t count,
                    float gain, MatrixView<float> w) {
  PULSORA_CHECK(InputError, count >= 0 && count <= w.cols, "kaimingColumns: count is ", count,
                "; it must be between 0 and the ", w.cols, " columns of w");
  if (count == 0) return;
  kaimingNormal(context, key, number, count, gain, w.block(0, 0, w.rows, count));
}

void setZero(const Context &context, MatrixView<float> out) { scal(context, 0.0f, out); }

}  // namespace pulsora
