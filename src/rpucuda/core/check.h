#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace pulsora {

// Every error a caller can provoke is one of these classes, all of which are caught as Error or as
// std::exception; the bindings map each onto a Python exception of the same name. A message says
// what is wrong (with the configuration path and the value), why, and what to do.

/// Base of all errors of Pulsora.
class Error {
 public:
  virtual const char *what() const noexcept = 0;

 protected:
  Error() = default;
  Error(const Error &) = default;
  Error &operator=(const Error &) = default;
  ~Error() = default;
};

/// An Error that is also an exception `Base` of the standard library.
template <class Base>
class ErrorOf : public Base, public Error {
 public:
  using Base::Base;
  const char *what() const noexcept override { return Base::what(); }
};

/// A parameter, or a combination of parameters, is out of its range. Python:
/// ConfigError(ValueError).
class ConfigError : public ErrorOf<std::invalid_argument> {
 public:
  using ErrorOf::ErrorOf;
};

/// An array has the wrong shape, type, layout or non-finite values. Python: InputError(ValueError).
class InputError : public ErrorOf<std::invalid_argument> {
 public:
  using ErrorOf::ErrorOf;
};

/// A saved state does not fit the object that loads it, or is damaged. Python:
/// StateError(ValueError).
class StateError : public ErrorOf<std::invalid_argument> {
 public:
  using ErrorOf::ErrorOf;
};

/// The device or its driver reports an error: no GPU, launch failure, library failure. Python:
/// DeviceError(RuntimeError).
class DeviceError : public ErrorOf<std::runtime_error> {
 public:
  using ErrorOf::ErrorOf;
};

/// Code could not be compiled at run time; the message ends with what the compiler said. Python:
/// CompileError(RuntimeError).
class CompileError : public ErrorOf<std::runtime_error> {
 public:
  using ErrorOf::ErrorOf;
};

/// There is no compiler to compile with at run time, or none may be used. Python:
/// CompilerNotFound(CompileError).
class CompilerNotFound : public CompileError {
 public:
  using CompileError::CompileError;
};

/// A compilation at run time was ended by SIGINT. Python: KeyboardInterrupt.
class CompileInterrupted : public CompileError {
 public:
  using CompileError::CompileError;
};

/// Memory could not be allocated; the object that asked for it is unchanged. Python:
/// OutOfMemoryError(MemoryError).
class OutOfMemoryError : public ErrorOf<std::runtime_error> {
 public:
  using ErrorOf::ErrorOf;
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
