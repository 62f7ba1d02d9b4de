"""Training a network: what `pulsora.training` has in `experiment`, `models` and `run`."""

from pulsora.training import experiment, models, run
from pulsora.training.experiment import *  # noqa: F403
from pulsora.training.models import *  # noqa: F403
from pulsora.training.run import *  # noqa: F403

__all__ = []
__all__ += experiment.__all__
__all__ += models.__all__
__all__ += run.__all__
