#include <atomic>
#include <mutex>
#include <unordered_map>

#include "core/cuda_api.h"
#include "core/storage_source.h"
#include "cuda/core/borrowed_storage.h"
#include "cuda/core/memory.cuh"

namespace pulsora {
namespace {

std::atomic<StorageSource *> present{nullptr};

struct Loan {
  StorageSource *source;
  int device;
  void *stream;  // to whose work the storage belongs
};

struct Loans {
  std::mutex mutex;
  std::unordered_map<void *, Loan> of;

  static Loans &get() {
    static auto &all = *new Loans;  // outlives the driver
    return all;
  }
};

/// Makes the work to come on `then` wait for the work now on `first`.
void order(void *first, void *then) noexcept {
  const CaptureAside aside;
  cudaEvent_t reached = nullptr;
  const auto isDone = [](cudaError_t status) {
    if (status != cudaSuccess) cudaGetLastError();
    return status == cudaSuccess;
  };
  const bool isOrdered = !isCaptured(then) &&
                         isDone(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming)) &&
                         isDone(cudaEventRecord(reached, static_cast<cudaStream_t>(first))) &&
                         isDone(cudaStreamWaitEvent(static_cast<cudaStream_t>(then), reached, 0));
  if (reached) cudaEventDestroy(reached);
  if (!isOrdered) isDone(cudaStreamSynchronize(static_cast<cudaStream_t>(first)));
}

}  // namespace

void setStorageSource(StorageSource *source) { present = source; }

void *borrowStorage(int device, void *stream, size_t bytes) {
  StorageSource *source = present;
  if (!source || bytes < kLeastBorrowedBytes) return nullptr;
  void *data = source->allocate(device, stream, bytes);
  if (!data) return nullptr;
  Loans &loans = Loans::get();
  const std::lock_guard<std::mutex> guard(loans.mutex);
  loans.of[data] = {source, device, stream};
  return data;
}

bool giveStorageBack(void *stream, void *data) noexcept {
  Loan loan{};
  {
    Loans &loans = Loans::get();
    const std::lock_guard<std::mutex> guard(loans.mutex);
    const auto found = loans.of.find(data);
    if (found == loans.of.end()) return false;
    loan = found->second;
    loans.of.erase(found);
  }
  if (stream != loan.stream) order(stream, loan.stream);
  loan.source->release(loan.device, data);
  return true;
}

}  // namespace pulsora
