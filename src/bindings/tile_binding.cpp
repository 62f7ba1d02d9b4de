#include "tile_binding.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "adapter_binding.h"
#include "core/cuda_api.h"
#include "core/threads.h"
#include "device_array.h"
#include "instruction_sets.h"
#include "no_constructor.h"
#include "programming_binding.h"
#include "saved_state.h"
#include "shared_tile.h"
#include "tensor.h"
#include "tile_arguments.h"
#include "value.h"

namespace pulsora {

template <>
struct EnumNames<GpuProducts> {
  static constexpr const char *kNames[] = {"single", "tf32_forward", "tf32", "reproducible"};
};

}  // namespace pulsora

namespace pulsora::bindings {
namespace {

int readThreads(py::handle threads) { return readArgument<int>(threads, "threads", atLeast(1)); }

DeviceArray upload(const py::object &numbers, const std::string &device) {
  const py::array_t<float, py::array::c_style> array(numbers);
  const Context context = contextOf(device, 1);
  PULSORA_CHECK(ConfigError, !context.onCpu(), "device is 'cpu'; arrays are uploaded to a GPU");
  DeviceArray made(context, {array.shape(), array.shape() + array.ndim()});
  const py::gil_scoped_release released;
  detail::cudaCopy(context, made.data(), array.data(), static_cast<size_t>(array.nbytes()),
                   CopyKind::HostToDevice);
  return made;
}

Tile makeTile(py::handle dSize, py::handle xSize, py::handle config, py::handle seed,
              py::handle tileId, const std::string &device, py::handle threads) {
  const auto rows = readArgument<int64_t>(dSize, "d_size", atLeast(1));
  const auto cols = readArgument<int64_t>(xSize, "x_size", atLeast(1));
  const auto params = readParams<TileConfig>(toValue(config, "config"), "");
  const auto seedNumber = readArgument<uint64_t>(seed, "seed", atLeast(0));
  const auto id = readArgument<uint32_t>(tileId, "tile_id", atLeast(0));
  const Context context = contextOf(device, readThreads(threads));
  const py::gil_scoped_release released;
  const StandardFloats standard;
  return Tile(rows, cols, params, seedNumber, id, context);
}

py::object forward(SharedTile &self, py::handle x, py::handle out, py::handle first, py::handle of,
                   bool evaluation) {
  const BatchPart part = readPart(first, of, evaluation);
  const InputMatrix in = inputOf(self, x, "x");
  OutputMatrix y(out, in.view().rows, self.dSize(), in, self.context());
  self.enqueue([in = in.view(), y = y.view(), part](Tile &tile) { tile.forward(in, y, part); });
  return y.result(self.context());
}

void forwardAgain(SharedTile &self, py::handle x, py::handle out, py::handle firstSample,
                  py::handle of) {
  const auto first = readArgument<uint64_t>(firstSample, "first_sample", atLeast(0));
  const auto all = readArgument<int64_t>(of, "of", atLeast(0));
  const InputMatrix in = inputOf(self, x, "x");
  OutputMatrix y(out, in.view().rows, self.dSize(), in, self.context());
  self.run([&](Tile &tile) { tile.forwardAgain(in.view(), y.view(), first, all); });
  y.result(self.context());
}

py::object backward(SharedTile &self, py::handle d, py::handle out, py::handle first, py::handle of,
                    bool evaluation, bool takesInfinite) {
  BatchPart part = readPart(first, of, evaluation);
  part.takesInfinite = takesInfinite;
  const InputMatrix in = inputOf(self, d, "d");
  OutputMatrix dx(out, in.view().rows, self.xSize(), in, self.context());
  self.enqueue([in = in.view(), dx = dx.view(), part](Tile &tile) { tile.backward(in, dx, part); });
  return dx.result(self.context());
}

void update(SharedTile &self, py::handle x, py::handle d, py::handle lr) {
  const StepRate rate = self.rate(readLearningRate(lr));
  const InputMatrix xIn = inputOf(self, x, "x");
  const InputMatrix dIn = inputOf(self, d, "d");
  self.enqueue([x = xIn.view(), d = dIn.view(), rate](Tile &tile) {
    tile.update(x, d, rate(), BatchEnd::Later, serveSignals);
  });
}

void endBatch(SharedTile &self, py::handle lr) {
  const StepRate rate = self.rate(readLearningRate(lr));
  self.enqueue([rate](Tile &tile) { tile.endBatch(rate()); });
}

void follow(SharedTile &self, py::handle master) {
  const InputMatrix in = inputOf(self, master, "master");
  self.enqueue([in = in.view()](Tile &tile) { tile.follow(in); });
}

py::dict calibrate(SharedTile &self, py::handle pulses) {
  const auto pairs = readArgument<int64_t>(pulses, "pulses", between(0, 100000));
  return fromMap(self.run([&](Tile &tile) { return tile.calibrate(pairs); }));
}

py::object getWeights(SharedTile &self, py::handle out) {
  OutputMatrix weights(self.dSize(), self.xSize(), self.context(), out);
  self.run([&](Tile &tile) { tile.getWeights(weights.view()); });
  if (!self.context().onCpu()) detail::cudaFinish(self.context());
  return weights.result(self.context());
}

void setWeights(SharedTile &self, py::handle weights) {
  const InputMatrix in(weights, "weights", self.context());
  PULSORA_CHECK(InputError, !in.isVector(), "weights is a vector; pass a matrix [d_size, x_size]");
  self.run([&](Tile &tile) { tile.setWeights(in.view()); });
}

std::pair<int64_t, int64_t> arrayShape(SharedTile &self, const std::string &name) {
  return self.run([&](Tile &tile) {
    const PulsedDevice &array = tile.array(name);
    return std::make_pair(array.rows(), array.cols());
  });
}

py::object getArray(SharedTile &self, const std::string &name) {
  const auto [rows, cols] = arrayShape(self, name);
  OutputMatrix weights(rows, cols, self.context());
  self.run([&](Tile &tile) { tile.getArray(name, weights.view()); });
  return weights.result(self.context());
}

void setArray(SharedTile &self, const std::string &name, py::handle weights) {
  const InputMatrix in(weights, name.c_str(), self.context());
  PULSORA_CHECK(InputError, !in.isVector(), name, " is a matrix, but a vector was given");
  self.run([&](Tile &tile) { tile.setArray(name, in.view()); });
}

void resetColumns(SharedTile &self, const std::string &name, py::handle first, py::handle count,
                  py::handle probability) {
  const auto firstCol = readArgument<int64_t>(first, "first", atLeast(0));
  const auto columns = readArgument<int64_t>(count, "count", atLeast(0));
  const auto share = readArgument<float>(probability, "probability", pulsora::probability());
  self.run([&](Tile &tile) { tile.resetColumns(name, firstCol, columns, share); });
}

py::dict describeCells(SharedTile &self, const std::string &name) {
  const auto [rows, cols] = arrayShape(self, name);
  const auto planes =
      self.run([&](Tile &tile) { return tile.array(name).describeCells(tile.context()); });
  const int64_t size = rows * cols;
  py::dict result;
  int64_t plane = 0;
  for (const char *quantity : {"w_max", "w_min", "step_up", "step_down"}) {
    py::array_t<float> array({rows, cols});
    detail::copyToHost(self.context(), array.mutable_data(), planes.data() + plane++ * size,
                       static_cast<size_t>(size) * sizeof(float));
    result[quantity] = array;
  }
  return result;
}

py::dict explain(SharedTile &self, py::handle x, py::handle d, py::handle lr) {
  const float rate = readLearningRate(lr);
  const InputMatrix xIn = inputOf(self, x, "x");
  const InputMatrix dIn = inputOf(self, d, "d");
  return fromMap(self.run([&](Tile &tile) { return tile.explain(xIn.view(), dIn.view(), rate); }));
}

py::dict counters(SharedTile &self) {
  const Counters c = self.run([](Tile &tile) { return tile.counters(); });
  py::dict dict;
  dict["forward_samples"] = c.forwardSamples;
  dict["backward_samples"] = c.backwardSamples;
  dict["update_samples"] = c.updateSamples;
  dict["mini_batches"] = c.miniBatches;
  dict["events"] = c.events;
  return dict;
}

void reseed(SharedTile &self, py::handle seed, bool cells) {
  const auto number = readArgument<uint64_t>(seed, "seed", atLeast(0));
  self.run([&](Tile &tile) { tile.reseed(number, cells); });
}

// Python owns what is returned here. (From a unique_ptr, pybind11 would delete it twice when memory
// for its own record of the object runs out.)
SharedTile *withPeriphery(SharedTile &self, py::handle config) {
  const auto changed = readParams<TileConfig>(toValue(config, "config"), "");
  return new SharedTile(self.run([&](Tile &tile) { return tile.withPeriphery(changed); }));
}

void setEvaluated(SharedTile &self, py::handle samples) {
  const auto count = readArgument<uint64_t>(samples, "evaluated", atLeast(0));
  self.run([&](Tile &tile) { tile.setEvaluated(count); });
}

void loadState(SharedTile &self, const py::dict &tensors, const py::dict &values) {
  const State state = toState(tensors, values);
  self.run([&](Tile &tile) { tile.loadState(state); });
}

SharedTile *tileFromState(const py::dict &tensors, const py::dict &values,
                          const std::string &device, py::handle threads) {
  const Context context = contextOf(device, readThreads(threads));
  const State state = toState(tensors, values);
  const py::gil_scoped_release released;
  const StandardFloats standard;
  return new SharedTile(Tile::fromState(state, context));
}

void setThreads(SharedTile &self, py::handle threads) {
  Context context = self.context();
  context.cpu.threads = readThreads(threads);
  self.setContext(context);
}

void setInstructionSet(SharedTile &self, const std::string &name) {
  const Isa isa = isaNamed(name);
  PULSORA_CHECK(ConfigError, isaSupported(isa), "instruction_set is '", name,
                "', which this machine or this build does not have; its best is ",
                isaName(bestIsa()));
  Context context = self.context();
  context.cpu.isa = isa;
  self.setContext(context);
}

void setGpuProducts(SharedTile &self, py::handle products) {
  Context context = self.context();
  context.gpuProducts = readArgument<GpuProducts>(products, "gpu_products", anyNumber());
  self.setContext(context);
}

std::string gpuProductsName(const SharedTile &self) { return nameOf(self.context().gpuProducts); }

void setStream(SharedTile &self, intptr_t stream) {
  Context context = self.context();
  context.stream = reinterpret_cast<void *>(stream);
  self.setContext(context);
}

std::string deviceName(const SharedTile &self) {
  return self.context().onCpu() ? "cpu" : message("cuda:", self.context().device);
}

}  // namespace

void bindTile(py::module_ &module) {
  using py::arg;
  module.def(
      "require_place",
      [](const std::string &device, py::handle threads) {
        contextOf(device, readThreads(threads));
      },
      arg("device"), arg("threads"),
      "ConfigError or DeviceError unless a tile can be made on this device with so many threads.");
  module.def("upload", &upload, arg("array"), arg("device"),
             "A copy of a float32 array of NumPy's on a GPU.");
  py::class_<SharedTile> made(module, "Tile", py::custom_type_setup(&withoutNew));
  made.def_property_readonly("d_size", &SharedTile::dSize)
      .def_property_readonly("x_size", &SharedTile::xSize)
      .def_property_readonly("seed", &SharedTile::seed)
      .def_property_readonly("tile_id", &SharedTile::tileId)
      .def_property_readonly("device", &deviceName)
      .def_property(
          "evaluated",
          [](SharedTile &self) { return self.run([](Tile &tile) { return tile.evaluated(); }); },
          &setEvaluated)
      .def("evaluation_sample",
           [](SharedTile &self) {
             return self.run([](Tile &tile) { return tile.evaluationSample(); });
           })
      .def("reseed", &reseed, arg("seed"), arg("cells") = false)
      .def("with_periphery", &withPeriphery, arg("config"))
      .def_property(
          "threads", [](const SharedTile &self) { return self.context().cpu.threads; }, &setThreads)
      .def_property(
          "instruction_set",
          [](const SharedTile &self) { return std::string(isaName(self.context().cpu.isa)); },
          &setInstructionSet)
      .def_property("gpu_products", &gpuProductsName, &setGpuProducts)
      .def_property(
          "stream",
          [](const SharedTile &self) { return reinterpret_cast<intptr_t>(self.context().stream); },
          &setStream)
      .def_readwrite("in_step_graph", &SharedTile::inStepGraph)
      .def("forward", &forward, arg("x"), arg("out") = py::none(), arg("first") = 0,
           arg("of") = py::none(), arg("evaluation") = false)
      .def("forward_again", &forwardAgain, arg("x"), arg("out"), arg("first_sample"), arg("of") = 0)
      .def("backward", &backward, arg("d"), arg("out") = py::none(), arg("first") = 0,
           arg("of") = py::none(), arg("evaluation") = false, arg("takes_infinite") = false)
      .def("update", &update, arg("x"), arg("d"), arg("lr"))
      .def("end_batch", &endBatch, arg("lr"))
      .def("follow", &follow, arg("master"))
      .def("calibrate", &calibrate, arg("pulses"))
      .def("get_weights", &getWeights, arg("out") = py::none())
      .def("set_weights", &setWeights, arg("weights"))
      .def("arrays",
           [](SharedTile &self) { return self.run([](Tile &tile) { return tile.arrayNames(); }); })
      .def("reset_columns", &resetColumns, arg("name"), arg("first"), arg("count"),
           arg("probability"))
      .def("get_array", &getArray, arg("name"))
      .def("set_array", &setArray, arg("name"), arg("weights"))
      .def("describe_cells", &describeCells, arg("name"))
      .def(
          "saturated_cells",
          [](SharedTile &self, const std::string &name) {
            return self.run(
                [&](Tile &tile) { return tile.array(name).saturatedCells(tile.context()); });
          },
          arg("name"))
      .def("explain", &explain, arg("x"), arg("d"), arg("lr"))
      .def("config",
           [](SharedTile &self) {
             return fromValue(self.run([](Tile &tile) { return writeParams(tile.config()); }));
           })
      .def("statistics",
           [](SharedTile &self) {
             return fromMap(self.run([](Tile &tile) { return tile.statistics(); }));
           })
      .def("memory_bytes",
           [](SharedTile &self) { return self.run([](Tile &tile) { return tile.memoryBytes(); }); })
      .def("hardware_counts",
           [](SharedTile &self) {
             return fromMap(self.run([](Tile &tile) { return tile.hardwareCounts(); }));
           })
      .def("counters", &counters)
      .def("state",
           [](SharedTile &self) {
             return fromState(self.run([](Tile &tile) { return tile.state(); }));
           })
      .def("load_state", &loadState, arg("tensors"), arg("values"));
  bindAdapter(made);
  bindProgramming(made);
  bindProgrammingOfTiles(module);
  module.def("tile_from_state", &tileFromState, arg("tensors"), arg("values"), arg("device"),
             arg("threads"), "The tile that a state belongs to, in that state.");
  module.def(
      "make_tile",
      [](py::handle dSize, py::handle xSize, py::handle config, py::handle seed, py::handle tileId,
         const std::string &device, py::handle threads) {
        return new SharedTile(makeTile(dSize, xSize, config, seed, tileId, device, threads));
      },
      arg("d_size"), arg("x_size"), arg("config"), arg("seed") = 0, arg("tile_id") = 0,
      arg("device") = "cpu", arg("threads") = 1);
}

}  // namespace pulsora::bindings
