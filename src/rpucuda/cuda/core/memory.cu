#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "core/batched_launches.h"
#include "core/threads.h"
#include "cuda/core/borrowed_storage.h"
#include "cuda/core/check.cuh"
#include "cuda/core/memory.cuh"

namespace pulsora {
namespace {

// One pool per device, made at its first use and kept: its memory is shared with no other library,
// and freed memory is reused without asking the driver. Up to kKeptBytes stay in it.
constexpr uint64_t kKeptBytes = uint64_t{1} << 30;

cudaMemPool_t poolOf(int device) {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t> pools;
  const std::lock_guard<std::mutex> guard(mutex);
  const auto found = pools.find(device);
  if (found != pools.end()) return found->second;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  PULSORA_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  uint64_t kept = kKeptBytes;
  PULSORA_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  pools[device] = pool;
  return pool;
}

cudaMemcpyKind directionOf(CopyKind kind) {
  switch (kind) {
    case CopyKind::HostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::DeviceToHost:
      return cudaMemcpyDeviceToHost;
    default:
      return cudaMemcpyDeviceToDevice;
  }
}

// The fork depth of the process in which CUDA was first used; -1 before.
std::atomic<int> usedAtDepth{-1};

/// Whether CUDA was lost by a fork: in a child process no CUDA object made before the fork can be
/// used, and calls may not return.
bool lostByFork() {
  const int depth = usedAtDepth;
  return depth >= 0 && depth != forkDepth();
}

void requireSurvival() {
  PULSORA_CHECK(
      DeviceError, !lostByFork(),
      "CUDA was used before this process was forked, and does not survive that; use the CPU "
      "here, or start processes by multiprocessing's 'spawn'");
}

// A CUDA event that exists for one call only.
struct Event {
  Event() { PULSORA_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;

  cudaEvent_t event = nullptr;
};

/// Memory that was released in streams while these were being captured.
struct CapturedReleases {
  std::mutex mutex;
  std::map<void *, std::vector<void *>> ofStream;

  static CapturedReleases &get() {
    static auto &all = *new CapturedReleases;  // outlives the driver
    return all;
  }
};

/// Allocates outside the graph that is being captured, so that the storage exists before it runs.
cudaError_t allocateAside(void **data, size_t bytes, cudaMemPool_t pool) {
  const CaptureAside aside;
  cudaStream_t stream = nullptr;
  cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) return status;
  status = cudaMallocFromPoolAsync(data, bytes, pool, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return status;
}

/// borrowStorage(), once more after the pool has given back what it keeps.
void *borrow(const Context &context, size_t bytes, cudaMemPool_t pool) {
  try {
    return borrowStorage(context.device, context.stream, bytes);
  } catch (const OutOfMemoryError &) {
    PULSORA_CUDA_CHECK(cudaDeviceSynchronize());
    PULSORA_CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
    return borrowStorage(context.device, context.stream, bytes);
  }
}

/// Frees storage once all work now on `stream` has run.
void freeAfter(void *stream, void *data) noexcept {
  if (giveStorageBack(stream, data)) return;
  if (cudaFreeAsync(data, static_cast<cudaStream_t>(stream)) != cudaSuccess) cudaGetLastError();
}

/// BatchedLaunches::sendKept() where nothing can be thrown: a GPU error shows at the next call.
void sendKept() noexcept {
  try {
    BatchedLaunches::sendKept();
  } catch (...) {
  }
}

/// The reason why there is no GPU; the runtime calls a missing driver one that is too old.
const char *whyNone(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "this machine has no NVIDIA driver";
  return status == cudaSuccess ? "there is none" : cudaGetErrorString(status);
}

}  // namespace

bool isCaptured(void *stream) {
  if (!stream) return false;  // the default stream cannot be captured
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
}

void releaseCaptured(void *stream) noexcept {
  CapturedReleases &releases = CapturedReleases::get();
  std::vector<void *> released;
  {
    const std::lock_guard<std::mutex> guard(releases.mutex);
    const auto found = releases.ofStream.find(stream);
    if (found == releases.ofStream.end()) return;
    released.swap(found->second);
    releases.ofStream.erase(found);
  }
  for (void *data : released) freeAfter(stream, data);
}

void forgetCaptured(void *stream) {
  CapturedReleases &releases = CapturedReleases::get();
  const std::lock_guard<std::mutex> guard(releases.mutex);
  releases.ofStream.erase(stream);
}

void checkCuda(cudaError_t status, const char *call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfMemoryError(
        message("the GPU has no memory left (", call, "); use a smaller array or batch"));
  }
  throw DeviceError(message("CUDA failed: ", cudaGetErrorString(status), " (",
                            cudaGetErrorName(status), ") in ", call));
}

int cudaDeviceCount() {
  if (lostByFork()) return 0;
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

void requireCudaDevice(int device) {
  requireSurvival();
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) cudaGetLastError();
  PULSORA_CHECK(DeviceError, status == cudaSuccess && count > 0,
                "device='cuda' was asked for, but no GPU can be used: ", whyNone(status),
                "; use device='cpu'");
  PULSORA_CHECK(DeviceError, device >= 0 && device < count, "device='cuda:", device,
                "' was asked for, but this machine has ", count, " GPUs, counted from 0");
  int unused = -1;
  usedAtDepth.compare_exchange_strong(unused, forkDepth());
  int pools = 0;
  PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
  PULSORA_CHECK(DeviceError, pools, "device='cuda:", device,
                "' was asked for, but its driver has no memory pools; use a newer driver");
}

CudaScope::CudaScope(int device) {
  requireSurvival();
  int current = 0;
  PULSORA_CUDA_CHECK(cudaGetDevice(&current));
  if (current == device) return;
  PULSORA_CUDA_CHECK(cudaSetDevice(device));
  previous_ = current;
}

CudaScope::~CudaScope() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

namespace detail {

void *cudaAllocate(const Context &context, size_t bytes) {
  const CudaScope scope(context.device);
  const bool captured = isCaptured(context.stream);
  cudaMemPool_t pool = poolOf(context.device);
  void *data = captured ? nullptr : borrow(context, bytes, pool);
  if (data) return data;
  cudaError_t status = captured ? allocateAside(&data, bytes, pool)
                                : cudaMallocFromPoolAsync(&data, bytes, pool, streamOf(context));
  if (status == cudaErrorMemoryAllocation &&
      !captured) {  // freed memory may only lie in too small pieces
    cudaGetLastError();
    PULSORA_CUDA_CHECK(cudaDeviceSynchronize());
    PULSORA_CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
    status = cudaMallocFromPoolAsync(&data, bytes, pool, streamOf(context));
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    throw OutOfMemoryError(message("cannot allocate ", bytes, " bytes on cuda:", context.device,
                                   ", which has ", free, " of ", total,
                                   " bytes free; use a smaller array or batch"));
  }
  PULSORA_CUDA_CHECK(status);
  return data;
}

void cudaRelease(int device, void *stream, void *data) noexcept {
  if (lostByFork()) return;
  sendKept();
  int current = 0;
  if (cudaGetDevice(&current) != cudaSuccess)
    return;  // the driver is going down, and the memory with it
  if (current != device) cudaSetDevice(device);
  if (isCaptured(stream)) {
    CapturedReleases &releases = CapturedReleases::get();
    const std::lock_guard<std::mutex> guard(releases.mutex);
    releases.ofStream[stream].push_back(data);
  } else {
    freeAfter(stream, data);
  }
  if (current != device) cudaSetDevice(current);
}

void cudaCopy(const Context &context, void *to, const void *from, size_t bytes, CopyKind kind) {
  const CudaScope scope(context.device);
  const cudaStream_t stream = streamOf(context);
  const auto copy = [=] {
    PULSORA_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, directionOf(kind), stream));
  };
  if (kind == CopyKind::DeviceToDevice) {
    BatchedLaunches::enqueue(copy);
    return;
  }
  BatchedLaunches::sendKept();
  copy();
  PULSORA_CUDA_CHECK(cudaStreamSynchronize(stream));
}

void cudaFillZero(const Context &context, void *data, size_t bytes) {
  const CudaScope scope(context.device);
  const cudaStream_t stream = streamOf(context);
  BatchedLaunches::enqueue([=] { PULSORA_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, stream)); });
}

void cudaOrder(const Context &first, const Context &then) {
  if (first.stream == then.stream && first.device == then.device) return;
  BatchedLaunches::sendKept();
  const CudaScope scope(first.device);
  const Event reached;
  PULSORA_CUDA_CHECK(cudaEventRecord(reached.event, streamOf(first)));
  const CudaScope other(then.device);
  PULSORA_CUDA_CHECK(cudaStreamWaitEvent(streamOf(then), reached.event, 0));
}

void cudaFinish(const Context &context) noexcept {
  if (lostByFork()) return;
  sendKept();
  int current = 0;
  if (cudaGetDevice(&current) != cudaSuccess) return;
  if (current != context.device) cudaSetDevice(context.device);
  if (cudaStreamSynchronize(streamOf(context)) != cudaSuccess) cudaGetLastError();
  if (current != context.device) cudaSetDevice(current);
}

}  // namespace detail
}  // namespace pulsora
