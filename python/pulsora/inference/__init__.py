"""Inference with programmed arrays: programming, drift, and what is left of a model.

`program(model)` writes the weights of all layers of InferenceConfig into arrays, `drift(model,
3600.0)` lets their reads see the arrays an hour later, and `unprogram(model)` returns to the
weights. `calibrate(model, batches)` gives the DACs fixed ranges. `evaluate(model,
batches)` reports a metric over times and programmings.
docs/howto/inference.md shows a whole run.
"""

from pulsora.inference.calibration import calibrate
from pulsora.inference.evaluation import evaluate
from pulsora.inference.programming import drift, program, programmed_tiles, unprogram
from pulsora.inference.report import InferenceReport, plot
from pulsora.inference.times import seconds

__all__ = [
    "InferenceReport",
    "calibrate",
    "drift",
    "evaluate",
    "plot",
    "program",
    "programmed_tiles",
    "seconds",
    "unprogram",
]
