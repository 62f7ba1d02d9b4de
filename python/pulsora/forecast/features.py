"""Features of weight histories: the public name of `gru/features.py`."""

from pulsora.forecast.gru.features import AHEAD, FEATURES, LEAST, MOST, basis, features

__all__ = ["AHEAD", "FEATURES", "LEAST", "MOST", "basis", "features"]
