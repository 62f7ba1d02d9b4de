#pragma once

#include "core/context.h"
#include "core/view.h"
#include "numerics/random.h"

// Initial values of a matrix, or of a part of one (MatrixView::block). They are equal to the bit on
// every backend and in every layout; elements outside the view are not changed.
//
// Fan-in is the number of inputs that an output sums. With y = W x, it is the number of initialised
// columns: all columns of W for its first K rows, and K for its first K columns, which read K
// inputs.

namespace pulsora {

/// out [rows, cols] = deviation * independent standard normals, for initialisation `number` of this
/// key. Element (i, j) is value i * cols + j of the sequence, whatever the layout.
void drawNormalRows(const Context &context, RandomKey key, uint64_t number, float deviation,
                    MatrixView<float> out);

/// gain * sqrt(2 / fanIn), the standard deviation of Kaiming initialisation (He et al. 2015), which
/// with gain 1 keeps the variance of signals through layers with ReLU. Throws InputError unless
/// fanIn >= 1.
float kaimingDeviation(int64_t fanIn, float gain);

/// out = N(0, gain^2 2 / fanIn), independent: drawNormalRows with kaimingDeviation.
void kaimingNormal(const Context &context, RandomKey key, uint64_t number, int64_t fanIn,
                   float gain, MatrixView<float> out);
/// kaimingNormal for the first `count` rows of w, with fan-in w.cols. Throws InputError unless
/// 0 <= count <= w.rows.
void kaimingRows(const Context &context, RandomKey key, uint64_t number, int64_t count, float gain,
                 MatrixView<float> w);
/// kaimingNormal for the first `count` columns of w, with fan-in `count`. Throws InputError unless
/// 0 <= count <= w.cols.
void kaimingColumns(const Context &context, RandomKey key, uint64_t number, int64_t count,
                    float gain, MatrixView<float> w);

/// out = 0, whatever it held.
void setZero(const Context &context, MatrixView<float> out);

}  // namespace pulsora
