"""Features of histories of weights: the public name of what is in `gru/features.py`."""

from pulsora.forecast.gru.features import AHEAD, FEATURES, LEAST, MOST, basis, features

__all__ = ["AHEAD", "FEATURES", "LEAST", "MOST", "basis", "features"]
