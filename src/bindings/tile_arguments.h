#pragma once

#include <array>
#include <pybind11/pybind11.h>
#include <string>

#include "linalg/im2col.h"
#include "shared_tile.h"
#include "tensor.h"

// Arguments of calls to tiles: batches, parts of batches, learning rates, patches of images.

namespace pulsora::bindings {

namespace py = pybind11;

/// "cpu", "cuda" or "cuda:<ordinal>" as a context.
Context contextOf(const std::string &device, int threads);

/// Serves signals, such as Ctrl-C, during a long operation; without effect outside Python's main
/// thread.
void serveSignals();

/// An input of a read or an update by tiles of one device. With a torch tensor, the tiles use
/// torch's current stream, and the tensor must be on their device, because a copy from the host
/// would wait for the GPU.
InputMatrix inputOf(SharedTile *const *tiles, size_t count, py::handle array, const char *name);
inline InputMatrix inputOf(SharedTile &tile, py::handle array, const char *name) {
  SharedTile *const one = &tile;
  return inputOf(&one, 1, array, name);
}

/// Rows from `first` on of a mini-batch of `of` rows; `of` may be None.
BatchPart readPart(py::handle first, py::handle of, bool evaluation);

float readLearningRate(py::handle lr);

/// The patches of images [channels, height, width]; `settings` is (kernel, stride, dilation), each
/// of two numbers. InputError if they do not fit.
PatchGrid readPatchGrid(const std::array<int64_t, 3> &size, py::handle settings);

}  // namespace pulsora::bindings
