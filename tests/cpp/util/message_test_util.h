#pragma once

#include <exception>
#include <functional>
#include <string>

namespace pulsora {

/// The message of the exception that `work` throws; empty if it throws none.
inline std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    return error.what();
  }
  return "";
}

}  // namespace pulsora
