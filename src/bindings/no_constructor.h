#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// For classes whose objects only C++ makes: Python's __new__ would make empty objects, whose use
/// is undefined.
inline void withoutNew(PyHeapTypeObject *type) {
  type->ht_type.tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
}

}  // namespace pulsora::bindings
