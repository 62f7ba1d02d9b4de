#pragma once

#include <algorithm>
#include <vector>

#include "array/line_visits.h"
#include "core/atomics.h"
#include "core/view.h"
#include "numerics/math.h"
#include "transfer/line_rule.h"

// Buffers and choppers of transfers line by line. Sources: Gokmen, "Enabling training of neural
// networks on noisy hardware", Front. Artif. Intell. 4:699148 (2021) for the sum and the choppers;
// Rasch, Carta, Fagbohungbe, Gokmen, Nat. Commun. 15:7133 (2024) for the running mean.
// docs/reference/transfers.md has the formulas.

namespace pulsora {

/// Changes of the signs of choppers, as functions of the numbers of visits.
struct ChopperFlips {
  LineRule rule;
  LineVisits visits;
  RandomKey key;  // of random changes

  /// Number of times that the line of visit v had been read before.
  PULSORA_HD uint64_t sweep(int64_t v) const {
    return (visits.first + static_cast<uint64_t>(v) - visits.origin) /
           static_cast<uint64_t>(visits.lines);
  }
  /// Whether the sign of a line changes after its read, visit v.
  PULSORA_HD bool lineFlips(int64_t v) const {
    if (rule.regular) {
      const auto period = static_cast<uint64_t>(rule.period);
      return rule.lineFlips > 0.0f && sweep(v) % period == period - 1;
    }
    return happens(static_cast<uint64_t>(visits.line(v)), v, rule.lineFlips);
  }
  /// Whether the sign of cell k of all lines changes after visit v, which ends a sweep.
  PULSORA_HD bool otherFlips(int64_t v, int64_t k) const {
    return happens(static_cast<uint64_t>(visits.lines + k), v, rule.otherFlips);
  }
  /// The first visit from `v` on that ends a sweep.
  PULSORA_HD int64_t endOfSweep(int64_t v) const { return v + visits.lines - 1 - visits.line(v); }

  /// A line's sign after the visits before `end`, from its sign before visit `begin`.
  PULSORA_HD float lineSign(float sign, int64_t line, int64_t begin, int64_t end) const {
    if (!(rule.lineFlips > 0.0f)) return sign;
    const int64_t ahead = line - visits.line(begin);
    for (int64_t v = begin + ahead + (ahead < 0 ? visits.lines : 0); v < end; v += visits.lines)
      sign = lineFlips(v) ? -sign : sign;
    return sign;
  }
  /// The sign of cell k of all lines after the visits before `end`, from that before `begin`.
  PULSORA_HD float otherSign(float sign, int64_t k, int64_t begin, int64_t end) const {
    if (!(rule.otherFlips > 0.0f)) return sign;
    for (int64_t v = endOfSweep(begin); v < end; v += visits.lines)
      sign = otherFlips(v, k) ? -sign : sign;
    return sign;
  }

 private:
  PULSORA_HD bool happens(uint64_t element, int64_t v, float probability) const {
    if (!(probability > 0.0f)) return false;
    const uint64_t number = visits.first + static_cast<uint64_t>(v);
    return uniform(draw(key, Purpose::ChopperSwitch, element, number).v[0]) < probability;
  }
};

/// Memory of a buffer: matrices are [lines, others].
struct BufferMemory {
  float *sums;              // H
  float *means;             // Dynamic: running mean of reads
  float *references;        // Dynamic: that mean when the line's sign last changed
  const float *lineSigns;   // [lines], before visit 0; null without choppers
  const float *otherSigns;  // [others]
};

/// A number of steps for an account; a very large one counts as 2^31.
PULSORA_HD uint64_t wholeNumber(float steps) {
  return static_cast<uint64_t>(pulsora::min(steps, 0x1p31f));
}

/// Adds the whole steps by which values exceed what a pulse train carries to a total.
struct TrainClips {
  const float *values;
  float steps;  // of the written array, for a value of 1
  float most;   // slots of a train
  uint64_t *clipped;
  const uint32_t *fault;  // see Context::nonfiniteFlag; may be null

  PULSORA_HD void operator()(int64_t i) const {
    if (fault && *fault) return;
    const float excess = pulsora::floor(pulsora::abs(values[i]) * steps - most);
    if (excess > 0.0f) atomicAddTo(clipped, wholeNumber(excess));
  }
};

/// Collects the reads of visited lines, and gives the pulses (or the digital change) of the cells
/// that are written. Element i is cell i % others of the line of visit i / others; a line's first
/// visit treats all visits of the line in order.
struct LineCollector {
  LineRule rule;
  ChopperFlips flips;  // has the visits
  BufferMemory memory;
  RandomKey key;       // of pulses that happen by chance
  const float *rates;  // learning rate of each sample of the mini-batch; null: not needed
  int64_t firstTap;    // see LineTaps
  int64_t every;
  float *values;      // [visits.count, others]: reads, then pulses
  uint64_t *clipped;  // total of steps beyond rule.most

  PULSORA_HD void operator()(int64_t i) const {
    const LineVisits &visits = flips.visits;
    int64_t v = i / rule.others;
    const int64_t k = i - v * rule.others;
    if (visits.changeNothing() || !visits.isFirst(v)) return;
    const int64_t at = visits.line(v) * rule.others + k;
    Cell cell = load(at);
    float lineSign = memory.lineSigns ? memory.lineSigns[visits.line(v)] : 1.0f;
    float otherSign = memory.otherSigns ? memory.otherSigns[k] : 1.0f;
    int64_t seen = 0;  // visits that otherSign has seen
    for (; v < visits.count; v = visits.next(v)) {
      if (memory.otherSigns) {
        otherSign = flips.otherSign(otherSign, k, seen, v);
        seen = v;
      }
      const Visit visit = visitOf(v);
      take(visit, lineSign * otherSign, v, k, cell);
      if (visit.flips) lineSign = -lineSign;
    }
    store(cell, at);
  }

  /// The elements of visits [begin, end), on the CPU.
  void ofRows(int64_t begin, int64_t end) const {
    for (int64_t v = begin; v < end; ++v) {
      if (!flips.visits.changeNothing() && flips.visits.isFirst(v)) ofLineFrom(v);
    }
  }

 private:
  /// All visits of a line, from its first one.
  void ofLineFrom(int64_t v) const {
    const LineVisits &visits = flips.visits;
    const int64_t line = visits.line(v);
    float lineSign = memory.lineSigns ? memory.lineSigns[line] : 1.0f;
    std::vector<float> otherSigns(static_cast<size_t>(rule.others), 1.0f);
    if (memory.otherSigns) std::copy_n(memory.otherSigns, otherSigns.size(), otherSigns.begin());
    for (int64_t seen = 0; v < visits.count; seen = v, v = visits.next(v)) {
      const Visit visit = visitOf(v);
      for (int64_t k = 0; k < rule.others; ++k) {
        float &otherSign = otherSigns[static_cast<size_t>(k)];
        if (memory.otherSigns) otherSign = flips.otherSign(otherSign, k, seen, v);
        const int64_t at = line * rule.others + k;
        Cell cell = load(at);
        take(visit, lineSign * otherSign, v, k, cell);
        store(cell, at);
      }
      if (visit.flips) lineSign = -lineSign;
    }
  }

  /// The memory of a buffer for a cell.
  struct Cell {
    float sum;
    float mean;
    float reference;
  };
  /// The part of a visit that all cells of the line share.
  struct Visit {
    bool collects;
    bool renews;  // the reference becomes the mean
    bool flips;   // the line's sign changes after the visit
    float gain;
  };

  PULSORA_HD Cell load(int64_t at) const {
    return {memory.sums[at], memory.means ? memory.means[at] : 0.0f,
            memory.references ? memory.references[at] : 0.0f};
  }
  PULSORA_HD void store(const Cell &cell, int64_t at) const {
    memory.sums[at] = cell.sum;
    if (memory.means) memory.means[at] = cell.mean;
    if (memory.references) memory.references[at] = cell.reference;
  }
  PULSORA_HD Visit visitOf(int64_t v) const {
    Visit visit{true, false, memory.lineSigns && flips.lineFlips(v), gain(v)};
    if (memory.means) {
      visit.collects = flips.sweep(v) >= static_cast<uint64_t>(rule.period);
      visit.renews = flips.sweep(v) > 0 && flips.lineFlips(v - flips.visits.lines);
    }
    return visit;
  }
  /// Replaces the read of cell k by its pulses or its change.
  PULSORA_HD void take(const Visit &visit, float sign, int64_t v, int64_t k, Cell &cell) const {
    float &value = values[v * rule.others + k];
    const float read = value;
    if (visit.renews) cell.reference = cell.mean;
    value =
        visit.collects ? collect(cell.sum, visit.gain, sign * (read - cell.reference), v, k) : 0.0f;
    if (memory.means) cell.mean = pulsora::fma(rule.tail, read - cell.mean, cell.mean);
  }

  /// Adds a read to the sum, takes whole steps from it, and returns their pulses or change.
  PULSORA_HD float collect(float &sum, float gain, float read, int64_t v, int64_t k) const {
    const float changed = pulsora::fma(gain, read, rule.keeps ? sum : 0.0f);
    const float most = static_cast<float>(rule.most);
    const float ratio = changed / rule.threshold;
    const float whole = ratio < 0.0f ? -pulsora::floor(-ratio) : pulsora::floor(ratio);
    const float steps = pulsora::clamp(whole, -most, most);
    sum = changed;
    if (steps == 0.0f) return 0.0f;
    if (whole != steps) atomicAddTo(clipped, wholeNumber(pulsora::abs(whole) - most));
    if (rule.forget) {
      sum = rule.momentum * changed;
    } else {
      sum = pulsora::fma((rule.momentum - 1.0f) * steps, rule.threshold, changed);
      const float cap = rule.cap * most;
      if (cap > 0.0f) sum = pulsora::clamp(sum, -cap, cap);
    }
    return rule.stepSize > 0.0f ? steps * rule.stepSize : happened(steps, v, k);
  }

  PULSORA_HD float gain(int64_t v) const {
    float gain = rule.gain;
    if (rates) {
      const float rate = rates[firstTap + v / flips.visits.together * every];
      gain = rate > 0.0f ? gain / rate : 0.0f;
    }
    if (!rule.corrects) return gain;
    const auto reads = static_cast<float>(flips.sweep(v) % static_cast<uint64_t>(rule.period) + 1);
    return gain / pulsora::min(reads, rule.mostReads);
  }

  /// The pulses of `steps`, each of which happens with probability stepChance.
  PULSORA_HD float happened(float steps, int64_t v, int64_t k) const {
    if (rule.stepChance >= 1.0f) return steps;
    const auto count = static_cast<uint32_t>(pulsora::abs(steps));
    float pulses = 0.0f;
    for (uint32_t q = 0; q < count; ++q) {
      const Philox4 block = draw(key, Purpose::DPulse, static_cast<uint64_t>(k),
                                 flips.visits.first + static_cast<uint64_t>(v), q);
      pulses += uniform(block.v[0]) < rule.stepChance ? 1.0f : 0.0f;
    }
    return steps < 0.0f ? -pulses : pulses;
  }
};

/// Signs of choppers after the visits of a run. Element i is line i, or cell i - lines of all
/// lines.
struct ChopperTurner {
  ChopperFlips flips;
  float *lineSigns;
  float *otherSigns;

  PULSORA_HD void operator()(int64_t i) const {
    if (flips.visits.changeNothing()) return;
    const int64_t k = i - flips.visits.lines;
    if (k < 0) {
      lineSigns[i] = flips.lineSign(lineSigns[i], i, 0, flips.visits.count);
    } else {
      otherSigns[k] = flips.otherSign(otherSigns[k], k, 0, flips.visits.count);
    }
  }
};

/// The inputs of one side of an update as choppers and the learning rates of samples change them:
/// out[s, i] = sign of line i at sample s x sqrt(rate of s) x in(s, i). An element is a line at
/// some successive samples, whose signs follow from one another.
struct ChoppedInput {
  MatrixView<const float> in;
  ChopperFlips flips;
  const float *signs;  // before visit 0; null: all 1
  bool ofLines;        // whether this side drives the read lines
  const float *rates;  // of samples; null: all 1
  int64_t firstTap;
  int64_t every;
  float *out;
  int64_t successive = 1;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t begin = i / in.cols * successive;
    const int64_t end = pulsora::min(begin + successive, in.rows);
    const int64_t line = i % in.cols;
    float sign = signs ? signs[line] : 1.0f;
    int64_t seen = 0;
    for (int64_t s = begin; s < end; ++s) {
      const int64_t before = visits(s);
      if (before > seen) {
        sign = ofLines ? flips.lineSign(sign, line, seen, before)
                       : flips.otherSign(sign, line, seen, before);
        seen = before;
      }
      out[s * in.cols + line] = rate(s) * sign * in(s, line);
    }
  }

  /// The elements of samples [begin, end), on the CPU.
  void ofRows(int64_t begin, int64_t end) const {
    std::vector<float> now(static_cast<size_t>(in.cols), 1.0f);
    if (signs) std::copy_n(signs, now.size(), now.begin());
    int64_t seen = 0;
    for (int64_t s = begin; s < end; ++s) {
      for (const int64_t before = visits(s); seen < before; ++seen) turn(seen, now);
      const float factor = rate(s);
      for (int64_t line = 0; line < in.cols; ++line)
        out[s * in.cols + line] = factor * now[static_cast<size_t>(line)] * in(s, line);
    }
  }

 private:
  /// Changes signs as visit v does.
  void turn(int64_t v, std::vector<float> &now) const {
    const int64_t read = flips.visits.line(v);
    if (ofLines) {
      if (flips.lineFlips(v)) now[static_cast<size_t>(read)] *= -1.0f;
    } else if (read == flips.visits.lines - 1) {
      for (int64_t k = 0; k < in.cols; ++k)
        if (flips.otherFlips(v, k)) now[static_cast<size_t>(k)] *= -1.0f;
    }
  }
  PULSORA_HD float rate(int64_t s) const { return rates ? pulsora::sqrt(rates[s]) : 1.0f; }
  /// The visits before sample s. (A read comes after the pulses of its own sample.)
  PULSORA_HD int64_t visits(int64_t s) const {
    if (!signs) return 0;
    const int64_t events = s <= firstTap ? 0 : (s - firstTap - 1) / every + 1;
    return pulsora::min(events * flips.visits.together, flips.visits.count);
  }
};

/// Learning rates of samples from running maxima of |x| and |d| (auto_scale): rate = scale / (max
/// |x| max |d|).
struct AutoRates {
  static constexpr int kLatest = 2;
  static constexpr int kSize = 3;

  int64_t samples;
  const float *xMaxima;  // [samples]
  const float *dMaxima;
  float decay;  // weight of a sample in the running maxima
  float scale;
  float *running;         // [kSize]: of x, of d, and the latest rate
  float *rates;           // [samples]
  const uint32_t *fault;  // see Context::nonfiniteFlag; may be null

  PULSORA_HD void operator()(int64_t) const {
    if (fault && *fault) {
      for (int64_t s = 0; s < samples; ++s) rates[s] = 0.0f;
      return;
    }
    float x = running[0];
    float d = running[1];
    for (int64_t s = 0; s < samples; ++s) {
      x = next(x, xMaxima[s]);
      d = next(d, dMaxima[s]);
      rates[s] = x > 0.0f && d > 0.0f ? scale / (x * d) : 0.0f;
    }
    running[0] = x;
    running[1] = d;
    if (samples > 0) running[kLatest] = rates[samples - 1];
  }

 private:
  PULSORA_HD float next(float mean, float value) const {
    if (!(value > 0.0f)) return mean;
    return mean > 0.0f ? pulsora::fma(decay, value - mean, mean) : value;
  }
};

}  // namespace pulsora
