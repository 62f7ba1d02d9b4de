#pragma once

#include "core/buffer.h"
#include "core/context.h"
#include "periphery/read_stages.h"

// Plain reads on a GPU (PlainRead: one pass whose only matrix product is the ideal sums): in one
// launch if the array is small, else as stages around a matrix product.

namespace pulsora {

/// Arrays with at most this many lines on their short side are read with one block per row of the
/// mini-batch, whose threads share the long side.
constexpr int64_t kFewLines = 64;

/// Whether a thread reads a whole row: for many rows of a small array. This function and the next
/// two count the rows of the whole mini-batch if `rows` are a part of it (Context::batchRows).
bool areShortRows(const Context &context, MatrixView<const float> weights, int64_t rows);

/// Whether one launch is faster than a matrix product with stages before and after.
bool fitsOneLaunch(const Context &context, MatrixView<const float> weights, int64_t rows);

/// Number of parts into which each sum is divided for the tensor cores; 0 if the backend's matrix
/// product makes the sums.
int64_t partsOfSums(const Context &context, MatrixView<const float> weights, int64_t rows);

/// The whole read in one launch. `marks` is scratch memory of the read.
void readInOneLaunch(const Context &context, const PlainRead &read, Buffer<uint32_t> &marks);

/// The whole read in stages, repetitions included. If `isMeasured`, the scales of the rows are
/// known already.
void readInStages(const Context &context, const PlainRead &read, bool isMeasured);

/// `read` plus `added`, whose inputs are the few outputs of `first`.
void readWith(const Context &context, const PlainRead &read, const PlainRead &first,
              const AddedRead &added, Buffer<uint32_t> &marks);

}  // namespace pulsora
