#include "layers_binding.h"

#include <array>
#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/check.h"
#include "core/magnitudes.h"
#include "core/patches.h"
#include "core/threads.h"

namespace RPU::bindings {
namespace {

namespace py = pybind11;

// As they are: a copy of what is written to would be written to in vain.
using Floats = py::array_t<float, py::array::c_style>;
using Pair = std::array<int64_t, 2>;

PatchGrid gridOf(const Floats &images, const Pair &kernel, const Pair &stride,
                 const Pair &dilation) {
  RPU_CHECK(InputError, images.ndim() == 4, "images have ", images.ndim(), " dimensions, not 4");
  PatchGrid grid{images.shape(1),        images.shape(2),        images.shape(3),
                 {kernel[0], kernel[1]}, {stride[0], stride[1]}, {dilation[0], dilation[1]}};
  for (int axis = 0; axis < 2; ++axis) {
    RPU_CHECK(InputError,
              kernel[axis] > 0 && stride[axis] > 0 && dilation[axis] > 0 &&
                  images.shape(2 + axis) > dilation[axis] * (kernel[axis] - 1),
              "kernels of ", kernel[axis], " with stride ", stride[axis], " and dilation ",
              dilation[axis], " do not fit images of ", images.shape(2 + axis));
  }
  return grid;
}

void requirePatches(const Floats &patches, const PatchGrid &grid, int64_t images) {
  RPU_CHECK(InputError, patches.size() == images * grid.patches() * grid.columns(), "patches have ",
            patches.size(), " elements, not ", images, " x ", grid.patches(), " x ",
            grid.columns());
}

Context onThreads(int threads) {
  requireThreads(threads);
  Context context;
  context.cpu.threads = threads;
  return context;
}

void takeThem(const Floats &images, const Pair &kernel, const Pair &stride, const Pair &dilation,
              Floats &patches, int threads) {
  const PatchGrid grid = gridOf(images, kernel, stride, dilation);
  const int64_t count = images.shape(0);
  requirePatches(patches, grid, count);
  const Context context = onThreads(threads);
  const float *from = images.data();
  float *to = patches.mutable_data();
  const py::gil_scoped_release released;
  takePatches(context, grid, count, from, to);
}

void addThem(const Floats &patches, const Pair &kernel, const Pair &stride, const Pair &dilation,
             Floats &images, int threads) {
  const PatchGrid grid = gridOf(images, kernel, stride, dilation);
  const int64_t count = images.shape(0);
  requirePatches(patches, grid, count);
  const Context context = onThreads(threads);
  const float *from = patches.data();
  float *to = images.mutable_data();
  const py::gil_scoped_release released;
  addPatches(context, grid, count, from, to);
}

bool isFinite(const Floats &values) {
  const MatrixView<const float> all = rowMajor<const float>(values.data(), 1, values.size());
  const py::gil_scoped_release released;
  return std::isfinite(largestMagnitude(Context(), all));
}

}  // namespace

void bindLayers(py::module_ &module) {
  using py::arg;
  module.def("is_finite", &isFinite, arg("values").noconvert(),
             "Whether all values of a gapless float32 array of NumPy's are finite.");
  module.def("take_patches", &takeThem, arg("images").noconvert(), arg("kernel"), arg("stride"),
             arg("dilation"), arg("patches").noconvert(), arg("threads"),
             "Writes the patches [m * patches, channels * kernel] of images [m, channels, height, "
             "width].");
  module.def("add_patches", &addThem, arg("patches").noconvert(), arg("kernel"), arg("stride"),
             arg("dilation"), arg("images").noconvert(), arg("threads"),
             "Writes images of which each pixel is the sum of the elements of patches that are "
             "taken from it.");
}

}  // namespace RPU::bindings
