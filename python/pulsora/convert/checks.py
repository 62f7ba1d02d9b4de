"""Checks of conversions: a layer and its twin give equal outputs on a few random inputs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from pulsora.config import VectorConfig
from pulsora.convert.layers import is_on_meta
from pulsora.convert.outputs import (
    distance,
    holding,
    is_readable,
    like,
    numbers,
    perfect_reads,
    random_inputs,
    share,
)
from pulsora.convert.report import is_conv1d
from pulsora.nn import AnalogModule, AnalogRNNBase

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["require_digital_outputs", "require_outputs", "warn_of_outputs"]

_RECURRENT = 4.0  # steps and gates add up rounding
_MUCH = 0.1


class _Change(NamedTuple):
    """Relative changes of outputs.

    Attributes:
        computed: What is left where the layer has the weights that the cells hold.
        written: What the weights in the cells change.
        whole: What both change.
        few: Whether this is much, and due to at most 1 % of the weights.
    """

    computed: float
    written: float
    whole: float
    few: bool


def require_outputs(name: str, layer: nn.Module, twin: nn.Module) -> None:
    """Raises ValueError unless a layer of torch computes what its analog twin computes.

    The twin is read perfectly, and the layer has the weights that the cells hold. A warning names a
    layer whose outputs change much because of a few weights beyond the bounds of their cells.
    """
    found = _change(layer, twin)
    if found is None:
        return
    if not found.computed <= _rounding(layer):
        raise ValueError(
            f"layer '{name}': on random inputs, its outputs would {_told(found.computed)}, "
            f"because this {type(layer).__name__} computes something else with its weights than "
            f"its twin; leave the layer digital by exclude = ['{name}'], or give a function in "
            "conversions"
        )
    if found.few:
        warnings.warn(
            f"layer '{name}': on random inputs, its outputs {_told(found.written)}, "
            "because a few weights lie outside the bounds of their cells; give a weight_scaling, "
            "such as 'abs_max', or a device with a larger w_max",
            stacklevel=4,
        )
    elif found.written > _MUCH and isinstance(getattr(twin, "config", None), VectorConfig):
        warnings.warn(
            f"layer '{name}': on random inputs, its outputs {_told(found.written)}, because each "
            "array gets the weights as they are, and reads see their sum by gamma_vec; give "
            "factors that add up to 1 over the arrays that are written",
            stacklevel=4,
        )


def warn_of_outputs(name: str, layer: nn.Module, twin: nn.Module) -> None:
    """Warns if what a function of the user's made of a layer computes something else."""
    try:
        found = _change(layer, twin)
    except Exception:  # noqa: BLE001 - layers of any kind, which may take other inputs
        return
    if found is not None and not min(found.computed, found.whole) <= _rounding(layer):
        warnings.warn(
            f"layer '{name}': on random inputs, its outputs {_told(found.whole)} by what "
            f"conversions[{type(layer).__name__}] made of it",
            stacklevel=4,
        )


@torch.no_grad()
def require_digital_outputs(name: str, layer: nn.Module, twin: nn.Module) -> None:
    """Raises ValueError unless a layer of torch computes what perfect reads of `layer` give."""
    x = random_inputs(layer)
    if x is None:
        return
    x = like(layer, x)
    with perfect_reads(layer, twin):
        before, after = numbers(layer.forward(x)), numbers(twin.forward(x))
    error, size = distance(before, after), float(before.norm())
    if not error <= _rounding(twin) * size:
        raise ValueError(
            f"layer '{name}' ({type(layer).__name__}): on random inputs, its outputs would "
            f"{_told(_relative(error, size))}, because it computes something else than "
            f"{type(twin).__name__} with its weights: a hook or another class on one of its parts, "
            "an attribute or method that was replaced, or tiles shared with a layer of another "
            "out_scaling; put a layer of torch that you make in its place first"
        )


@torch.no_grad()
def _change(layer: nn.Module, twin: nn.Module) -> _Change | None:
    """Compares a layer of torch and its analog twin; None where there is no way to."""
    x = random_inputs(layer)
    if x is None or not is_readable(twin) or is_on_meta(layer):
        return None
    held = _held(layer, twin)
    mine, its = like(layer, x), like(twin, x)
    with torch.random.fork_rng(devices=[]), perfect_reads(layer, twin):
        try:
            plain = numbers(layer.forward(mine))
        except Exception:  # noqa: BLE001 - torch has no kernel, or the layer takes other inputs
            return None
        if not plain.isfinite().all():
            return None
        after = numbers(twin.forward(its))
        with holding(layer, held):
            written = numbers(layer.forward(mine))
    size = float(plain.norm())
    change, whole = (_relative(distance(plain, each), size) for each in (written, after))
    few = change > _MUCH and all(
        _is_mostly(values, layer.get_parameter(name)) for name, values in held.items()
    )
    computed = _relative(distance(written, after), float(written.norm()))
    return _Change(computed, change, whole, few)


def _is_mostly(values: Tensor, wanted: Tensor) -> bool:
    """Whether at most 1 % of the weights in cells differ from the weights that were wanted."""
    wanted = wanted.detach().float().cpu().flatten()
    off = (values.detach().float().cpu().flatten() - wanted).abs()
    return int((off > 1e-3 * wanted.abs().amax()).sum()) <= 0.01 * off.numel()


def _held(layer: nn.Module, twin: nn.Module) -> dict[str, Tensor]:
    """Returns the weights in the cells of a twin, by the names of the parameters of the layer."""
    if isinstance(twin, AnalogRNNBase):
        held = twin.get_weights()
    elif isinstance(twin, AnalogModule):
        weight, bias = twin.get_weights()
        held = {"weight": weight.T if is_conv1d(layer) else weight}
        if bias is not None:
            held["bias"] = bias
    else:
        return {}
    own = dict(layer.named_parameters(recurse=False))
    fits = all(name in own and own[name].numel() == held[name].numel() for name in held)
    return held if fits else {}


def _rounding(layer: nn.Module) -> float:
    """Returns the relative change of outputs that rounding may make."""
    dtype = next((p.dtype for p in layer.parameters() if p.is_floating_point()), torch.float32)
    return share(dtype) * (_RECURRENT if isinstance(layer, nn.RNNBase) else 1.0)


def _relative(error: float, size: float) -> float:
    return error / size if size > 0.0 else error


def _told(change: float) -> str:
    is_size = change < float("inf")
    return f"change by {change:.2g} of their size" if is_size else "change their shape"
