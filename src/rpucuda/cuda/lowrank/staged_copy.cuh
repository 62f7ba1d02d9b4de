#pragma once

#include <cstdint>

// Copies of parts of matrices into shared memory by the copy engine of compute capability 9.0, and the
// barriers in shared memory by which their arrival is awaited.

namespace pulsora::lowrank {

/// A part of a matrix for the copy engine, as the driver encodes it (CUtensorMap).
struct alignas(64) MatrixMap {
  uint64_t words[16];
};

__device__ inline uint32_t sharedAddress(const void *p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// A barrier whose phases are told apart by their parity. A phase ends when `arrivals` have arrived and
/// all bytes that were announced are there.
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
  /// Waits for the end of a phase; of the one before the first if `parity` is 1 at the start.
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

/// Makes barriers that were initialised known to the copy engine; before the block synchronises.
__device__ inline void announceBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// What the thread wrote to shared memory is visible to products and copies that others begin later.
__device__ inline void publishShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Copies the part of a matrix that begins at (row, col); what lies outside the matrix becomes 0.
/// Its bytes arrive at the barrier.
__device__ inline void copyPart(void *to, const MatrixMap &from, int row, int col,
                                Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(sharedAddress(to)),
      "l"(&from), "r"(sharedAddress(&barrier.word)), "r"(col), "r"(row)
      : "memory");
}

/// Gives registers of this warpgroup away, or takes what others gave.
template <int kRegisters>
__device__ inline void keepRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void takeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace pulsora::lowrank
