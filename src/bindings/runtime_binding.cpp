#include "runtime_binding.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "no_constructor.h"
#include "runtime/gpu_program.h"
#include "runtime/nvrtc.h"

namespace pulsora::bindings {

namespace py = pybind11;

namespace {

using Released = py::call_guard<py::gil_scoped_release>;

py::tuple compileSource(GpuSource source, const std::string &arch) {
  const GpuBinary made = [&] {
    const py::gil_scoped_release released;
    return compileForGpu(source, arch);
  }();
  return py::make_tuple(py::bytes(made.code), made.names);
}

GpuArray uploadArray(const std::string &type, const py::bytes &bytes, int device, intptr_t stream) {
  const std::string_view view = bytes;
  const size_t each = sizeOfGpuType(type);
  const py::gil_scoped_release released;
  return GpuArray::upload(type, view.data(), static_cast<int64_t>(view.size() / each), device,
                          reinterpret_cast<void *>(stream));
}

py::bytes downloadArray(const GpuArray &array, intptr_t stream) {
  std::string bytes(array.bytes(), '\0');
  {
    const py::gil_scoped_release released;
    array.download(bytes.data(), reinterpret_cast<void *>(stream));
  }
  return bytes;
}

using Extent = std::tuple<int64_t, int64_t, int64_t>;
using Argument = std::tuple<std::string, py::bytes, int>;

void launchFunction(const GpuFunction &function, const Extent &blocks, const Extent &threads,
                    int64_t sharedBytes, const std::vector<Argument> &arguments, intptr_t stream) {
  std::vector<GpuArgument> list;
  list.reserve(arguments.size());
  for (const auto &[type, bytes, device] : arguments)
    list.push_back(GpuArgument::ofBytes(type, std::string_view(bytes), device));
  const auto extentOf = [](const Extent &given) {
    const auto [x, y, z] = given;
    return GpuGrid::Extent{x, y, z};
  };
  const GpuGrid grid{extentOf(blocks), extentOf(threads), sharedBytes};
  const py::gil_scoped_release released;
  function.launch(grid, list, reinterpret_cast<void *>(stream));
}

}  // namespace

void bindRuntime(py::module_ &module) {
  using py::arg;
  module.def("nvrtc_version", &nvrtcVersion,
             "The version of NVRTC, the compiler for GPUs. CompilerNotFound if there is none.");
  module.def("nvrtc_architectures", &nvrtcArchitectures,
             "The architectures that NVRTC makes code for, in rising order.");
  module.def("gpu_architecture", &gpuArchitecture, arg("device"),
             "The architecture of a GPU, such as 'sm_90'.");
  module.def(
      "compile_for_gpu",
      [](std::string text, std::string file, std::map<std::string, std::string> headers,
         std::vector<std::string> kernels, std::vector<std::string> options,
         const std::string &arch) {
        return compileSource({std::move(text), std::move(file), std::move(headers),
                              std::move(kernels), std::move(options)},
                             arch);
      },
      arg("text"), arg("file"), arg("headers"), arg("kernels"), arg("options"), arg("arch"),
      "(code, names): text in CUDA C++ compiled for an architecture, and the names of the kernels "
      "within the code.");

  py::class_<GpuStream>(module, "GpuStream", "A CUDA stream.")
      .def(py::init<int>(), arg("device"), Released())
      .def_property_readonly(
          "handle", [](const GpuStream &self) { return reinterpret_cast<intptr_t>(self.handle()); })
      .def("synchronize", &GpuStream::synchronize, Released());

  py::class_<GpuArray>(module, "GpuArray", "Numbers in the memory of a GPU.",
                       py::custom_type_setup(&withoutNew))
      .def_property_readonly("type", &GpuArray::type)
      .def_property_readonly("size", &GpuArray::size)
      .def_property_readonly("device", &GpuArray::device)
      .def_property_readonly(
          "address", [](const GpuArray &self) { return reinterpret_cast<intptr_t>(self.data()); })
      .def("download", &downloadArray, arg("stream"));
  module.def(
      "gpu_zeros",
      [](const std::string &type, int64_t size, int device, intptr_t stream) {
        return GpuArray::zeros(type, size, device, reinterpret_cast<void *>(stream));
      },
      arg("dtype"), arg("size"), arg("device"), arg("stream"), Released(),
      "Zeros in the memory of a GPU.");
  module.def("gpu_upload", &uploadArray, arg("dtype"), arg("data"), arg("device"), arg("stream"),
             "A copy of numbers in the memory of a GPU.");

  py::class_<GpuFunction>(module, "GpuFunction", "A kernel on a GPU.",
                          py::custom_type_setup(&withoutNew))
      .def_property_readonly("name", &GpuFunction::name)
      .def_property_readonly("types", &GpuFunction::types)
      .def("launch", &launchFunction, arg("blocks"), arg("threads"), arg("shared_bytes"),
           arg("arguments"), arg("stream"));

  py::class_<GpuProgram>(module, "GpuProgram", "Code loaded onto a GPU.")
      .def(py::init([](const py::bytes &code, int device) {
             const std::string_view view = code;
             const py::gil_scoped_release released;
             return GpuProgram(view, device);
           }),
           arg("code"), arg("device"))
      .def(
          "function",
          [](const GpuProgram &self, const std::string &name, std::vector<std::string> types) {
            return self.function(name, std::move(types));
          },
          arg("name"), arg("types"), Released());
}

}  // namespace pulsora::bindings
