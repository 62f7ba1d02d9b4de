#include "training_graph_binding.h"

#include <pybind11/stl.h>
#include <utility>
#include <vector>

#include "core/cuda_api.h"
#include "no_constructor.h"
#include "shared_tile.h"
#include "step_record.h"

namespace pulsora::bindings {
namespace {

namespace py = pybind11;

/// A training step of torch and of the tiles in it.
class TrainingGraphOfTiles {
 public:
  /// `layers` has the tiles of each layer; they share a lane.
  TrainingGraphOfTiles(int device, const std::vector<std::vector<py::object>> &layers)
      : record_(device) {
    for (size_t i = 0; i < layers.size(); ++i) {
      for (const py::object &owner : layers[i]) {
        owners_.push_back(owner);
        tiles_.push_back({owner.cast<SharedTile *>(), static_cast<int>(i % TrainingGraph::kLanes)});
      }
    }
  }
  ~TrainingGraphOfTiles() { end(); }
  TrainingGraphOfTiles(const TrainingGraphOfTiles &) = delete;
  TrainingGraphOfTiles &operator=(const TrainingGraphOfTiles &) = delete;

  void begin() {
    for (const auto &[tile, lane] : tiles_) tile->beginRecord(record_, lane);
  }
  void end() {
    for (const auto &[tile, lane] : tiles_) tile->endRecord(record_);
  }
  void useRate(size_t number) { record_.useRate(number); }
  void finish(intptr_t graph) { record_.graph().finish(reinterpret_cast<void *>(graph)); }

  void run(intptr_t stream, const std::vector<float> &rates) {
    record_.setRates(rates);
    const auto target = reinterpret_cast<void *>(stream);
    for (const auto &[tile, lane] : tiles_) moveTo(*tile, record_.graph().stream(lane), target);
    record_.graph().run(target);
  }
  int shapes() { return record_.graph().shapes(); }

 private:
  struct LaneTile {
    SharedTile *tile;
    int lane;
  };

  /// Makes a tile use the stream of its lane; `target` waits for the tile's earlier work in another
  /// stream.
  static void moveTo(SharedTile &tile, void *lane, void *target) {
    Context context = tile.context();
    if (context.stream == lane) return;
    Context then = context;
    then.stream = target;
    detail::cudaOrder(context, then);
    context.stream = lane;
    tile.setContext(context);
  }

  StepRecord record_;
  std::vector<py::object> owners_;
  std::vector<LaneTile> tiles_;
};

}  // namespace

void bindTrainingGraph(py::module_ &module) {
  py::class_<TrainingGraphOfTiles>(module, "TrainingGraph")
      .def(py::init<int, const std::vector<std::vector<py::object>> &>(), py::arg("device"),
           py::arg("layers"))
      .def("begin", &TrainingGraphOfTiles::begin)
      .def("end", &TrainingGraphOfTiles::end)
      .def("use_rate", &TrainingGraphOfTiles::useRate, py::arg("number"))
      .def("finish", &TrainingGraphOfTiles::finish, py::arg("graph"))
      .def("run", &TrainingGraphOfTiles::run, py::arg("stream"), py::arg("rates"))
      .def_property_readonly("shapes", &TrainingGraphOfTiles::shapes);
}

}  // namespace pulsora::bindings
