#include "value.h"

namespace pulsora::bindings {
namespace {

// Far beyond any configuration, and far from exhausting the stack; ends recursion into a list that
// contains itself.
constexpr int kMaxDepth = 32;

std::string typeName(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

std::string toText(py::handle object, const std::string &path) {
  Py_ssize_t size = 0;
  const char *text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (!text) {
    PyErr_Clear();
    throw ConfigError(
        message(path, " contains half a surrogate pair, which is not text; use plain characters"));
  }
  return {text, static_cast<size_t>(size)};
}

Value toInteger(py::handle object, const std::string &path) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  PULSORA_CHECK(ConfigError, overflow == 0, path,
                " is beyond 64-bit integers; use a smaller number");
  return Value(static_cast<int64_t>(number));
}

Value convert(py::handle object, const std::string &path, int depth);

Value toMap(const py::dict &dict, const std::string &path, int depth) {
  Value::Map map;
  for (const auto &[key, value] : dict) {
    PULSORA_CHECK(ConfigError, PyUnicode_Check(key.ptr()), path, " has a key of type ",
                  typeName(key), "; parameters are named by text");
    const std::string name = toText(key, path);
    map[name] = convert(value, joinPath(path, name), depth + 1);
  }
  return Value(std::move(map));
}

Value toList(py::handle sequence, const std::string &path, int depth) {
  Value::List list;
  for (const py::handle entry : sequence) {
    list.push_back(convert(entry, message(path, "[", list.size(), "]"), depth + 1));
  }
  return Value(std::move(list));
}

// A NumPy scalar or array as plain Python objects; null for other objects.
py::object withoutNumpy(py::handle object) {
  const py::module_ numpy = py::module_::import("numpy");
  if (py::isinstance(object, numpy.attr("generic"))) return object.attr("item")();
  if (py::isinstance(object, numpy.attr("ndarray"))) return object.attr("tolist")();
  return {};
}

Value convert(py::handle object, const std::string &path, int depth) {
  PULSORA_CHECK(ConfigError, depth < kMaxDepth, path, " is nested more than ", kMaxDepth,
                " deep; does it contain itself?");
  PyObject *raw = object.ptr();
  if (object.is_none()) return {};
  if (PyBool_Check(raw)) return Value(raw == Py_True);
  if (PyLong_Check(raw)) return toInteger(object, path);
  if (PyFloat_Check(raw)) return Value(PyFloat_AS_DOUBLE(raw));
  if (PyUnicode_Check(raw)) return Value(toText(object, path));
  if (PyDict_Check(raw)) return toMap(py::reinterpret_borrow<py::dict>(object), path, depth);
  if (PyList_Check(raw) || PyTuple_Check(raw)) return toList(object, path, depth);
  if (const py::object plain = withoutNumpy(object)) return convert(plain, path, depth + 1);
  throw ConfigError(message(path, " is an object of type ", typeName(object),
                            "; write None, a bool, a number, text, a list or a dict"));
}

}  // namespace

Value toValue(py::handle object, const std::string &path) { return convert(object, path, 0); }

py::object fromValue(const Value &value) {
  if (const bool *v = value.boolean()) return py::bool_(*v);
  if (const int64_t *v = value.integer()) return py::int_(*v);
  if (const double *v = value.real()) return py::float_(*v);
  if (const std::string *v = value.text()) return py::str(*v);
  if (const Value::Map *v = value.map()) return fromMap(*v);
  if (const Value::List *v = value.list()) {
    py::list list;
    for (const Value &entry : *v) list.append(fromValue(entry));
    return list;
  }
  return py::none();
}

py::dict fromMap(const Value::Map &map) {
  py::dict dict;
  for (const auto &[name, value] : map) dict[py::str(name)] = fromValue(value);
  return dict;
}

}  // namespace pulsora::bindings
