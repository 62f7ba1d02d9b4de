#include "forecast_binding.h"

#include <array>
#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/check.h"
#include "core/threads.h"
#include "forecast/residual_memory.h"
#include "forecast/rollout.h"
#include "forecast/truncated_svd.h"
#include "tensor.h"

namespace RPU::bindings {
namespace {

constexpr int kForm = py::array::c_style | py::array::forcecast;
using FloatArray = py::array_t<float, kForm>;
using DoubleArray = py::array_t<double, kForm>;

Context onThreads(int threads) {
  requireThreads(threads);
  Context context;
  context.cpu.threads = threads;
  return context;
}

void requireShape(const char *name, const py::array &array, const std::vector<int64_t> &shape) {
  std::vector<int64_t> given(array.shape(), array.shape() + array.ndim());
  RPU_CHECK(InputError, given == shape, name, " has shape ", describeShape(given), "; it must be ",
            describeShape(shape));
}

MatrixView<const float> matrix(const FloatArray &array) {
  return rowMajor(array.data(), array.shape(0), array.shape(1));
}

py::object encodeRows(py::handle xGiven, py::handle weightsGiven, py::handle biasGiven,
                      int threads) {
  const auto x = py::cast<FloatArray>(xGiven);
  const auto weights = py::cast<FloatArray>(weightsGiven);
  const auto bias = py::cast<FloatArray>(biasGiven);
  RPU_CHECK(InputError, x.ndim() == 2 && weights.ndim() == 2,
            "encode: x and weights must be matrices");
  requireShape("weights", weights, {x.shape(1), weights.shape(1)});
  requireShape("bias", bias, {weights.shape(1)});
  FloatArray out(std::vector<int64_t>{x.shape(0), weights.shape(1)});
  const auto to = rowMajor(out.mutable_data(), x.shape(0), weights.shape(1));
  const Context context = onThreads(threads);
  {
    const py::gil_scoped_release released;
    const StandardFloats standard;
    encode(context, matrix(x), matrix(weights), vectorView(bias.data(), bias.shape(0)), to);
  }
  return out;
}

// Weights as Python gives them: encoder, encoder_bias, input, recurrent, bias, candidate_bias (or None),
// heads, log_variance_bias, all for float32.
using EnsembleArrays = std::array<FloatArray, 8>;

EnsembleShape shapeOf(const EnsembleArrays &w, bool resetAfter) {
  RPU_CHECK(InputError, w[0].ndim() == 3 && w[3].ndim() == 3,
            "encoder must have the shape [members, features, encoded], and recurrent [members, "
            "hidden, 3 hidden]");
  const int64_t members = w[0].shape(0);
  const int64_t inputs = w[0].shape(1);
  const int64_t encoded = w[0].shape(2);
  const int64_t hidden = w[3].shape(1);
  requireShape("encoder_bias", w[1], {members, encoded});
  requireShape("input", w[2], {members, encoded, 3 * hidden});
  requireShape("recurrent", w[3], {members, hidden, 3 * hidden});
  requireShape("bias", w[4], {members, 3 * hidden});
  if (resetAfter) requireShape("candidate_bias", w[5], {members, hidden});
  requireShape("heads", w[6], {members, hidden, 2});
  requireShape("log_variance_bias", w[7], {members});
  return {members, inputs, encoded, hidden, resetAfter};
}

py::tuple rollOut(py::handle weightsGiven, bool resetAfter, py::handle featuresGiven,
                  const py::object &firstGiven, int64_t steps, bool feedback, bool wantStates,
                  int threads) {
  const auto w = py::cast<EnsembleArrays>(weightsGiven);
  const auto features = py::cast<FloatArray>(featuresGiven);
  const auto first = py::cast<std::optional<FloatArray>>(firstGiven);
  const EnsembleShape shape = shapeOf(w, resetAfter);
  RPU_CHECK(InputError, features.ndim() == 2, "features must be a matrix [rows, features]");
  RPU_CHECK(InputError, steps >= 1 && steps <= kMostSteps, "steps is ", steps,
            "; it must be from 1 to ", kMostSteps);
  const int64_t rows = features.shape(0);
  if (first) requireShape("state", *first, {shape.members, rows, shape.hidden});
  const auto make = [](std::vector<int64_t> sizes) { return FloatArray(std::move(sizes)); };
  FloatArray mean = make({shape.members, rows, steps});
  FloatArray logVariance = make({shape.members, rows, steps});
  FloatArray last = make({shape.members, rows, shape.hidden});
  FloatArray states = make({shape.members, rows, wantStates ? steps : 0, shape.hidden});
  const EnsembleWeights weights{w[0].data(), w[1].data(), w[2].data(),
                                w[3].data(), w[4].data(), resetAfter ? w[5].data() : nullptr,
                                w[6].data(), w[7].data()};
  const RolloutOutputs out{wantStates ? states.mutable_data() : nullptr, last.mutable_data(),
                           mean.mutable_data(), logVariance.mutable_data()};
  const Context context = onThreads(threads);
  const float *state = first ? first->data() : nullptr;
  const auto from = matrix(features);
  {
    const py::gil_scoped_release released;
    const StandardFloats standard;
    rollout(context, shape, weights, from, state, steps, feedback, out);
  }
  return py::make_tuple(mean, logVariance, last, wantStates ? py::object(states) : py::none());
}

SvdMethod methodOf(const std::string &name) {
  if (name == "randomised") return SvdMethod::Randomised;
  if (name == "gram") return SvdMethod::Gram;
  RPU_CHECK(ConfigError, name == "exact", "method is '", name,
            "'; it must be randomised, gram or exact");
  return SvdMethod::Exact;
}

py::tuple svd(py::handle aGiven, int64_t k, const std::string &method, int64_t oversampling,
              int64_t powerSteps, uint64_t seed, int threads) {
  const auto a = py::cast<FloatArray>(aGiven);
  RPU_CHECK(InputError, a.ndim() == 2, "a must be a matrix");
  const int64_t shortest = std::min(a.shape(0), a.shape(1));
  RPU_CHECK(InputError, k >= 1 && k <= shortest, "k is ", k, "; it must be from 1 to ", shortest,
            ", the shorter side of the matrix");
  FloatArray u(std::vector<int64_t>{a.shape(0), k});
  FloatArray s(std::vector<int64_t>{k});
  FloatArray v(std::vector<int64_t>{k, a.shape(1)});
  const SvdOptions options{methodOf(method), oversampling, powerSteps, seed};
  const Context context = onThreads(threads);
  const auto left = rowMajor(u.mutable_data(), a.shape(0), k);
  const auto right = rowMajor(v.mutable_data(), k, a.shape(1));
  float *values = s.mutable_data();
  const auto from = matrix(a);
  int info = 0;
  {
    const py::gil_scoped_release released;
    const StandardFloats standard;
    info = truncatedSvd(context, from, k, options, left, values, right);
  }
  return py::make_tuple(u, s, v, info);
}

py::object addCorrection(py::handle predictionGiven, py::handle correctionGiven) {
  const auto prediction = py::cast<FloatArray>(predictionGiven);
  const auto correction = py::cast<FloatArray>(correctionGiven);
  requireShape("correction", correction,
               {prediction.shape(), prediction.shape() + prediction.ndim()});
  FloatArray out(std::vector<int64_t>(prediction.shape(), prediction.shape() + prediction.ndim()));
  correct({}, rowMajor(prediction.data(), int64_t{1}, prediction.size()),
          rowMajor(correction.data(), int64_t{1}, correction.size()),
          rowMajor(out.mutable_data(), int64_t{1}, out.size()));
  return out;
}

py::object corrections(const ResidualMemory &self, py::handle keysGiven,
                       py::handle predictionsGiven, const py::float_ &step, int threads) {
  const auto keys = py::cast<FloatArray>(keysGiven);
  const auto predictions = py::cast<DoubleArray>(predictionsGiven);
  RPU_CHECK(InputError, keys.ndim() == 2, "keys must be a matrix [rows, key_size]");
  requireShape("predictions", predictions, {keys.shape(0)});
  DoubleArray out(std::vector<int64_t>{keys.shape(0)});
  self.corrections(onThreads(threads), matrix(keys), predictions.data(), step, out.mutable_data());
  return out;
}

void remember(ResidualMemory &self, py::handle keyGiven, const py::float_ &residual,
              const py::float_ &step, const py::float_ &confidence) {
  const auto key = py::cast<FloatArray>(keyGiven);
  requireShape("key", key, {self.keySize()});
  self.remember(key.data(), residual, step, confidence);
}

py::tuple saved(const ResidualMemory &self) {
  const auto entries = self.entries();
  const auto count = static_cast<int64_t>(entries.size());
  DoubleArray table(std::vector<int64_t>{count, 3});
  double *to = table.mutable_data();
  for (const auto &entry : entries) {
    *to++ = entry.residual;
    *to++ = entry.step;
    *to++ = entry.confidence;
  }
  const std::vector<float> keys = self.keys();
  FloatArray rows(std::vector<int64_t>{count, self.keySize()});
  std::copy(keys.begin(), keys.end(), rows.mutable_data());
  return py::make_tuple(
      table, rows,
      DoubleArray(static_cast<py::ssize_t>(self.linear().size()), self.linear().data()));
}

void restore(ResidualMemory &self, py::handle tableGiven, py::handle keysGiven,
             py::handle linearGiven) {
  const auto table = py::cast<DoubleArray>(tableGiven);
  const auto keys = py::cast<FloatArray>(keysGiven);
  const auto linear = py::cast<DoubleArray>(linearGiven);
  RPU_CHECK(InputError, table.ndim() == 2 && table.shape(1) == 3,
            "entries must be a table of residual, step and confidence");
  std::vector<ResidualMemory::Entry> entries;
  entries.reserve(static_cast<size_t>(table.shape(0)));
  for (int64_t i = 0; i < table.shape(0); ++i) {
    entries.push_back({table.at(i, 0), table.at(i, 1), table.at(i, 2)});
  }
  self.restore(entries, {keys.data(), keys.data() + keys.size()},
               {linear.data(), linear.data() + linear.size()});
}

}  // namespace

void bindForecast(py::module_ &module) {
  using py::arg;
  module.def("forecast_encode", &encodeRows, arg("x"), arg("weights"), arg("bias"), arg("threads"));
  module.def("forecast_rollout", &rollOut, arg("weights"), arg("reset_after"), arg("features"),
             arg("state"), arg("steps"), arg("feedback"), arg("states"), arg("threads"));
  module.def("truncated_svd", &svd, arg("a"), arg("k"), arg("method"), arg("oversampling"),
             arg("power_steps"), arg("seed"), arg("threads"));
  module.def("forecast_correct", &addCorrection, arg("prediction"), arg("correction"));
  py::class_<ResidualMemory>(module, "ResidualMemory")
      .def(py::init<int64_t, int64_t, int64_t>(), arg("key_size"), arg("capacity"), arg("nearest"))
      .def_property_readonly("size", &ResidualMemory::size)
      .def("remember", &remember, arg("key"), arg("residual"), arg("step"), arg("confidence"))
      .def("corrections", &corrections, arg("keys"), arg("predictions"), arg("step"),
           arg("threads"))
      .def("saved", &saved)
      .def("restore", &restore, arg("entries"), arg("keys"), arg("linear"));
}

}  // namespace RPU::bindings
