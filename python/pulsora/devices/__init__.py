"""Device models: one class per model of the core, and named devices of the literature.

`devices.SoftBounds(dw_min=2e-4)` describes the cells of an array; the parameters of each model are in its docstring
and in docs/devices.md. Presets such as `devices.EcRam()` return one of these models with published values.
"""

from typing import TYPE_CHECKING

from pulsora import _core
from pulsora.devices import models, presets
from pulsora.devices.models import *  # noqa: F403 - the core names its models
from pulsora.devices.presets import *  # noqa: F403

__all__ = []
__all__ += models.__all__
__all__ += presets.__all__

if not TYPE_CHECKING:  # a type checker knows the names, and reports others itself

    def __getattr__(name: str) -> object:
        hint = _core.suggest(name, [*models.MODELS, *presets.DEVICES])
        raise AttributeError(f"pulsora.devices has no device {name!r}{hint}")
