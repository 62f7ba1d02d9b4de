#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// What the programs that libFuzzer drives share. Each tries the bytes that it is handed; libFuzzer
// changes them by what they reached.

/// Ends the program, and so reports the input, unless `holds`.
inline void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
