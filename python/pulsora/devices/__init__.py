"""Device models: one class per model of the core, and named devices of the literature.

`devices.SoftBounds(dw_min=2e-4)` describes the cells of an array; the parameters of each model are
in its docstring and in docs/reference/devices.md. Presets such as `devices.EcRam()` return one of
these models with published values, `devices.from_table(...)` one from measured steps.
`devices.save(device, "device.toml")` and `devices.load` write and read devices.
`devices.from_source("my_step.h")` makes a class of a model of your own, and `devices.check()` shows
that the model keeps the contract of all models.
"""

from typing import TYPE_CHECKING

from pulsora.devices import contract, models, presets, source
from pulsora.devices.contract import *  # noqa: F403
from pulsora.devices.models import *  # noqa: F403 - the core names its models
from pulsora.devices.presets import *  # noqa: F403
from pulsora.devices.saved import load, save
from pulsora.devices.source import *  # noqa: F403
from pulsora.devices.tables import from_table

__all__ = ["from_table", "load", "save"]
__all__ += models.__all__
__all__ += presets.__all__
__all__ += source.__all__
__all__ += contract.__all__

if not TYPE_CHECKING:  # a type checker knows the names, and reports others itself

    def __getattr__(name: str) -> object:
        raise AttributeError(f"pulsora.devices has no device {name!r}{presets.hint(name)}")
