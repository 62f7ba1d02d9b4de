#pragma once

#include "core/context.h"
#include "core/random.h"
#include "core/view.h"

// First values of a matrix, or by MatrixView::block of a part of one. The same bits on every backend
// and for every layout; elements outside the view are left alone.
//
// Fan-in: y = W x sums over the columns of W, so the fan-in of a matrix, or of some of its rows, is
// its number of columns, and that of K columns is K: what such a sum has terms of its own.

namespace RPU {

/// out [rows, cols] = deviation * independent standard normals: values number `number` of this key.
/// Element (i, j) takes value i * cols + j of its view.
void drawNormalRows(const Context &context, RandomKey key, uint64_t number, float deviation,
                    MatrixView<float> out);

/// gain * sqrt(2 / fanIn), the standard deviation of Kaiming initialisation (He et al. 2015), which
/// with gain 1 keeps the variance of signals through layers with ReLU. Throws InputError unless
/// fanIn >= 1.
float kaimingDeviation(int64_t fanIn, float gain);

/// out = N(0, gain^2 2 / fanIn), independent: drawNormalRows with kaimingDeviation.
void kaimingNormal(const Context &context, RandomKey key, uint64_t number, int64_t fanIn,
                   float gain, MatrixView<float> out);
/// The first `count` rows of w so, with fan-in w.cols. Throws InputError unless 0 <= count <=
/// w.rows.
void kaimingRows(const Context &context, RandomKey key, uint64_t number, int64_t count, float gain,
                 MatrixView<float> w);
/// The first `count` columns of w so, with fan-in `count`. Throws InputError unless 0 <= count <=
/// w.cols.
void kaimingColumns(const Context &context, RandomKey key, uint64_t number, int64_t count,
                    float gain, MatrixView<float> w);

/// out = 0, whatever stood there.
void setZero(const Context &context, MatrixView<float> out);

}  // namespace RPU
