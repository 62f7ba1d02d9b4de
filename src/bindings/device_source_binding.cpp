#include "device_source_binding.h"

#include <pybind11/stl.h>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "instruction_sets.h"
#include "runtime/device_source.h"
#include "runtime/nvrtc.h"
#include "schema.h"
#include "storage/sha256.h"

namespace pulsora::bindings {

namespace py = pybind11;

namespace {

ModelKind kindNamed(const std::string &kind) {
  PULSORA_CHECK(ConfigError, kind == "device" || kind == "noise_model", "kind is '", kind,
                "'; choose 'device' or 'noise_model'");
  return kind == "device" ? ModelKind::Device : ModelKind::Noise;
}

py::tuple readSource(const std::string &text, const std::string &name, const std::string &kind) {
  const ModelSource source = normalised({text, name, "", kindNamed(kind)});
  return py::make_tuple(source.name, source.text, sha256(source.text));
}

py::dict registerSource(const std::string &text, const std::string &name, const std::string &file,
                        const std::string &kind) {
  const ModelSource source{text, name, file, kindNamed(kind)};
  // Compiles without the interpreter lock; the lists of models change under that lock.
  if (source.kind == ModelKind::Noise) {
    if (registeredNoiseModelOf(source)) return describeNoiseModel(registerNoiseSource(source));
    NoiseModel made = [&] {
      const py::gil_scoped_release released;
      return noiseModelFrom(source);
    }();
    return describeNoiseModel(registerNoiseModel(std::move(made)));
  }
  if (registeredModelOf(source)) return describeDevice(registerDeviceSource(source));
  DeviceModel made = [&] {
    const py::gil_scoped_release released;
    return deviceModelFrom(source);
  }();
  return describeDevice(registerDevice(std::move(made)));
}

void warnInPython(const std::string &text) {
  const py::gil_scoped_acquire held;
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
}

}  // namespace

void bindDeviceSource(py::module_ &module) {
  setCompileWarnings(&warnInPython);
  module.def("read_source", &readSource, py::arg("text"), py::arg("name"), py::arg("kind"),
             "(name, text, SHA-256) of a model's source, with the name found, and Unix line ends. "
             "`kind` is \"device\" or \"noise_model\". ConfigError if the text has no name or "
             "several.");
  module.def(
      "register_source", &registerSource, py::arg("text"), py::arg("name"), py::arg("file"),
      py::arg("kind"),
      "Compiles and registers a model, and returns its entry in schema(). `file` is the name "
      "of the text in the compiler's messages.");
  module.def(
      "compile_ahead",
      [](const std::string &text, const std::string &name, const std::string &file,
         const std::string &isa, const std::string &kind) {
        const Isa wanted = isaNamed(isa);
        const ModelSource source{text, name, file, kindNamed(kind)};
        const py::gil_scoped_release released;
        return compileAhead(source, wanted);
      },
      py::arg("text"), py::arg("name"), py::arg("file"), py::arg("isa"), py::arg("kind") = "device",
      "Compiles a model into the cache folder, and returns the path of the file. `isa` is "
      "an instruction set, or empty for this machine's best.");
  module.def(
      "compile_ahead_for_gpu",
      [](const std::string &text, const std::string &name, const std::string &file,
         const std::string &arch, const std::string &kind) {
        const ModelSource source{text, name, file, kindNamed(kind)};
        const py::gil_scoped_release released;
        return compileAheadForGpu(source, arch);
      },
      py::arg("text"), py::arg("name"), py::arg("file"), py::arg("arch"),
      py::arg("kind") = "device",
      "Compiles a model's kernels for GPUs of an architecture such as \"sm_90\" into the "
      "cache folder, and returns the paths of the files.");
  module.def("set_nvrtc_folders", &setNvrtcFolders, py::arg("folders"),
             "Sets folders in which libnvrtc, the compiler for GPUs, is looked for first.");
  module.def(
      "compile_counts",
      [] {
        const CompileCounts counts = [] {
          const py::gil_scoped_release released;
          return compileCounts();
        }();
        py::dict result;
        result["compiled"] = counts.compiled;
        result["from_disk"] = counts.fromDisk;
        result["from_memory"] = counts.fromMemory;
        return result;
      },
      "Numbers of models that were compiled, found on disk, or already in this process.");
}

}  // namespace pulsora::bindings
