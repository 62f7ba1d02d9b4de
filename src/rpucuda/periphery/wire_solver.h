#pragma once

#include "core/platform.h"
#include "core/view.h"
#include "numerics/math.h"

// The currents of an array with resistive wires (docs/reference/io.md). Input line j is driven at
// output 0 and meets two lines of each output, one of the positive and one of the negative weights,
// which are held at 0 V at input 0. Lines of one direction are solved exactly, with the voltages of
// the other direction as they were; output and input lines take turns.
//
// A line is solved from its far end on: the part beyond a wire is a current source (its current
// into a short) and a conductance. `pivot` is 1 / (wire + conductance) of a cell and what lies
// beyond it, so that a wire passes on the share wire * pivot.

namespace pulsora {

/// The network of an array [outputs, inputs]; numbers in units of a cell of weight 1.
struct WireNetwork {
  MatrixView<const float> weights;
  float inputWire;   ///< conductance between two cells of an input line; 0: no resistance
  float outputWire;  ///< of an output line
  float *pivots;     ///< [3, outputs, inputs]: of positive and of negative output lines, of inputs

  PULSORA_HD int64_t size() const { return weights.rows * weights.cols; }
  PULSORA_HD int64_t at(int64_t i, int64_t j) const { return i * weights.cols + j; }
  /// The conductance of a cell on one of the two lines of its output: 0 positive, 1 negative.
  PULSORA_HD float cell(int64_t i, int64_t j, int sign) const {
    const float w = weights(i, j);
    return pulsora::max(sign == 0 ? w : -w, 0.0f);
  }
};

/// Makes the pivots of line e: of 2 lines for each output, then of the input lines.
struct WirePivots {
  WireNetwork net;

  PULSORA_HD void operator()(int64_t e) const {
    const int64_t outputs = net.weights.rows;
    if (e < 2 * outputs) {
      outputLine(e / 2, static_cast<int>(e % 2));
    } else {
      inputLine(e - 2 * outputs);
    }
  }

 private:
  PULSORA_HD void outputLine(int64_t i, int sign) const {
    float *pivots = net.pivots + sign * net.size();
    float beyond = 0.0f;
    for (int64_t j = net.weights.cols - 1; j >= 0; --j)
      pivots[net.at(i, j)] = pass(net.outputWire, beyond + net.cell(i, j, sign), beyond);
  }
  PULSORA_HD void inputLine(int64_t j) const {
    float *pivots = net.pivots + 2 * net.size();
    float beyond = 0.0f;
    for (int64_t i = net.weights.rows - 1; i >= 0; --i)
      pivots[net.at(i, j)] = pass(net.inputWire, beyond + pulsora::abs(net.weights(i, j)), beyond);
  }
  PULSORA_HD static float pass(float wire, float conductance, float &beyond) {
    if (wire == 0.0f) return 0.0f;
    const float pivot = 1.0f / (wire + conductance);
    beyond = conductance * (wire * pivot);
    return pivot;
  }
};

/// Voltages of the cells of some samples, [samples, outputs, inputs] each.
struct WireVoltages {
  MatrixView<const float> drivers;  ///< [samples, inputs]
  float *input;                     ///< of the input line
  float *output;                    ///< of the cell's own output line; 0 where the weight is 0
  float *current;                   ///< scratch: into a short at the cell, from the far end

  PULSORA_HD int64_t first(const WireNetwork &net, int64_t sample) const {
    return sample * net.size();
  }
};

/// Input lines without resistance.
struct WireStart {
  WireNetwork net;
  WireVoltages v;

  PULSORA_HD void operator()(int64_t e) const {
    v.input[e] = v.drivers(e / net.size(), e % net.weights.cols);
  }
};

/// Solves both lines of an output for a sample, and writes the difference of their currents.
struct OutputLines {
  WireNetwork net;
  WireVoltages v;
  MatrixView<float> sums;  // [samples, outputs]

  PULSORA_HD void operator()(int64_t e) const {
    const int64_t sample = e / net.weights.rows;
    const int64_t i = e % net.weights.rows;
    const float positive = solve(sample, i, 0);
    sums(sample, i) = positive - solve(sample, i, 1);
  }

 private:
  PULSORA_HD float solve(int64_t sample, int64_t i, int sign) const {
    const int64_t n = net.weights.cols;
    const int64_t line = v.first(net, sample) + net.at(i, 0);
    const float *pivots = net.pivots + sign * net.size() + net.at(i, 0);
    const float wire = net.outputWire;
    float current = 0.0f;
    for (int64_t j = n - 1; j >= 0; --j) {
      current = pulsora::fma(net.cell(i, j, sign), v.input[line + j], current);
      v.current[line + j] = current;
      if (j > 0 && wire > 0.0f) current *= wire * pivots[j];
    }
    float voltage = 0.0f;  // at the read-out
    for (int64_t j = 0; j < n; ++j) {
      if (j > 0 && wire > 0.0f)
        voltage = pulsora::fma(wire, voltage, v.current[line + j]) * pivots[j];
      const bool isOwn = net.cell(i, j, sign) > 0.0f;
      if (isOwn || sign == 0) v.output[line + j] = isOwn ? voltage : 0.0f;
    }
    return current;
  }
};

/// Solves an input line for a sample.
struct InputLines {
  WireNetwork net;
  WireVoltages v;

  PULSORA_HD void operator()(int64_t e) const {
    const int64_t n = net.weights.cols;
    const int64_t sample = e / n;
    const int64_t j = e % n;
    const int64_t first = v.first(net, sample) + j;
    const float *pivots = net.pivots + 2 * net.size() + j;
    const float wire = net.inputWire;
    float current = 0.0f;
    for (int64_t i = net.weights.rows - 1; i > 0; --i) {
      const int64_t at = first + i * n;
      current = pulsora::fma(pulsora::abs(net.weights(i, j)), v.output[at], current);
      v.current[at] = current;
      current *= wire * pivots[i * n];
    }
    float voltage = v.drivers(sample, j);
    for (int64_t i = 0; i < net.weights.rows; ++i) {
      const int64_t at = first + i * n;
      if (i > 0) voltage = pulsora::fma(wire, voltage, v.current[at]) * pivots[i * n];
      v.input[at] = voltage;
    }
  }
};

}  // namespace pulsora
