"""Pulsora: training neural networks on simulated analog crossbar arrays.

A tile without torch:

    import pulsora as pl
    config = pl.LRTTConfig(rank=16, visible=pl.devices.EcRam())
    tile = pl.Tile(256, 784, config, seed=7)
    y = tile.forward(x)
    dx = tile.backward(d)
    tile.update(x, d, lr=0.1)

The same tile as a torch layer, `pl.nn.AnalogLinear(784, 256, config=config)`, is trained by
`pl.optim.AnalogSGD`; `pl.convert_to_analog(model, config)` converts all layers of a model. Both
need torch, which is imported on first use. `pl.plot.plot_device(config.visible)` draws a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pulsora._internal import command_start

try:
    command_start.begin()  # before the imports below, which take their time
    from pulsora import _core  # noqa: F401 - before all others, which import it too
except ImportError as error:
    if "libcublas" not in str(error):
        raise
    raise ImportError(
        f"this pulsora has the CUDA backend, and cuBLAS was not found ({error}); install it with "
        "pip install 'nvidia-cublas>=13,<14' beside pulsora, or install a pulsora without CUDA"
    ) from error

from pulsora import (
    accounting,
    config,
    devices,
    fit,
    forecast,
    noise_models,
    presets,
    prototype,
    runtime,
    state,
)
from pulsora._core import (
    CompileError,
    CompilerNotFound,
    ConfigError,
    DeviceError,
    InputError,
    OutOfMemoryError,
    StateError,
    __version__,
    cuda_device_count,
    scratch_limit,
    scratch_memory,
)
from pulsora.accounting import ledger
from pulsora.config import *  # noqa: F403 - a class for each kind of tile
from pulsora.graphs.step_graph import StepGraph
from pulsora.state import State
from pulsora.tiki_taka import AGAD, ChoppedTTv2, TikiTaka, TTv2
from pulsora.tile import Explanation, Tile

if TYPE_CHECKING:
    from pulsora import distributed, inference, lowrank, nn, optim, peft, plot, training_step
    from pulsora.convert import (
        average,
        conversion_report,
        convert_to_analog,
        convert_to_digital,
        load,
        load_weights,
        merge,
        model_memory,
        reseed,
        save,
        with_io,
    )
    from pulsora.inference import drift, program
    from pulsora.verification import selftest

__all__ = [
    "AGAD",
    "ChoppedTTv2",
    "CompileError",
    "CompilerNotFound",
    "ConfigError",
    "DeviceError",
    "Explanation",
    "InputError",
    "OutOfMemoryError",
    "State",
    "StateError",
    "StepGraph",
    "TTv2",
    "TikiTaka",
    "Tile",
    "__version__",
    "accounting",
    "average",
    "config",
    "conversion_report",
    "convert_to_analog",
    "convert_to_digital",
    "cuda_device_count",
    "devices",
    "distributed",
    "drift",
    "fit",
    "forecast",
    "inference",
    "ledger",
    "load",
    "load_weights",
    "lowrank",
    "merge",
    "model_memory",
    "nn",
    "noise_models",
    "optim",
    "peft",
    "plot",
    "presets",
    "program",
    "prototype",
    "reseed",
    "runtime",
    "save",
    "scratch_limit",
    "scratch_memory",
    "selftest",
    "state",
    "training_step",
    "with_io",
]
__all__ += config.__all__

# Names whose modules are imported on first use: they need matplotlib (plot) or torch.
_ON_FIRST_USE = {
    "distributed": "pulsora.distributed",
    "inference": "pulsora.inference",
    "lowrank": "pulsora.lowrank",
    "nn": "pulsora.nn",
    "optim": "pulsora.optim",
    "peft": "pulsora.peft",
    "plot": "pulsora.plot",
    "training_step": "pulsora.training_step",
    "average": "pulsora.convert",
    "conversion_report": "pulsora.convert",
    "convert_to_analog": "pulsora.convert",
    "convert_to_digital": "pulsora.convert",
    "drift": "pulsora.inference",
    "load": "pulsora.convert",
    "load_weights": "pulsora.convert",
    "merge": "pulsora.convert",
    "model_memory": "pulsora.convert",
    "program": "pulsora.inference",
    "reseed": "pulsora.convert",
    "save": "pulsora.convert",
    "selftest": "pulsora.verification",
    "with_io": "pulsora.convert",
}


def __getattr__(name: str) -> object:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'pulsora' has no attribute {name!r}")
    try:
        module = importlib.import_module(_ON_FIRST_USE[name])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"pulsora.{name} needs torch; install it with pip install 'pulsora[torch]'"
        ) from error
    return module if module.__name__ == f"pulsora.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
