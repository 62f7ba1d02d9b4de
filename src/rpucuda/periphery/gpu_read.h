#pragma once

#include "core/buffer.h"
#include "core/context.h"
#include "periphery/read_stages.h"

// How a GPU carries out a plain read (PlainRead: one pass that needs no sums but those of the
// weights): in one launch if the array is small, else as stages around a matrix product.

namespace RPU {

/// Arrays with at most this many lines on their short side are read a row of the mini-batch per
/// block, all threads along the long side.
constexpr int64_t kFewLines = 64;

/// Whether one launch is faster than a matrix product with stages before and after, for a
/// mini-batch of so many rows.
bool fitsOneLaunch(MatrixView<const float> weights, int64_t rows);

/// Into how many parts the sums of the product are divided for tensor cores; 0 if it is left to the
/// matrix products of the backend.
int64_t partsOfSums(const Context &context, MatrixView<const float> weights, int64_t rows);

/// The whole read in one launch. `marks` is scratch memory that belongs to the read.
void readInOneLaunch(const Context &context, const PlainRead &read, Buffer<uint32_t> &marks);

/// The whole read in stages, repetitions included. If `isMeasured`, the rows' scales are known
/// already.
void readInStages(const Context &context, const PlainRead &read, bool isMeasured);

/// A read, and what is added to it: `first` reads an array with few outputs, which `added` takes as
/// inputs.
void readWith(const Context &context, const PlainRead &read, const PlainRead &first,
              const AddedRead &added, Buffer<uint32_t> &marks);

}  // namespace RPU
