"""Forecasts of a training: its loss curve, and its weights.

`forecast_loss(losses, ahead)` continues a loss curve as a power law; its intervals come from the
errors of its own earlier forecasts. `HybridTrainer` trains a model of torch, digital or analog, in
which predicted moves of the weights, and an average at the end, replace some backward passes; it
needs torch. docs/explain/forecasts.md says when that helps, and when it does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pulsora.forecast.gru.ensemble import Ensemble
from pulsora.forecast.gru.rollout import Rollout, rollout
from pulsora.forecast.gru.spread import rollout_on
from pulsora.forecast.kernels import ResidualMemory, TruncatedSVD, encode, truncated_svd
from pulsora.forecast.loss_curve.forecast import LossForecast, Reach, forecast_loss

if TYPE_CHECKING:
    from pulsora.forecast.gru.forecaster import GRUForecaster
    from pulsora.forecast.report import Report
    from pulsora.forecast.trainer import HybridTrainer

__all__ = [
    "Ensemble",
    "GRUForecaster",
    "HybridTrainer",
    "LossForecast",
    "Reach",
    "Report",
    "ResidualMemory",
    "Rollout",
    "TruncatedSVD",
    "encode",
    "forecast_loss",
    "rollout",
    "rollout_on",
    "truncated_svd",
]

# Names that need torch, and their modules.
_NEEDS_TORCH = {
    "GRUForecaster": "pulsora.forecast.gru.forecaster",
    "HybridTrainer": "pulsora.forecast.trainer",
    "Report": "pulsora.forecast.report",
}


def __getattr__(name: str) -> object:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module 'pulsora.forecast' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_NEEDS_TORCH[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"pulsora.forecast.{name} needs torch; install it with pip install 'pulsora[torch]'"
        ) from error


def __dir__() -> list[str]:
    return __all__
