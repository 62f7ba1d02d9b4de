#pragma once

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/batched_launches.h"
#include "cuda/core/await.cuh"
#include "cuda/core/check.cuh"

// Launches of kernels; every kernel goes through these functions. On a GPU that supports it
// (compute capability 9.0), a kernel's blocks start while the last blocks of the previous kernel
// still work, and wait at awaitEarlier(): this overlap hides a good part of a launch.

namespace pulsora {

/// Whether the code that runs on the current device was compiled with awaitEarlier() active.
bool launchesOverlap();

namespace detail {

/// How a kernel is launched.
struct LaunchShape {
  void *stream;
  dim3 grid;
  dim3 threads;
  size_t shared;      // bytes of dynamic shared memory
  unsigned together;  // whether blocks wait for one another: 0 or 1
  unsigned cluster;   // blocks of a cluster
};

template <class... Parameters>
void launchNow(const LaunchShape &shape, void (*kernel)(Parameters...),
               const Parameters &...parameters) {
  cudaLaunchAttribute attributes[3] = {};
  unsigned count = 0;
  if (launchesOverlap()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.together) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared;
  config.stream = static_cast<cudaStream_t>(shape.stream);
  config.attrs = attributes;
  config.numAttrs = count;
  PULSORA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, parameters...));
}

template <class... Parameters, class... Arguments>
void launchKernel(const LaunchShape &shape, void (*kernel)(Parameters...),
                  Arguments &&...arguments) {
  if (!BatchedLaunches::areKept()) {
    launchNow<Parameters...>(shape, kernel, std::forward<Arguments>(arguments)...);
    return;
  }
  BatchedLaunches::enqueue([shape, kernel,
                            parameters = std::tuple<std::remove_cv_t<Parameters>...>(
                                std::forward<Arguments>(arguments)...)] {
    std::apply([&](const auto &...each) { launchNow<Parameters...>(shape, kernel, each...); },
               parameters);
  });
}

}  // namespace detail

/// Launches kernel(arguments...) with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads, size_t shared,
            Arguments &&...arguments) {
  detail::launchKernel({stream, grid, threads, shared, 0, 1}, kernel,
                       std::forward<Arguments>(arguments)...);
}

/// Launches a kernel whose blocks wait for one another: all are on the GPU at once.
template <class... Parameters, class... Arguments>
void launchTogether(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                    Arguments &&...arguments) {
  detail::launchKernel({stream, grid, threads, 0, 1, 1}, kernel,
                       std::forward<Arguments>(arguments)...);
}

/// Launches a kernel whose blocks form clusters of `cluster` blocks (cuda/core/cluster.cuh).
template <class... Parameters, class... Arguments>
void launchClusters(void *stream, void (*kernel)(Parameters...), dim3 grid, dim3 threads,
                    size_t shared, unsigned cluster, Arguments &&...arguments) {
  detail::launchKernel({stream, grid, threads, shared, 0, cluster}, kernel,
                       std::forward<Arguments>(arguments)...);
}

// --- kernels whose launches may be merged (core/batched_launches.h)

/// Bytes that the parameters of a launch may have.
constexpr size_t kMostParameterBytes = 32764;
/// Most jobs of one launch. So many fill a GPU; more would take longer to hand over.
template <class Job>
constexpr int kMostJobs =
    static_cast<int>(std::min((kMostParameterBytes - sizeof(double)) / sizeof(Job), size_t{16}));

/// The parameter of a kernel: its job for each of several objects. blockIdx.z is the object; with
/// kJobs = 1 the kernel is compiled for a single object.
template <class Job, int kJobs>
struct Jobs {
  Job each[kJobs];
  int count;

  __device__ const Job &ofBlock() const { return each[kJobs == 1 ? 0 : blockIdx.z]; }
};

/// A kernel for one job, and for several.
template <class Job>
struct JobKernel {
  void (*one)(Jobs<Job, 1>);
  void (*several)(Jobs<Job, kMostJobs<Job>>);
};

namespace detail {

template <class Job>
struct JobLaunch {
  JobKernel<Job> kernel;
  LaunchShape shape;
};

template <class Job>
void launchJobs(const void *launch, const void *const *jobs, int count) {
  const auto &[kernel, shape] = *static_cast<const JobLaunch<Job> *>(launch);
  const auto jobOf = [&](int i) -> const Job & { return *static_cast<const Job *>(jobs[i]); };
  for (int i = 0; i < count;) {
    if (i + 1 == count) {
      launchNow(shape, kernel.one, Jobs<Job, 1>{{jobOf(i++)}, 1});
      continue;
    }
    // Only the first elements are set; jobs are plain data, but may have no default.
    using Several = Jobs<Job, kMostJobs<Job>>;
    alignas(Several) unsigned char bytes[sizeof(Several)];
    auto &several = *reinterpret_cast<Several *>(bytes);
    several.count = 0;
    while (i < count && several.count < kMostJobs<Job>)
      std::memcpy(&several.each[several.count++], jobs[i++], sizeof(Job));
    LaunchShape all = shape;
    if (!shape.together) all.grid.z = static_cast<unsigned>(several.count);
    launchNow(all, kernel.several, several);
  }
}

}  // namespace detail

/// The most shared memory, in bytes, that a block can have on a device (see limitSharedBytes).
size_t sharedBytesOf(int device);

/// Lets a kernel have `bytes` of dynamic shared memory.
template <class Job>
void letShare(const JobKernel<Job> &kernel, size_t bytes) {
  const auto let = [&](auto code) {
    PULSORA_CUDA_CHECK(cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(bytes)));
  };
  let(kernel.one);
  if (BatchedLaunches::areKept()) let(kernel.several);
}

/// Launches a kernel for a job on blocks of a plane, merged with jobs of other objects if launches
/// are being batched.
template <class Job>
void launchJob(void *stream, const JobKernel<Job> &kernel, dim3 grid, dim3 threads, size_t shared,
               const Job &job) {
  BatchedLaunches::enqueue(&detail::launchJobs<Job>,
                           detail::JobLaunch<Job>{kernel, {stream, grid, threads, shared, 0, 1}},
                           job);
}

/// launchJob() for a kernel whose blocks wait for one another: all blocks work on every job.
template <class Job>
void launchJobTogether(void *stream, const JobKernel<Job> &kernel, dim3 grid, dim3 threads,
                       size_t shared, const Job &job) {
  BatchedLaunches::enqueue(&detail::launchJobs<Job>,
                           detail::JobLaunch<Job>{kernel, {stream, grid, threads, shared, 1, 1}},
                           job);
}

}  // namespace pulsora
