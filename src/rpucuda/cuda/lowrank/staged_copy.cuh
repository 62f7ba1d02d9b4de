#pragma once

#include <cstdint>

// Copies of parts of matrices into shared memory by the copy engine of compute capability 9.0, and
// the barriers in shared memory that await the arrival of the copies.

namespace pulsora::lowrank {

/// A part of a matrix for the copy engine, encoded by the driver (CUtensorMap).
struct alignas(64) MatrixMap {
  uint64_t words[16];
};

__device__ inline uint32_t sharedAddress(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// A barrier whose phases are told apart by parity. A phase ends when `arrivals` threads and all
/// announced bytes have arrived.
struct Barrier {
  uint64_t word;

  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sharedAddress(&word)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(sharedAddress(&word)) : "memory");
  }
  /// Arrives, and announces bytes.
  __device__ void arriveExpecting(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(&word)),
                 "r"(bytes)
                 : "memory");
  }
  /// Waits for the end of a phase; with parity 1 at the start, returns at once.
  __device__ void wait(unsigned parity) {
    uint32_t isOver = 0;
    while (!isOver) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(isOver)
          : "r"(sharedAddress(&word)), "r"(parity)
          : "memory");
    }
  }
};

/// Makes initialised barriers visible to the copy engine; to be called before the block
/// synchronises.
__device__ inline void announceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Copies the part of a matrix that begins at (row, col); elements outside the matrix become 0. The
/// bytes arrive at the barrier.
__device__ inline void copyPart(void *to, const MatrixMap &from, int row, int col,
                                Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(sharedAddress(to)),
      "l"(&from), "r"(sharedAddress(&barrier.word)), "r"(col), "r"(row)
      : "memory");
}

/// keepRegisters() gives up registers of this warpgroup, takeRegisters() takes registers given up
/// by others.
template <int kRegisters>
__device__ inline void keepRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void takeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace pulsora::lowrank
