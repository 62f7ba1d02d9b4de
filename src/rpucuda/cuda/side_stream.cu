#include "cuda/check.cuh"
#include "cuda/memory.cuh"

namespace RPU {
namespace {

cudaEvent_t makeEvent() {
  cudaEvent_t event = nullptr;
  RPU_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

cudaStream_t makeStream() {
  cudaStream_t stream = nullptr;
  RPU_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

}  // namespace

SideStream::~SideStream() {
  if (forked_) cudaEventDestroy(static_cast<cudaEvent_t>(forked_));
  if (joined_) cudaEventDestroy(static_cast<cudaEvent_t>(joined_));
  if (stream_) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

Context SideStream::fork(const Context &context) {
  const CudaScope scope(context.device);
  if (!stream_ || !forked_ || !joined_) {
    const CaptureAside aside;
    if (!forked_) forked_ = makeEvent();
    if (!joined_) joined_ = makeEvent();
    if (!stream_) stream_ = makeStream();
  }
  Context beside = context;
  beside.stream = stream_;
  RPU_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(forked_), streamOf(context)));
  RPU_CUDA(cudaStreamWaitEvent(streamOf(beside), static_cast<cudaEvent_t>(forked_), 0));
  return beside;
}

void SideStream::join(const Context &context) {
  const CudaScope scope(context.device);
  RPU_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(joined_), static_cast<cudaStream_t>(stream_)));
  RPU_CUDA(cudaStreamWaitEvent(streamOf(context), static_cast<cudaEvent_t>(joined_), 0));
}

}  // namespace RPU
