#pragma once

#include <exception>
#include <functional>
#include <string>

namespace pulsora {

/// What the exception says that `work` throws; nothing if it throws none.
inline std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    return error.what();
  }
  return "";
}

}  // namespace pulsora
