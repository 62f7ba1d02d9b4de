#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/isa.h"

namespace pulsora::bench {

/// One measurement. `run` does the work once. `verify` is called before and throws if the bits
/// differ from the reference: the plainest instruction set on one thread, one sample per call.
struct Case {
  std::string operation;  ///< for example "update dense"
  std::string device;
  int64_t size;  ///< of the square array
  int64_t batch;
  Isa isa;
  int threads;
  double perRun;  ///< units of the stated operation in one run
  std::function<void()> verify;
  std::function<void()> run;

  std::string name() const;
};

/// Functions that make the cases one by one, because each case holds its arrays.
std::vector<std::function<Case()>> allCases(bool quick);

/// Bytes per weight of an array, or of a tile with an adapter.
struct Memory {
  std::string what;
  double bytesPerWeight;
  double limit;  ///< stated target
};
std::vector<Memory> memoryOfDevices();

}  // namespace pulsora::bench
