"""Training a small network: what `pulsora.training` has in `experiment` and `run`."""

from pulsora.training import experiment, run
from pulsora.training.experiment import *  # noqa: F403
from pulsora.training.run import *  # noqa: F403

__all__ = []
__all__ += experiment.__all__
__all__ += run.__all__
