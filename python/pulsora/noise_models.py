"""Noise models of programmed arrays: one class for each model of the core.

`noise_models.PCMLike(g_max=25.0)` describes how a device that was programmed to a conductance
differs from it, how it drifts, and how its reads fluctuate. It goes into
`InferenceConfig(noise_model=...)`. Conductances are in uS, times in s since the end of programming.
`PowerLaw` and `Shift` take tables of measured devices.
"""

from pulsora import _core
from pulsora._internal.models import Model
from pulsora._internal.parameters import parameter_class, register_noise_model


class NoiseModel(Model):
    """A noise model with its parameters."""

    _kind = "noise_model"


MODELS: tuple[str, ...] = tuple(_core.schema()["noise_models"])
"""Names of the noise models, in the order of the core."""

__all__ = ["MODELS", "NoiseModel"]
__all__ += list(MODELS)

for _name, _entry in _core.schema()["noise_models"].items():
    globals()[_name] = parameter_class(_name, _entry["fields"], _entry["doc"], NoiseModel, __name__)
    register_noise_model(globals()[_name])
