"""Noise models: one class for each model of the core, made from its table of parameters."""

from pulsora import _core
from pulsora._internal.models import Model
from pulsora._internal.parameters import parameter_class, register_model


class NoiseModel(Model):
    """A noise model with its parameters."""

    _kind = "noise_model"


MODELS: tuple[str, ...] = tuple(_core.schema()["noise_models"])
"""Names of the noise models, in the order of the core."""

__all__ = ["MODELS", "NoiseModel"]
__all__ += list(MODELS)

for _name, _entry in _core.schema()["noise_models"].items():
    # Classes are used, and pickled, as members of the package.
    globals()[_name] = parameter_class(
        _name, _entry["fields"], _entry["doc"], NoiseModel, "pulsora.noise_models"
    )
    register_model("noise_model", globals()[_name])
