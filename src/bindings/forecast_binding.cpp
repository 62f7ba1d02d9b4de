#include "forecast_binding.h"

#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/check.h"
#include "core/threads.h"
#include "forecast/residual_memory.h"
#include "forecast/rollout.h"
#include "forecast/truncated_svd.h"
#include "tensor.h"

namespace pulsora::bindings {
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

// A CUDA device and stream, or, with device -1, threads of the CPU.
Context at(int device, intptr_t stream, int threads) {
  if (device < 0) return onThreads(threads);
  Context context;
  context.backend = Backend::Cuda;
  context.device = device;
  context.stream = reinterpret_cast<void *>(stream);
  return context;
}

std::vector<int64_t> shapeOf(py::handle array) {
  return array.attr("shape").cast<std::vector<int64_t>>();
}

void requireShape(const char *name, py::handle array, const std::vector<int64_t> &shape) {
  const std::vector<int64_t> given = shapeOf(array);
  PULSORA_CHECK(InputError, given == shape, name, " has shape ", describeShape(given),
                "; it must be ", describeShape(shape));
}

// The elements of an array that pulsora.forecast has prepared: gapless float32, of NumPy, or of
// torch on the device in use. Null for None.
float *floatsOf(py::handle array, const Context &context) {
  if (array.is_none()) return nullptr;
  if (!context.onCpu())
    return reinterpret_cast<float *>(array.attr("data_ptr")().cast<uintptr_t>());
  if (!py::isinstance<py::array_t<float, py::array::c_style>>(array))
    throw py::type_error("an array is not gapless float32");
  return static_cast<float *>(py::reinterpret_borrow<py::array>(array).mutable_data());
}

MatrixView<float> matrixOf(py::handle array, const Context &context) {
  const std::vector<int64_t> shape = shapeOf(array);
  PULSORA_CHECK(InputError, shape.size() == 2, "an array has shape ", describeShape(shape),
                "; it must be a matrix");
  return rowMajor(floatsOf(array, context), shape[0], shape[1]);
}

MatrixView<const float> matrix(const FloatArray &array) {
  return rowMajor(array.data(), array.shape(0), array.shape(1));
}

void encodeRows(py::handle x, py::handle weights, py::handle bias, py::handle out, int device,
                intptr_t stream, int threads) {
  const Context context = at(device, stream, threads);
  const auto from = matrixOf(x, context);
  const auto encoder = matrixOf(weights, context);
  requireShape("weights", weights, {from.cols, encoder.cols});
  requireShape("bias", bias, {encoder.cols});
  requireShape("out", out, {from.rows, encoder.cols});
  const auto added = vectorView<const float>(floatsOf(bias, context), encoder.cols);
  const auto to = matrixOf(out, context);
  const py::gil_scoped_release released;
  const StandardFloats standard;
  encode(context, from, encoder, added, to);
}

// Weights in Python's order: encoder, encoder_bias, input, recurrent, bias, heads,
// log_variance_bias, and, or None: candidate_bias, state_gain, state_shift, projection,
// projection_bias.
using EnsembleArrays = std::vector<py::object>;

EnsembleShape ensembleShapeOf(const EnsembleArrays &w) {
  PULSORA_CHECK(InputError, w.size() == 12, "an ensemble has 12 arrays of weights, not ", w.size());
  const std::vector<int64_t> encoder = shapeOf(w[0]);
  const std::vector<int64_t> recurrent = shapeOf(w[3]);
  PULSORA_CHECK(InputError, encoder.size() == 3 && recurrent.size() == 3,
                "encoder must have the shape [members, features, encoded], and recurrent [members, "
                "hidden, 3 hidden]");
  EnsembleShape s{encoder[0], encoder[1], encoder[2], recurrent[1], !w[7].is_none()};
  s.normalised = !w[8].is_none();
  PULSORA_CHECK(InputError, s.normalised != w[9].is_none(),
                "state_gain and state_shift must both be given, or neither");
  PULSORA_CHECK(InputError, w[10].is_none() == w[11].is_none(),
                "projection and projection_bias must both be given, or neither");
  if (!w[11].is_none()) {
    const std::vector<int64_t> bias = shapeOf(w[11]);
    PULSORA_CHECK(InputError, bias.size() == 2, "projection_bias must be [members, width]");
    s.predicted = bias[1];
    requireShape("projection", w[10], {s.members, s.hidden, s.predicted});
    requireShape("projection_bias", w[11], {s.members, s.predicted});
  }
  requireShape("encoder_bias", w[1], {s.members, s.encoded});
  requireShape("input", w[2], {s.members, s.encoded, 3 * s.hidden});
  requireShape("recurrent", w[3], {s.members, s.hidden, 3 * s.hidden});
  requireShape("bias", w[4], {s.members, 3 * s.hidden});
  requireShape("heads", w[5], {s.members, s.hidden, 2});
  requireShape("log_variance_bias", w[6], {s.members});
  if (s.resetAfter) requireShape("candidate_bias", w[7], {s.members, s.hidden});
  if (s.normalised) {
    requireShape("state_gain", w[8], {s.members, s.hidden});
    requireShape("state_shift", w[9], {s.members, s.hidden});
  }
  return s;
}

void rollOut(const EnsembleArrays &w, py::handle features, const py::object &state, bool feedback,
             py::handle mean, py::handle logVariance, py::handle last, const py::object &states,
             const py::object &predicted, float dropout, uint64_t seed, int64_t rowsPerSample,
             bool half, int device, intptr_t stream, int threads) {
  const Context context = at(device, stream, threads);
  const EnsembleShape s = ensembleShapeOf(w);
  const auto from = matrixOf(features, context);
  const std::vector<int64_t> sums = shapeOf(mean);
  PULSORA_CHECK(InputError, sums.size() == 3, "mean must be [members, rows, steps]");
  const int64_t steps = sums[2];
  requireShape("mean", mean, {s.members, from.rows, steps});
  requireShape("log_variance", logVariance, {s.members, from.rows, steps});
  requireShape("last", last, {s.members, from.rows, s.hidden});
  if (!states.is_none()) requireShape("states", states, {s.members, from.rows, steps, s.hidden});
  if (!predicted.is_none())
    requireShape("predicted", predicted, {s.members, from.rows, steps, s.predicted});
  if (!state.is_none()) requireShape("state", state, {s.members, from.rows, s.hidden});
  const auto floats = [&](py::handle array) { return floatsOf(array, context); };
  const EnsembleWeights weights{floats(w[0]), floats(w[1]), floats(w[2]),  floats(w[3]),
                                floats(w[4]), floats(w[7]), floats(w[5]),  floats(w[6]),
                                floats(w[8]), floats(w[9]), floats(w[10]), floats(w[11])};
  const RolloutOutputs out{floats(states), floats(last), floats(mean), floats(logVariance),
                           floats(predicted)};
  const RolloutOptions options{dropout, seed, rowsPerSample, half};
  const float *first = floats(state);
  const py::gil_scoped_release released;
  const StandardFloats standard;
  rollout(context, s, weights, from, first, steps, feedback, out, options);
}

SvdMethod methodOf(const std::string &name) {
  if (name == "randomised") return SvdMethod::Randomised;
  if (name == "gram") return SvdMethod::Gram;
  PULSORA_CHECK(ConfigError, name == "exact", "method is '", name,
                "'; it must be randomised, gram or exact");
  return SvdMethod::Exact;
}

int svd(py::handle a, int64_t k, const std::string &method, int64_t oversampling,
        int64_t powerSteps, uint64_t seed, py::handle u, py::handle s, py::handle v, int device,
        intptr_t stream, int threads) {
  const SvdOptions options{methodOf(method), oversampling, powerSteps, seed};
  const Context context = at(device, stream, threads);
  const auto from = matrixOf(a, context);
  requireShape("s", s, {k});
  const auto left = matrixOf(u, context);
  const auto right = matrixOf(v, context);
  float *values = floatsOf(s, context);
  const py::gil_scoped_release released;
  const StandardFloats standard;
  return truncatedSvd(context, from, k, options, left, values, right);
}

py::object corrections(const ResidualMemory &self, py::handle keysGiven,
                       py::handle predictionsGiven, const py::float_ &step, int threads) {
  const auto keys = py::cast<FloatArray>(keysGiven);
  const auto predictions = py::cast<DoubleArray>(predictionsGiven);
  PULSORA_CHECK(InputError, keys.ndim() == 2, "keys must be a matrix [rows, key_size]");
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
  PULSORA_CHECK(InputError, table.ndim() == 2 && table.shape(1) == 3,
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
  module.def("most_rollout_steps", [] { return kMostSteps; });
  module.def("forecast_encode", &encodeRows, arg("x"), arg("weights"), arg("bias"), arg("out"),
             arg("device"), arg("stream"), arg("threads"));
  module.def("forecast_rollout", &rollOut, arg("weights"), arg("features"), arg("state"),
             arg("feedback"), arg("mean"), arg("log_variance"), arg("last"), arg("states"),
             arg("predicted"), arg("dropout"), arg("seed"), arg("rows_per_sample"), arg("half"),
             arg("device"), arg("stream"), arg("threads"));
  module.def("truncated_svd", &svd, arg("a"), arg("k"), arg("method"), arg("oversampling"),
             arg("power_steps"), arg("seed"), arg("u"), arg("s"), arg("v"), arg("device"),
             arg("stream"), arg("threads"));
  py::class_<ResidualMemory>(module, "ResidualMemory")
      .def(py::init<int64_t, int64_t, int64_t>(), arg("key_size"), arg("capacity"), arg("nearest"))
      .def_property_readonly("size", &ResidualMemory::size)
      .def("remember", &remember, arg("key"), arg("residual"), arg("step"), arg("confidence"))
      .def("corrections", &corrections, arg("keys"), arg("predictions"), arg("step"),
           arg("threads"))
      .def("saved", &saved)
      .def("restore", &restore, arg("entries"), arg("keys"), arg("linear"));
}

}  // namespace pulsora::bindings
