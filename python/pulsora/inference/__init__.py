"""Inference with programmed arrays: programming, drift, and what is left of a model.

`program(model)` writes the weights of all layers of InferenceConfig into arrays, `drift(model,
3600.0)` lets their reads see the arrays an hour later, and `unprogram(model)` returns to the
weights. `calibrate(model, batches)` gives the DACs fixed ranges, `calibrate_outputs` the ADCs.
`evaluate(model, batches)` reports a metric over times, programmings and chips, `sweep` over the
values of a setting, and `explain` what limits each layer. `readapt` trains adapters on a chip as it
ages; `save_conductances` and `load_conductances` go to a chip and back. docs/howto/inference.md
shows a whole run.
"""

from pulsora._internal.times import seconds
from pulsora.inference.adapters import Readaptation, readapt, select_age
from pulsora.inference.calibration import calibrate, calibrate_outputs
from pulsora.inference.conductances import load_conductances, save_conductances
from pulsora.inference.correction import adapt_batch_norm, fit_affine
from pulsora.inference.evaluation import evaluate
from pulsora.inference.explanation import ErrorReport, ErrorSource, explain
from pulsora.inference.programming import drift, program, programmed_tiles, unprogram
from pulsora.inference.report import InferenceReport, plot
from pulsora.inference.sweeping import Sweep, sweep, with_settings

__all__ = [
    "ErrorReport",
    "ErrorSource",
    "InferenceReport",
    "Readaptation",
    "Sweep",
    "adapt_batch_norm",
    "calibrate",
    "calibrate_outputs",
    "drift",
    "evaluate",
    "explain",
    "fit_affine",
    "load_conductances",
    "plot",
    "program",
    "programmed_tiles",
    "readapt",
    "save_conductances",
    "seconds",
    "select_age",
    "sweep",
    "unprogram",
    "with_settings",
]
