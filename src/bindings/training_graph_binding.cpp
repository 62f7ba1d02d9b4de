#include "training_graph_binding.h"

#include <pybind11/stl.h>
#include <utility>
#include <vector>

#include "shared_tile.h"
#include "step_record.h"
#include "without_new.h"

namespace RPU::bindings {
namespace {

namespace py = pybind11;

/// A training step of torch and of the tiles in it.
class TrainingGraphOfTiles {
 public:
  TrainingGraphOfTiles(int device, std::vector<py::object> tiles)
      : record_(device), owners_(std::move(tiles)) {
    for (const py::object &owner : owners_) tiles_.push_back(owner.cast<SharedTile *>());
  }
  ~TrainingGraphOfTiles() { end(); }
  TrainingGraphOfTiles(const TrainingGraphOfTiles &) = delete;
  TrainingGraphOfTiles &operator=(const TrainingGraphOfTiles &) = delete;

  void begin() {
    for (SharedTile *tile : tiles_) tile->beginRecord(record_);
  }
  void end() {
    for (SharedTile *tile : tiles_) tile->endRecord(record_);
  }
  void useRate(size_t number) { record_.useRate(number); }
  void finish(intptr_t graph) { record_.graph().finish(reinterpret_cast<void *>(graph)); }

  void run(intptr_t stream, const std::vector<float> &rates) {
    record_.setRates(rates);
    void *own = record_.graph().stream();
    for (SharedTile *tile : tiles_) {
      if (tile->context().stream == own) continue;
      Context context = tile->context();
      context.stream = own;
      tile->setContext(context);
    }
    record_.graph().run(reinterpret_cast<void *>(stream));
  }
  int shapes() { return record_.graph().shapes(); }

 private:
  StepRecord record_;
  std::vector<py::object> owners_;
  std::vector<SharedTile *> tiles_;
};

}  // namespace

void bindTrainingGraph(py::module_ &module) {
  py::class_<TrainingGraphOfTiles>(module, "TrainingGraph")
      .def(py::init<int, std::vector<py::object>>(), py::arg("device"), py::arg("tiles"))
      .def("begin", &TrainingGraphOfTiles::begin)
      .def("end", &TrainingGraphOfTiles::end)
      .def("use_rate", &TrainingGraphOfTiles::useRate, py::arg("number"))
      .def("finish", &TrainingGraphOfTiles::finish, py::arg("graph"))
      .def("run", &TrainingGraphOfTiles::run, py::arg("stream"), py::arg("rates"))
      .def_property_readonly("shapes", &TrainingGraphOfTiles::shapes);
}

}  // namespace RPU::bindings
