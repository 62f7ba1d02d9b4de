#include "tile_arguments.h"

#include <pybind11/stl.h>
#include <tuple>

#include "core/check.h"
#include "core/cuda_api.h"
#include "core/threads.h"
#include "value.h"

namespace pulsora::bindings {
namespace {

/// Makes a tile use torch's current stream for torch tensors, so that neither torch nor the tile
/// waits for the other.
void joinTorchStream(SharedTile &tile, void *stream) {
  if (tile.isRecorded()) return;
  PULSORA_CHECK(StateError, tile.inStepGraph || !isCaptured(stream),
                "torch is capturing a CUDA graph, whose replays would repeat the random numbers of "
                "this mini-batch; capture it with pulsora.training_step.CapturedGraph, use "
                "pulsora.training_step.TrainingStep for whole training steps, or "
                "pulsora.StepGraph for tiles alone");
  if (stream == tile.context().stream) return;
  Context context = tile.context();
  context.stream = stream;
  tile.setContext(context);
}

}  // namespace

Context contextOf(const std::string &device, int threads) {
  Context context;
  requireThreads(threads);
  context.cpu.threads = threads;
  if (device == "cpu") return context;
  const bool isNumbered = device.rfind("cuda:", 0) == 0 && device.size() > 5 && device.size() < 9 &&
                          device.find_first_not_of("0123456789", 5) == std::string::npos;
  PULSORA_CHECK(ConfigError, device == "cuda" || isNumbered, "device is '", device,
                "'; write 'cpu', 'cuda' or 'cuda:<number>'");
  context.backend = Backend::Cuda;
  context.device = isNumbered ? std::stoi(device.substr(5)) : 0;
  requireCudaDevice(context.device);
  return context;
}

void serveSignals() {
  const py::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

InputMatrix inputOf(SharedTile *const *tiles, size_t count, py::handle array, const char *name) {
  const SharedTile &any = *tiles[0];
  const bool ofTorch = !any.context().onCpu() && isOfTorch(array);
  if (ofTorch) {
    void *const stream = any.isRecorded() ? nullptr : torchStream(any.context().device);
    for (size_t i = 0; i < count; ++i) joinTorchStream(*tiles[i], stream);
  }
  PULSORA_CHECK(StateError, ofTorch || !any.isRecorded(), name, " is of type ",
                Py_TYPE(array.ptr())->tp_name,
                ", but in a training step that is recorded tiles take torch's tensors");
  InputMatrix matrix(array, name, any.context(), ofTorch);
  PULSORA_CHECK(DeviceError, any.context().onCpu() || !matrix.onHost(), name,
                " is in host memory, but the tile is on cuda:", any.context().device,
                "; move it there, for example with torch.as_tensor(", name,
                ", device='cuda:", any.context().device, "')");
  return matrix;
}

BatchPart readPart(py::handle first, py::handle of, bool evaluation) {
  return {readArgument<int64_t>(first, "first", atLeast(0)),
          of.is_none() ? -1 : readArgument<int64_t>(of, "of", atLeast(0)), evaluation};
}

float readLearningRate(py::handle lr) { return readArgument<float>(lr, "lr", anyNumber()); }

PatchGrid readPatchGrid(const std::array<int64_t, 3> &size, py::handle settings) {
  using Two = std::array<int64_t, 2>;
  const auto [kernel, stride, dilation] = settings.cast<std::tuple<Two, Two, Two>>();
  PatchGrid grid{size[0],
                 size[1],
                 size[2],
                 {kernel[0], kernel[1]},
                 {stride[0], stride[1]},
                 {dilation[0], dilation[1]}};
  for (size_t axis = 0; axis < 2; ++axis) {
    PULSORA_CHECK(InputError,
                  kernel[axis] > 0 && stride[axis] > 0 && dilation[axis] > 0 &&
                      size[axis + 1] > dilation[axis] * (kernel[axis] - 1),
                  "kernels of ", kernel[axis], " with stride ", stride[axis], " and dilation ",
                  dilation[axis], " do not fit images of ", size[axis + 1]);
  }
  return grid;
}

}  // namespace pulsora::bindings
