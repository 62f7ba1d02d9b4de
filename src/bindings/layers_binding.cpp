#include "layers_binding.h"

#include <array>
#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/check.h"
#include "linalg/im2col.h"
#include "numerics/abs_max.h"
#include "tile_arguments.h"
#include "torch_tensor.h"

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

PatchGrid gridOf(const Floats &images, py::handle settings) {
  PULSORA_CHECK(InputError, images.ndim() == 4, "images have ", images.ndim(),
                " dimensions, not 4");
  return readPatchGrid({images.shape(1), images.shape(2), images.shape(3)}, settings);
}

void requirePatches(const Floats &patches, const PatchGrid &grid, int64_t images) {
  PULSORA_CHECK(InputError, patches.size() == images * grid.patches() * grid.columns(),
                "patches have ", patches.size(), " elements, not ", images, " x ", grid.patches(),
                " x ", grid.columns());
}

void takeThem(py::handle images, py::handle settings, py::handle patches, int threads) {
  const Floats from = floatsOf(images, "images");
  Floats to = floatsOf(patches, "patches");
  const PatchGrid grid = gridOf(from, settings);
  requirePatches(to, grid, from.shape(0));
  const Context context = contextOf(-1, 0, threads);
  const PatchedImages all{from.data(), from.shape(0), grid};
  float *target = to.mutable_data();
  const py::gil_scoped_release released;
  takePatches(context, all, target);
}

void takeThemOnGpu(py::handle images, py::handle settings, py::handle patches, int device,
                   intptr_t stream) {
  const auto size = images.attr("shape").cast<std::array<int64_t, 4>>();
  const PatchedImages all{static_cast<const float *>(addressOf(images)), size[0],
                          readPatchGrid({size[1], size[2], size[3]}, settings)};
  takePatches(contextOf(device, stream, 1), all, static_cast<float *>(addressOf(patches)));
}

void addThem(py::handle patches, py::handle settings, py::handle images, int threads) {
  const Floats from = floatsOf(patches, "patches");
  Floats to = floatsOf(images, "images");
  const PatchGrid grid = gridOf(to, settings);
  requirePatches(from, grid, to.shape(0));
  const Context context = contextOf(-1, 0, threads);
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
  module.def("take_patches_on_gpu", &takeThemOnGpu, arg("images"), arg("settings"), arg("patches"),
             arg("device"), arg("stream"),
             "take_patches() of gapless float32 tensors of torch on a GPU, in a stream.");
  module.def("add_patches", &addThem, arg("patches"), arg("settings"), arg("images"),
             arg("threads"),
             "Writes images: each pixel is the sum of the elements of patches that are taken from "
             "that pixel.");
}

}  // namespace pulsora::bindings
