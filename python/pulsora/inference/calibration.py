"""Fixed ranges of the converters of a model, from its inputs."""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from pulsora._internal.batches import inputs_of
from pulsora._internal.checks import require_positive_real, require_share
from pulsora._internal.modules import require_module
from pulsora.inference.bin_counts import (
    BINS,
    INFINITE,
    BinCounts,
    counted,
    range_of,
    root_mean_square,
)
from pulsora.inference.exact_reads import exact_reads, layers_by_name
from pulsora.inference.folding import called, reads_slices
from pulsora.inference.processes import of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import torch.distributed as dist
    from torch import Tensor, nn

    from pulsora.nn.base import AnalogModule
    from pulsora.tile.programming import Programming

__all__ = ["calibrate", "calibrate_outputs"]

_RANGES = 41  # that "output_error" tries
_Counts = TypeVar("_Counts", torch.Tensor, BinCounts)
_MOST_GAIN = 1e6  # of an ADC, relative to the smallest gain of its layer


@torch.no_grad()
def calibrate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    rule: Literal["quantile", "max", "sigma", "output_error"] = "quantile",
    quantile: float = 0.9999,
    sigmas: float = 3.0,
    group: dist.ProcessGroup | None = None,
) -> dict[str, float]:
    """Gives each layer of InferenceConfig one fixed input range, in place, from sample inputs.

    Inputs x of a layer are then read as c q(clip(x / c, -1, 1)) with the range c. A layer whose
    configuration says `forward.noise_management` = "input_range" has c as its parameter
    `input_range`, which training may change (`requires_grad_(False)` keeps it). In other layers,
    tiles get `forward.noise_management` = "constant" and `nm_thres` = c. Chips without a digital
    maximum of each sample work so.

    The model runs with exact products meanwhile. Ranges are exact to 2^-10 of their value: values
    are counted by the upper bits of their magnitude, so that the result does not depend on how
    samples are split over batches.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batches: Inputs of the model; of pairs (input, target) the input. A tensor is one batch.
        rule: "quantile", the smallest range that holds this share of a layer's inputs; "max", all;
            "sigma", so many root mean squares of the inputs, counted by the same bins;
            "output_error", the range whose clipping and rounding change the exact outputs W x least
            in the mean square, of 41 from the largest input down to a 32nd of it, each 2^(1/8) of
            the next. The last rule goes through the batches twice. Its sums of squares are in
            double precision, so that the split may decide between ranges that are equally good.
        quantile: Share of the inputs within the range, above 0 and at most 1.
        sigmas: Factor of "sigma".
        group: Processes whose counts are added, each with batches of its own, such as
            `torch.distributed.group.WORLD`; all of them must call. None: this process alone.

    Returns:
        The range of each layer by its name in `model.named_modules()`.

    Raises:
        RuntimeError: If another process of the group failed; nothing has changed then.
        TypeError: If batches are none.
        ValueError: If the model is in training mode or has no such layer, for a bad setting, and if
            a layer gets no input but 0, inputs that are not finite, or reads perfectly; nothing has
            changed then.
    """
    if rule not in ("quantile", "max", "sigma", "output_error"):
        raise ValueError(f"rule = {rule!r}: write 'quantile', 'max', 'sigma' or 'output_error'")
    require_positive_real("sigmas", sigmas)
    layers: dict[str, AnalogModule] = {}
    inputs: Iterable[Any] = ()

    def count_inputs() -> dict[str, Tensor]:
        nonlocal inputs
        layers.update(_layers(model, quantile))
        inputs = inputs_of(batches)
        if rule == "output_error":
            inputs = list(inputs)
        counts = {name: torch.zeros(BINS, dtype=torch.int64) for name in layers}
        _run(model, layers, inputs, lambda name, x: counts[name].add_(counted(x)))
        return counts

    ranges = {}
    for name, count in _added(of_all(group, count_inputs)).items():
        _require_inputs(name, count)
        if rule == "sigma":
            ranges[name] = sigmas * root_mean_square(count)
        else:
            ranges[name] = range_of(count, quantile if rule == "quantile" else 1.0)
    if rule == "output_error":
        errors = of_all(group, lambda: _output_errors(model, layers, inputs, ranges))
        best = {name: int(sums.argmin()) for name, sums in _added(errors).items()}
        ranges = {name: _limits(most)[best[name]] for name, most in ranges.items()}
    for name, layer in layers.items():
        _set_range(layer, ranges[name])
    return ranges


@torch.no_grad()
def calibrate_outputs(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    quantile: float = 0.9999,
    per: Literal["layer", "tile", "slice", "output"] = "layer",
    group: dist.ProcessGroup | None = None,
) -> dict[str, float]:
    """Fits the ranges of the ADCs of each layer of InferenceConfig to its outputs, in place.

    The sums that the ADCs of a layer's tiles would convert are counted as `calibrate` counts
    inputs. `forward.out_bound` becomes the smallest range that holds the given share of them, and
    the steps of the ADC (`out_res`, a share of the range) become finer or coarser with it: a gain
    before a fixed converter. Bound management is switched off, because samples beyond the range are
    meant to be clipped. Call `calibrate` first, if inputs have fixed ranges: the sums are in units
    of the scaled inputs.

    With another `per`, each part of a layer has a range that holds this share of its own sums.
    `out_bound` becomes the largest of these, and each ADC gets a gain of its own
    (`tile.programming.adc_gains`), `out_bound` over the range of its part; 10^6 at most, and 1
    where all sums are 0.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batches: Inputs of the model; of pairs (input, target) the input. A tensor is one batch.
        quantile: Share of the sums within the range, above 0 and at most 1.
        per: The ADCs that share a range: of a "layer", a "tile", a "slice" of a tile whose slices
            have converters apart, or an "output" of such a slice or of a tile.
        group: Processes whose counts are added, as of `calibrate`.

    Returns:
        The range of each layer, `out_bound`, by its name in `model.named_modules()`.

    Raises:
        ValueError: As of `calibrate`, and for a bad `per`; nothing has changed then.
        RuntimeError: If another process of the group failed; nothing has changed then.
        StateError: If a layer lacks its input range, or its weights changed after they were
            programmed; nothing has changed then.
    """
    layers: dict[str, AnalogModule] = {}
    groups: dict[str, list[Tensor]] = {}

    def count_sums() -> dict[str, BinCounts]:
        layers.update(_layers(model, quantile, is_ranged=True))
        _require_parts(per, layers)
        groups.update({name: _groups_of(layer, per) for name, layer in layers.items()})
        counts = {name: BinCounts() for name in layers}

        def seen(name: str, x: Tensor) -> None:
            sums = _sums(layers[name], x)
            for numbers, part in zip(groups[name], sums, strict=True):
                counts[name].add(part, numbers.to(part.device))

        _run(model, layers, inputs_of(batches), seen)
        return counts

    counts = _added(of_all(group, count_sums))
    found = {name: counts[name].ranges(quantile) for name in layers}
    for name, ranges in found.items():
        if not ranges:
            raise ValueError(_no_inputs(name))
        if not counts[name].are_finite():
            raise ValueError(_not_finite(name))
    for name, layer in layers.items():
        largest = max(found[name].values())
        old = layer.config.forward  # type: ignore[attr-defined]
        layer.tiles.set_io(forward=old.replace(out_bound=largest, bound_management="none"))
        _set_gains(layer, groups[name], found[name], largest)
    return {name: max(ranges.values()) for name, ranges in found.items()}


def _require_parts(per: str, layers: Mapping[str, AnalogModule]) -> None:
    """Raises ValueError unless layers have the parts that share a range."""
    if per not in ("layer", "tile", "slice", "output"):
        raise ValueError(f"per = {per!r}: write 'layer', 'tile', 'slice' or 'output'")
    for name, layer in layers.items():
        if per == "slice" and not reads_slices(layer.config):
            raise ValueError(
                f"per = 'slice', and layer '{name}' has no slices with converters apart; write "
                "per='tile', or choose cell='slices' with slice_converters='apart'"
            )


def _arrays_of(layer: AnalogModule) -> Iterator[Programming]:
    yield from (tile.programming for tile in layer.tiles if tile.programming is not None)


def _groups_of(layer: AnalogModule, per: str) -> list[Tensor]:
    """Returns the group of each output of each array with ADCs of its own, in the order of sums."""
    groups = []
    first = 0
    for array in _arrays_of(layer):
        arrays, outputs = array.adc_gains.shape
        for k in range(arrays):
            if per == "output":
                groups.append(first + torch.arange(k * outputs, (k + 1) * outputs))
            else:
                groups.append(torch.full((outputs,), first + (k if per == "slice" else 0)))
        first += {"layer": 0, "tile": 1, "slice": arrays, "output": arrays * outputs}[per]
    return groups


def _set_gains(
    layer: AnalogModule, groups: list[Tensor], ranges: Mapping[int, float], largest: float
) -> None:
    rest = iter(groups)
    for array in _arrays_of(layer):
        own = [next(rest) for _ in range(len(array.adc_gains))]
        limits = [[ranges.get(int(group), largest) for group in each] for each in own]
        array.adc_gains = np.minimum(largest / np.array(limits), _MOST_GAIN)


def _layers(
    model: nn.Module, quantile: float, *, is_ranged: bool = False
) -> dict[str, AnalogModule]:
    """Returns the layers of a model that can be calibrated, by name."""
    require_module(model)
    require_share("quantile", quantile)
    if model.training:
        raise ValueError("the model is in training mode; call eval(), so that inputs have no noise")
    layers = layers_by_name(model)
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, whose inputs have a range")
    for name, layer in layers.items():
        if layer.config.forward.is_perfect:  # type: ignore[attr-defined]
            raise ValueError(f"layer '{name}' reads perfectly, and has no converters with a range")
        if is_ranged:
            layer.require_range()
            layer.held.require_current(layer.carrier)  # type: ignore[union-attr]
    return layers


def _run(
    model: nn.Module,
    layers: Mapping[str, AnalogModule],
    inputs: Iterable[Any],
    seen: Callable[[str, Tensor], object],
) -> None:
    with exact_reads(dict(layers), seen):
        for x in inputs:
            called(model, x)


def _output_errors(
    model: nn.Module,
    layers: Mapping[str, AnalogModule],
    inputs: Iterable[Any],
    largest: Mapping[str, float],
) -> dict[str, Tensor]:
    """Returns the squared errors of each layer's exact outputs by the ranges of `_limits`."""
    errors = {name: torch.zeros(_RANGES, dtype=torch.float64) for name in layers}
    held_layers: dict[str, Any] = dict(layers)
    before = {name: layer.config.forward for name, layer in held_layers.items()}

    def seen(name: str, x: Tensor) -> None:
        layer = held_layers[name]
        held = layer.held
        for k, limit in enumerate(_limits(largest[name])):
            error = held.product(held.converted(x / limit) * limit - x, layer.carrier)
            errors[name][k] += error.double().square().sum().cpu()

    try:
        for layer in layers.values():
            if layer.input_range is None:
                _set_range(layer, 1.0)
        _run(model, layers, inputs, seen)
    finally:
        for name, layer in layers.items():
            if layer.input_range is None:
                layer.tiles.set_io(forward=before[name])
    return errors


def _limits(largest: float) -> list[float]:
    """Returns the ranges that "output_error" tries."""
    return [largest * 2.0 ** (-k / 8) for k in range(_RANGES)]


def _added(parts: list[dict[str, _Counts]]) -> dict[str, _Counts]:
    """Returns the sums of what processes counted."""
    for process, each in enumerate(parts):
        if each.keys() != parts[0].keys():
            raise ValueError(
                f"process {process} of the group has the layers {sorted(each)}, and process 0 "
                f"{sorted(parts[0])}; give all processes the same model"
            )
    return {
        name: functools.reduce(operator.add, [each[name] for each in parts]) for name in parts[0]
    }


def _require_inputs(name: str, count: Tensor) -> None:
    if int(count[1:].sum()) == 0:
        raise ValueError(_no_inputs(name))
    if int(count[INFINITE:].sum()) > 0:
        raise ValueError(_not_finite(name))


def _not_finite(name: str) -> str:
    return (
        f"layer '{name}' got inputs that are not finite; look at the batches, and at the weights "
        "of the layers before it"
    )


def _no_inputs(name: str) -> str:
    return f"layer '{name}' got no input but 0; give batches of data as the model will see them"


def _set_range(layer: AnalogModule, limit: float) -> None:
    if layer.input_range is not None:
        layer.input_range.fill_(limit)
        return
    old = layer.config.forward  # type: ignore[attr-defined]
    layer.tiles.set_io(forward=old.replace(noise_management="constant", nm_thres=limit))


def _sums(layer: AnalogModule, x: Tensor) -> list[Tensor]:
    """Returns the sums before the ADCs of each tile of a layer, in units of their reads."""
    held: Any = layer.held
    array = held.array
    if layer.input_range is not None:
        x = x / layer.input_range.float().clamp(min=1e-30)
    if not held.is_programmed:
        held.write(layer.carrier)
    matrix = layer.carrier.detach().reshape(array.shape).float()
    seen = held.converted(x)
    found = []
    for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True)):
        for col, tile in zip(array.cols, tiles, strict=True):
            lines = array.lines(i, col)
            scale = torch.tensor(tile.programming.scales, device=x.device)
            weights = (matrix[row, col] / scale.clamp(min=1e-30)[:, None]).clamp(-1.0, 1.0)
            alpha = _alpha(array.config.forward, x[:, lines])
            found += [(seen[:, lines] @ part.t()) / alpha for part in _parts(array.config, weights)]
    return found


def _parts(config: Any, weights: Tensor) -> list[Tensor]:  # noqa: ANN401 - InferenceConfig
    """Returns what arrays with converters of their own hold of weights in [-1, 1]."""
    if not reads_slices(config):
        return [weights]
    whole = (weights.abs() * (2 ** (config.weight_bits - 1) - 1)).round().int()
    most = 2**config.slice_bits - 1
    return [
        ((whole >> shift) & most) / most * weights.sign()
        for shift in range(0, config.weight_bits - 1, config.slice_bits)
    ]


def _alpha(forward: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - IOParameters
    """Returns the scale of each row of inputs, [m, 1]."""
    largest = x.abs().amax(dim=1, keepdim=True)
    rule = forward.noise_management
    if rule in {"constant", "input_range"}:
        return torch.full_like(largest, forward.nm_thres)
    if rule == "none":
        return torch.ones_like(largest)
    if rule == "abs_max":
        most = forward.nm_thres if forward.nm_thres > 0.0 else math.inf
        return largest.clamp(min=1e-30, max=most)
    raise ValueError(
        f"forward.noise_management is '{rule}', whose scales follow from more than a sample's "
        "maximum; call calibrate() first, which gives layers fixed input ranges"
    )
