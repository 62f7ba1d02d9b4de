#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace pulsora {

// Every error a caller can provoke is one of these classes; the bindings map each onto a Python
// exception of the same name. A message says what is wrong (with the configuration path and the
// value), why, and what to do.

/// A parameter, or a combination of parameters, is out of its range. Python:
/// ConfigError(ValueError).
class ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// An array has the wrong shape, type, layout or non-finite values. Python: InputError(ValueError).
class InputError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A saved state does not fit the object that loads it, or is damaged. Python:
/// StateError(ValueError).
class StateError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The device or its driver reports an error: no GPU, launch failure, library failure. Python:
/// DeviceError(RuntimeError).
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Code could not be compiled at run time; the message ends with what the compiler said. Python:
/// CompileError(RuntimeError).
class CompileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// There is no compiler to compile with at run time, or none may be used. Python:
/// CompilerNotFound(CompileError).
class CompilerNotFound : public CompileError {
 public:
  using CompileError::CompileError;
};

/// Memory could not be allocated; the object that asked for it is unchanged. Python:
/// OutOfMemoryError(MemoryError).
class OutOfMemoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Concatenates anything printable: message("dw_min is ", value, "; it must be > 0").
template <class... Parts>
std::string message(const Parts &...parts) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << parts);
  return out.str();
}

}  // namespace pulsora

/// Throws `Error` with the given message parts unless `condition` holds. Always on.
#define PULSORA_CHECK(Error, condition, ...)                   \
  do {                                                         \
    if (!(condition)) {                                        \
      throw ::pulsora::Error(::pulsora::message(__VA_ARGS__)); \
    }                                                          \
  } while (false)
