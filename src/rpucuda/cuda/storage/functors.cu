// The functors of storage/ on a GPU.

#include "cuda/core/for_each.cuh"
#include "storage/checksum.h"

namespace pulsora {

PULSORA_ON_GPU(Crc64OfPieces);

}  // namespace pulsora
