#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// For classes whose objects C++ alone makes: without it Python's __new__ would give objects that
/// hold nothing, and every use of which is undefined.
inline void withoutNew(PyHeapTypeObject *type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
}

}  // namespace pulsora::bindings
