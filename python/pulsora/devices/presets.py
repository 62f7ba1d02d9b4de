"""Named devices: models with published numbers.

Each takes any parameter of its model to change it: `EcRam(dw_min_std=0.0)`. All numbers but those
of `SixT1C` come from the presets of AIHWKit (Rasch et al., AICAS 2021), which fits published
measurements; each docstring names them.
"""

# Presets are named like device classes, whose instances they make.
# ruff: noqa: N802

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pulsora._internal.parameters import registered_devices
from pulsora.devices import models
from pulsora.devices.saved import is_file_name, load

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pulsora.devices.models import Device

__all__ = [
    "COARSE",
    "DEVICES",
    "ONE_SIDED",
    "PCM",
    "Capacitor",
    "EcRam",
    "EcRamMO",
    "GokmenVlasov",
    "Idealized",
    "ReRamArrayHfO2",
    "ReRamArrayOM",
    "ReRamES",
    "ReRamSB",
    "SixT1C",
]


def Idealized(**changes: Any) -> models.ConstantStep:
    """On average perfectly symmetric, with 10000 states.

    The device of Gokmen & Vlasov with 8 times more states and no spread of the asymmetry, as in
    Rasch, Gokmen & Haensch, IEEE Design & Test (2019), arXiv:1906.02698.
    """
    numbers = {
        "dw_min": 2e-4,
        "dw_min_dtod": 0.3,
        "dw_min_std": 0.3,
        "up_down_dtod": 0.0,
        "w_max": 1.0,
        "w_min": -1.0,
        "w_max_dtod": 0.3,
        "w_min_dtod": 0.3,
    }
    return models.ConstantStep(**(numbers | changes))


def GokmenVlasov(**changes: Any) -> models.ConstantStep:
    """The resistive processing unit with 1200 states, scaled to weights of +-1.

    Specification of Gokmen & Vlasov, Front. Neurosci. 10:333 (2016).
    """
    numbers = {
        "dw_min": 0.0016,
        "dw_min_dtod": 0.3,
        "dw_min_std": 0.3,
        "up_down_dtod": 0.01,
        "w_max": 1.0,
        "w_min": -1.0,
        "w_max_dtod": 0.3,
        "w_min_dtod": 0.3,
    }
    return models.ConstantStep(**(numbers | changes))


def EcRam(**changes: Any) -> models.LinearStep:
    """Lithium-based electrochemical memory; range shifted so that its symmetry point is at 0.

    Fit to Tang et al., IEDM (2018).
    """
    numbers = {
        "dw_min": 0.002,
        "dw_min_dtod": 0.1,
        "dw_min_std": 0.3,
        "up_down_dtod": 0.01,
        "w_max": 1.1724,
        "w_min": -0.8276,
        "gamma_up": 0.1153,
        "gamma_down": 0.5085,
    }
    return models.LinearStep(**(_ELECTROCHEMICAL | numbers | changes))


def EcRamMO(**changes: Any) -> models.LinearStep:
    """Metal-oxide electrochemical memory: fine steps, large cycle noise.

    Fit to Kim et al., IEDM (2019).
    """
    numbers = {
        "dw_min": 2.8214e-4,
        "dw_min_dtod": 0.1,
        "dw_min_std": 2.0,
        "up_down_dtod": 0.01,
        "w_max": 1.1714,
        "w_min": -0.8286,
        "gamma_up": 0.4152,
        "gamma_down": 0.7342,
    }
    return models.LinearStep(**(_ELECTROCHEMICAL | numbers | changes))


_ELECTROCHEMICAL: dict[str, Any] = {
    "mult_noise": True,
    "w_max_dtod": 0.05,
    "w_min_dtod": 0.05,
    "gamma_up_dtod": 0.05,
    "gamma_down_dtod": 0.05,
    "mean_bound_reference": True,
}


def Capacitor(**changes: Any) -> models.LinearStep:
    """A capacitor cell: nearly linear, with leakage.

    Fit to Li et al., VLSI Technology (2018). `lifetime` counts mini-batches; how long one takes
    on a chip is an assumption that the experiment has to make.
    """
    numbers = {
        "dw_min": 0.005,
        "dw_min_dtod": 0.1,
        "dw_min_std": 0.3,
        "up_down_dtod": 0.06,
        "w_max": 1.0,
        "w_min": -1.0,
        "w_max_dtod": 0.07,
        "w_min_dtod": 0.07,
        "gamma_up": 0.05,
        "gamma_down": 0.05,
        "gamma_up_dtod": 0.01,
        "gamma_down_dtod": 0.01,
        "mult_noise": False,
        "mean_bound_reference": True,
        "lifetime": 1e6,
        "lifetime_dtod": 0.3,
    }
    return models.LinearStep(**(numbers | changes))


def SixT1C(**changes: Any) -> models.LinearStep:
    """A capacitor cell of six transistors, for the fast arrays of an adapter.

    Fit (R^2 = 0.999) of the linear-step model to a measured cell, about 1000 pulses from bound to
    bound; up steps grow with the weight. The fit gives no spreads: 10 % between devices and 30 %
    between cycles are assumed. The cell leaks with a time constant of 46505 s: set `lifetime` to
    that over the duration of a mini-batch, or for reads after training a `retention` to
    `noise_models.Exponential()` in the configuration.
    """
    numbers = {
        "dw_min": 0.001981,
        "dw_min_dtod": 0.1,
        "dw_min_std": 0.3,
        "up_down_dtod": 0.0,
        "w_max": 1.0,
        "w_min": -1.0,
        "w_max_dtod": 0.1,
        "w_min_dtod": 0.1,
        "gamma_up": -0.1678,
        "gamma_down": 0.1410,
        "gamma_up_dtod": 0.0,
        "gamma_down_dtod": 0.0,
        "allow_increasing": True,
        "mean_bound_reference": True,
        "write_noise_std": 0.0182,
    }
    return models.LinearStep(**(numbers | changes))


def ReRamES(**changes: Any) -> models.ExpStep:
    """Filamentary resistive memory, as exponential steps; asymmetric and very noisy.

    Fit to Gong et al., Nat. Commun. 9:2102 (2018).
    """
    numbers = {
        "dw_min": 0.00135,
        "dw_min_dtod": 0.2,
        "dw_min_std": 5.0,
        "up_down": 0.259359,
        "up_down_dtod": 0.05,
        "w_max": 1.0,
        "w_min": -1.0,
        "w_max_dtod": 0.3,
        "w_min_dtod": 0.3,
        "a_up": -1.18445,
        "a_down": -0.081404,
        "gamma_up": 5.0,
        "gamma_down": 5.0,
        "a": -0.5,
        "b": -0.5,
        "write_noise_std": 75.0,
    }
    return models.ExpStep(**(numbers | changes))


def ReRamSB(**changes: Any) -> models.SoftBoundsReference:
    """Filamentary resistive memory, as soft bounds; a loose fit, calibrated to its symmetry point.

    Fit to Gong et al., Nat. Commun. 9:2102 (2018).
    """
    numbers = {
        "dw_min": 0.002,
        "dw_min_dtod": 0.3,
        "dw_min_std": 3.75,
        "up_down_dtod": 0.01,
        "w_max": 1.25,
        "w_min": -0.75,
        "w_max_dtod": 0.3 / 1.25,
        "w_min_dtod": 0.3 / 0.75,
        "mult_noise": False,
        "write_noise_std": 56.0,
    }
    return models.SoftBoundsReference(**(numbers | changes))


def ReRamArrayOM(**changes: Any) -> models.SoftBoundsReference:
    """Array of 14 nm ReRAM, optimised material: about 20 states, steps that vary by a factor of 2.

    Fit to Gong et al., IEDM (2022). Cells are read against their symmetric points, up to an error
    of 0.05. Of the measured cells 13.5 % are stuck, which `corrupt_devices_prob` = 0.135 adds.
    """
    numbers = {
        "dw_min": 0.0949,
        "dw_min_dtod": 0.7829,
        "dw_min_std": 0.4158,
        "w_max_dtod": 0.3499,
        "w_min_dtod": 0.5695,
        "write_noise_std": 1.4113,
    }
    return models.SoftBoundsReference(**(_RERAM_ARRAY | numbers | changes))


def ReRamArrayHfO2(**changes: Any) -> models.SoftBoundsReference:
    """Array of 14 nm ReRAM, hafnium dioxide: about 4 states, steps that vary by a factor of 2.

    Fit to Gong et al., IEDM (2022). Cells are read against their symmetric points, up to an error
    of 0.05. Of the measured cells 10 % are stuck, which `corrupt_devices_prob` = 0.1 adds.
    """
    numbers = {
        "dw_min": 0.4622,
        "dw_min_dtod": 0.7125,
        "dw_min_std": 0.2174,
        "w_max_dtod": 0.4295,
        "w_min_dtod": 0.599,
        "write_noise_std": 0.5841,
    }
    return models.SoftBoundsReference(**(_RERAM_ARRAY | numbers | changes))


_RERAM_ARRAY: dict[str, Any] = {
    "dw_min_dtod_log_normal": True,
    "up_down_dtod": 0.01,
    "w_max": 1.0,
    "w_min": -1.0,
    "mult_noise": False,
    "corrupt_devices_range": 0.01,
    "subtract_symmetry_point": True,
    "reference_std": 0.05,
}


def PCM(**changes: Any) -> models.ExpStep:
    """Phase-change memory, as exponential steps; it can only grow, in pairs (`OneSidedConfig`).

    Fit to Nandakumar et al., Front. Neurosci. 14:406 (2020).
    """
    numbers = {
        "dw_min": 0.01,
        "dw_min_dtod": 0.2,
        "dw_min_std": 0.6,
        "dw_min_std_add": 0.042,
        "dw_min_std_slope": 0.108,
        "up_down_dtod": 0.05,
        "w_max": 2.0,
        "w_min": 0.0,
        "w_max_dtod": 0.1,
        "w_min_dtod": 0.0,
        "a": -1.0,
        "b": 0.0,
        "gamma_up": 2.5,
        "gamma_down": 2.5,
        "a_up": -27.235,
        "a_down": -2.235,
        "reset": 0.01,
        "reset_dtod": 0.02,
    }
    return models.ExpStep(**(numbers | changes))


DEVICES: dict[str, Callable[..., Device]] = {
    preset.__name__: preset
    for preset in (
        Idealized,
        GokmenVlasov,
        EcRam,
        EcRamMO,
        Capacitor,
        SixT1C,
        ReRamES,
        ReRamSB,
    )
}
"""The device presets by name, of cells that step both ways."""

ONE_SIDED: dict[str, Callable[..., Device]] = {"PCM": PCM}
"""The device presets by name, of cells that can only grow, which serve in pairs."""

COARSE: dict[str, Callable[..., Device]] = {
    preset.__name__: preset for preset in (ReRamArrayOM, ReRamArrayHfO2)
}
"""The device presets by name, of cells with few states, which are too coarse for LRTT."""


def names() -> list[str]:
    """The names of the device presets for all algorithms, without ONE_SIDED and COARSE."""
    return list(DEVICES)


def hint(name: str) -> str:
    """The end of a message about an unknown device: the names that may be meant, and all names."""
    classes = registered_devices()
    known = {one.lower(): one for one in (*DEVICES, *ONE_SIDED, *COARSE, *classes)}
    near = [one for low, one in known.items() if name and low.startswith(name.lower())]
    near = near or [known[low] for low in difflib.get_close_matches(name.lower(), known, n=1)]
    meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    presets = ", ".join([*DEVICES, *ONE_SIDED, *COARSE])
    return f"; {meant}presets: {presets}; models: {', '.join(classes)}"


def device(name: str | os.PathLike[str] | Device, **changes: Any) -> Device:
    """The device of a name, with other values of some parameters.

    Args:
        name: A device preset or a model, in which the case of letters is free; a file of
            `devices.save()`, which ends in .toml or .json; or a device, which is taken as it is.
        changes: Parameters of the device's model.

    Raises:
        ValueError: if there is no such preset or model, or the file is no TOML or JSON.
        ConfigError: for an unknown parameter or a bad value.
        OSError: if the file cannot be read.
    """
    if isinstance(name, models.Device):
        return name.replace(**changes)
    if is_file_name(name):
        return load(name).replace(**changes)
    known: dict[str, Callable[..., Any]] = DEVICES | ONE_SIDED | COARSE | registered_devices()
    for one, make in known.items():
        if one.lower() == str(name).lower():
            made: Device = make(**changes)
            return made
    raise ValueError(
        f"there is no device preset or model '{name}', and a file of a device ends in .toml or "
        f".json{hint(str(name))}"
    )
