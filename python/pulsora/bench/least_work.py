"""Least bytes and operations of products and pulsed updates: the bounds of `pulsora bench`."""

from __future__ import annotations

from pulsora.bench.machine import Work

__all__ = ["cells", "merged_cells", "product", "pulses", "words"]

_COINCIDENCES = 0.025  # per cell and sample under sparse errors
# Cost of a multiply-add on tensor cores (as three of TF32), relative to one on a lane: by the data
# sheets 0.35 on an H100, 0.38 on an A100.
_TENSOR = 0.35
_BLOCK = 15.5 * 8  # ten rounds of Philox, which give four words
_SHARED = 0.3  # share of a block that the events of a cell, or of eight samples, have in common
_PAIR = 25.0  # Box-Muller: two normals from a word
_NORMAL = _BLOCK / 8 + _PAIR / 2
_COUNT = 6.0  # counts the coincidences of a cell in a sample
# The closed form of one sample far from the bounds: step (slope, rate) of the direction, mean,
# deviation, weight. Models that have not been counted take the simplest rule, a lower bound.
_RULE = {"SoftBounds": 20.0}
_SIMPLEST_RULE = 6.0
# With merged noise: the moments of a sample (step, power of the slope, mean, variance, extremes) of
# steps that are linear in the weight, and the draw of a cell.
_MOMENTS = {"SoftBounds": 24.0}
_DRAWN = 30.0
# A pulse of a model without a closed form, which takes one normal per pulse.
_PULSE = {"ExpStep": 26.0}
_PULSES = 2.5  # per cell and sample, dense errors
_SEVERAL = 0.56  # share of samples with more than one pulse
_CELL_BYTES = 16.0  # weight in and out, four half floats of the cell
_DENSE_SLOTS = 9.0  # of a sample's pulse train


def product(rows: float, columns: float, batch: float, *, on_gpu: bool = False) -> Work:
    """Work of the product of a float32 array and a mini-batch, to the accuracy of float32."""
    bytes_moved = 4.0 * (rows * columns + batch * (rows + columns))
    return Work(bytes_moved, rows * columns * batch * (_TENSOR if on_gpu else 1.0))


def pulses(model: str, rows: float, columns: float, batch: float, *, dense: bool) -> Work:
    """Work of a pulsed update: random words of both lines, and the pulses of all cells."""
    made = words(rows, columns, batch, dense=dense)
    return cells(model, rows, columns, batch, dense=dense) + made


def cells(model: str, rows: float, columns: float, batch: float, *, dense: bool) -> Work:
    """Work of the pulses of all cells, given the random words of both lines.

    Dense: a count, a normal and the rule per cell and sample. Sparse: for each coincidence, the
    later rounds of a block of random words, a pair of normals and half a rule.
    """
    rule = _RULE.get(model, _SIMPLEST_RULE)
    if not dense:
        per_sample = _COINCIDENCES * ((1.0 - _SHARED) * _BLOCK + _PAIR + rule / 2.0)
    elif model in _PULSE:
        needed = _SEVERAL * _BLOCK + _PULSES * (_PAIR / 2 + _PULSE[model])
        per_sample = _BLOCK / 8 + _COUNT + needed
    else:
        per_sample = _NORMAL + _COUNT + rule
    return Work(_CELL_BYTES * rows * columns, rows * columns * batch * per_sample)


def merged_cells(model: str, rows: float, columns: float, batch: float, *, dense: bool) -> Work:
    """Work of the pulses of all cells with noise_merge="batch": one normal per cell and update."""
    moments = _MOMENTS.get(model, 0.0)
    per_sample = _COUNT + moments if dense else _COINCIDENCES * moments / 2.0
    operations = batch * per_sample + _NORMAL + _DRAWN
    return Work(_CELL_BYTES * rows * columns, rows * columns * operations)


def words(rows: float, columns: float, batch: float, *, dense: bool) -> Work:
    """Work of the random words of both lines.

    Four samples share a block of random words per slot of a pulse train, whose bits are compared
    and packed (three operations).
    """
    lines, slots = rows + columns, batch * (_DENSE_SLOTS if dense else 1.0)
    return Work(4.0 * lines * batch, lines * slots * (_BLOCK / 4.0 + 3.0))
