"""Small image data sets for experiments: what `pulsora.training.data` has."""

from pulsora.training import data
from pulsora.training.data import *  # noqa: F403

__all__ = []
__all__ += data.__all__
