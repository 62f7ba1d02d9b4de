#include "layers_binding.h"

#include <array>
#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <tuple>

#include "core/check.h"
#include "core/threads.h"
#include "linalg/im2col.h"
#include "numerics/abs_max.h"

namespace pulsora::bindings {
namespace {

namespace py = pybind11;

using Floats = py::array_t<float, py::array::c_style>;

/// The array itself, never converted: results written to a copy would be lost.
Floats floatsOf(py::handle array, const char *name) {
  if (!py::isinstance<Floats>(array))
    throw py::type_error(message(name, " must be a gapless float32 array of NumPy's"));
  return py::reinterpret_borrow<Floats>(array);
}

using Pair = std::array<int64_t, 2>;

/// `settings` is (kernel, stride, dilation), each of two numbers.
PatchGrid gridOf(const Floats &images, py::handle settings) {
  PULSORA_CHECK(InputError, images.ndim() == 4, "images have ", images.ndim(),
                " dimensions, not 4");
  const auto [kernel, stride, dilation] = settings.cast<std::tuple<Pair, Pair, Pair>>();
  PatchGrid grid{images.shape(1),        images.shape(2),        images.shape(3),
                 {kernel[0], kernel[1]}, {stride[0], stride[1]}, {dilation[0], dilation[1]}};
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t size = images.shape(static_cast<py::ssize_t>(2 + axis));
    PULSORA_CHECK(InputError,
                  kernel[axis] > 0 && stride[axis] > 0 && dilation[axis] > 0 &&
                      size > dilation[axis] * (kernel[axis] - 1),
                  "kernels of ", kernel[axis], " with stride ", stride[axis], " and dilation ",
                  dilation[axis], " do not fit images of ", size);
  }
  return grid;
}

void requirePatches(const Floats &patches, const PatchGrid &grid, int64_t images) {
  PULSORA_CHECK(InputError, patches.size() == images * grid.patches() * grid.columns(),
                "patches have ", patches.size(), " elements, not ", images, " x ", grid.patches(),
                " x ", grid.columns());
}

Context onThreads(int threads) {
  requireThreads(threads);
  Context context;
  context.cpu.threads = threads;
  return context;
}

void takeThem(py::handle images, py::handle settings, py::handle patches, int threads) {
  const Floats from = floatsOf(images, "images");
  Floats to = floatsOf(patches, "patches");
  const PatchGrid grid = gridOf(from, settings);
  requirePatches(to, grid, from.shape(0));
  const Context context = onThreads(threads);
  const int64_t count = from.shape(0);
  const float *source = from.data();
  float *target = to.mutable_data();
  const py::gil_scoped_release released;
  im2col(context, grid, count, source, target);
}

void addThem(py::handle patches, py::handle settings, py::handle images, int threads) {
  const Floats from = floatsOf(patches, "patches");
  Floats to = floatsOf(images, "images");
  const PatchGrid grid = gridOf(to, settings);
  requirePatches(from, grid, to.shape(0));
  const Context context = onThreads(threads);
  const int64_t count = to.shape(0);
  const float *source = from.data();
  float *target = to.mutable_data();
  const py::gil_scoped_release released;
  col2im(context, grid, count, source, target);
}

bool isFinite(py::handle values) {
  const Floats array = floatsOf(values, "values");
  const MatrixView<const float> all = rowMajor<const float>(array.data(), 1, array.size());
  const py::gil_scoped_release released;
  return std::isfinite(absMax(Context(), all));
}

}  // namespace

void bindLayers(py::module_ &module) {
  using py::arg;
  module.def("is_finite", &isFinite, arg("values"),
             "Whether all values of a gapless float32 array of NumPy's are finite.");
  module.def("take_patches", &takeThem, arg("images"), arg("settings"), arg("patches"),
             arg("threads"),
             "Writes the patches [m * patches, channels * kernel] of images [m, channels, height, "
             "width], for settings (kernel, stride, dilation).");
  module.def("add_patches", &addThem, arg("patches"), arg("settings"), arg("images"),
             arg("threads"),
             "Writes images: each pixel is the sum of the elements of patches that are taken from "
             "that pixel.");
}

}  // namespace pulsora::bindings
