"""Noise models of programmed arrays: one class for each model of the core, and models of your own.

`noise_models.PCMLike(g_max=25.0)` describes how a device that was programmed to a conductance
differs from it, how it drifts, and how its reads fluctuate. It goes into
`InferenceConfig(noise_model=...)`. Conductances are in uS, times in s since the end of programming.
`noise_models.from_table(...)` makes a model of a table of measured numbers over the conductance,
`noise_models.from_source("my_memory.h")` a class of a model of your own.
"""

from typing import TYPE_CHECKING

from pulsora._internal.parameters import suggestion
from pulsora.noise_models import models, source
from pulsora.noise_models.models import *  # noqa: F403 - the core names its models
from pulsora.noise_models.source import *  # noqa: F403
from pulsora.noise_models.tables import from_table

__all__ = ["from_table"]
__all__ += models.__all__
__all__ += source.__all__

if not TYPE_CHECKING:  # a type checker knows the names, and reports others itself

    def __getattr__(name: str) -> object:
        hint = suggestion(name, models.MODELS)
        raise AttributeError(f"pulsora.noise_models has no noise model {name!r}{hint}")
