#include "array/batched_updates.h"

#include <algorithm>
#include <vector>

#include "core/batched_launches.h"
#include "core/cuda_api.h"

namespace pulsora {
namespace {

struct Job {
  PulsedUpdate each[kMostOfObject];
  int count;
};

struct Kind {
  const PulsedKernels *kernels;
  void *stream;
};

void send(const void *kind, const void *const *jobs, int count) {
  const auto &[kernels, stream] = *static_cast<const Kind *>(kind);
  const auto jobOf = [&](int i) -> const Job & { return *static_cast<const Job *>(jobs[i]); };
  if (count == 1) {
    kernels->updateTogether(jobOf(0).each, jobOf(0).count, stream);
    return;
  }
  std::vector<PulsedUpdate> all;
  for (int i = 0; i < count; ++i)
    all.insert(all.end(), jobOf(i).each, jobOf(i).each + jobOf(i).count);
  kernels->updateTogether(all.data(), static_cast<int>(all.size()), stream);
}

}  // namespace

void updateBatched(const Context &context, const PulsedKernels &kernels,
                   const PulsedUpdate *updates, int count) {
  Job job{};
  job.count = count;
  std::copy(updates, updates + count, job.each);
  const CudaScope scope(context.device);
  BatchedLaunches::enqueue(&send, Kind{&kernels, context.stream}, job);
}

}  // namespace pulsora
