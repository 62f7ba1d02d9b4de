#pragma once

#include <cstdint>
#include <pybind11/pybind11.h>

#include "core/context.h"

// Tensors of torch by their addresses: DLPack would take the host longer than a kernel. Callers in
// Python have checked devices, types and shapes.

namespace pulsora::bindings {

/// tensor.method(), where the method is an interned string.
pybind11::object ask(pybind11::handle tensor, PyObject *method);

/// tensor.data_ptr().
void *addressOf(pybind11::handle tensor);

/// The context of a CUDA device and stream, or, with device -1, of so many CPU threads.
Context contextOf(int device, intptr_t stream, int threads);

}  // namespace pulsora::bindings
