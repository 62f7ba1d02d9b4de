#pragma once

#include <cstdint>

namespace pulsora {

/// Number of blocks of `threads` that cover `size`, at most a grid of some waves on any GPU;
/// kernels stride over the rest.
inline unsigned gridFor(int64_t size, int threads, int64_t most = int64_t{1} << 20) {
  const int64_t blocks = (size + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace pulsora
