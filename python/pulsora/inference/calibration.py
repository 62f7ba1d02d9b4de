"""Fixed ranges of the converters of a model, from its inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import torch

from pulsora.inference.exact_reads import exact_reads, layers_by_name
from pulsora.inference.folding import called, reads_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor, nn

    from pulsora.nn.base import AnalogModule

__all__ = ["calibrate", "calibrate_outputs"]

_DROPPED = 13  # bits of a float's 31 without its sign: 10 bits of the fraction are kept
_BINS = 1 << (31 - _DROPPED)


@torch.no_grad()
def calibrate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    rule: Literal["quantile", "max", "sigma"] = "quantile",
    quantile: float = 0.9999,
    sigmas: float = 3.0,
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
        batches: Inputs of the model; of pairs (input, target) the input.
        rule: "quantile", the smallest range that holds this share of a layer's inputs; "max", all;
            "sigma", so many root mean squares of the inputs, counted by the same bins.
        quantile: Share of the inputs within the range, above 0 and at most 1.
        sigmas: Factor of "sigma".

    Returns:
        The range of each layer by its name in `model.named_modules()`.

    Raises:
        ValueError: If the model is in training mode or has no such layer, for a bad rule, and if a
            layer gets no input but 0 or reads perfectly; nothing has changed then.
    """
    if rule not in {"quantile", "max", "sigma"}:
        raise ValueError(f"rule = {rule!r}: write 'quantile', 'max' or 'sigma'")
    if not (sigmas > 0.0 and math.isfinite(sigmas)):
        raise ValueError(f"sigmas = {sigmas}: give a positive number")
    layers = _layers(model, quantile)
    counts = {name: torch.zeros(_BINS, dtype=torch.int64) for name in layers}
    _run(model, layers, batches, lambda name, x: counts[name].add_(_counted(x)))
    ranges = {}
    for name, count in counts.items():
        _require_inputs(name, count)
        if rule == "sigma":
            ranges[name] = sigmas * _root_mean_square(count)
        else:
            ranges[name] = _range_of(count, 1.0 if rule == "max" else quantile)
    for name, layer in layers.items():
        _set_range(layer, ranges[name])
    return ranges


@torch.no_grad()
def calibrate_outputs(
    model: nn.Module, batches: Iterable[Any], *, quantile: float = 0.9999
) -> dict[str, float]:
    """Fits the range of the ADCs of each layer of InferenceConfig to its outputs, in place.

    The sums that the ADCs of a layer's tiles would convert are counted as `calibrate` counts
    inputs. `forward.out_bound` becomes the smallest range that holds the given share of them, and
    the steps of the ADC (`out_res`, a share of the range) become finer or coarser with it: a gain
    before a fixed converter. Bound management is switched off, because samples beyond the range are
    meant to be clipped. Call `calibrate` first, if inputs have fixed ranges: the sums are in units
    of the scaled inputs. Slices with converters of their own share one range, and the sums of all
    of them are counted.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batches: Inputs of the model; of pairs (input, target) the input.
        quantile: Share of the sums within the range, above 0 and at most 1.

    Returns:
        The range of each layer by its name in `model.named_modules()`.

    Raises:
        ValueError: As of `calibrate`; nothing has changed then.
        StateError: If a layer lacks its input range.
    """
    layers = _layers(model, quantile)
    counts = {name: torch.zeros(_BINS, dtype=torch.int64) for name in layers}

    def seen(name: str, x: Tensor) -> None:
        for sums in _sums(layers[name], x):
            counts[name].add_(_counted(sums))

    _run(model, layers, batches, seen)
    for name, count in counts.items():
        _require_inputs(name, count)
    ranges = {name: _range_of(count, quantile) for name, count in counts.items()}
    for name, layer in layers.items():
        old = layer.config.forward  # type: ignore[attr-defined]
        layer.tiles.set_io(forward=old.replace(out_bound=ranges[name], bound_management="none"))
    return ranges


def _layers(model: nn.Module, quantile: float) -> dict[str, AnalogModule]:
    """Returns the layers of a model that can be calibrated, by name."""
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile = {quantile}: give a share above 0 and at most 1")
    if model.training:
        raise ValueError("the model is in training mode; call eval(), so that inputs have no noise")
    layers = layers_by_name(model)
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, whose inputs have a range")
    for name, layer in layers.items():
        if layer.config.forward.is_perfect:  # type: ignore[attr-defined]
            raise ValueError(f"layer '{name}' reads perfectly, and has no converters with a range")
    return layers


def _run(
    model: nn.Module,
    layers: Mapping[str, AnalogModule],
    batches: Iterable[Any],
    seen: Callable[[str, Tensor], object],
) -> None:
    with exact_reads(dict(layers), seen):
        for batch in batches:
            called(model, batch[0] if isinstance(batch, tuple | list) else batch)


def _counted(x: Tensor) -> Tensor:
    """Counts values by the upper bits of their magnitude."""
    bits = x.detach().float().abs().contiguous().view(torch.int32).flatten()
    return torch.bincount(bits >> _DROPPED, minlength=_BINS)[:_BINS].cpu()


def _require_inputs(name: str, count: Tensor) -> None:
    if int(count[1:].sum()) == 0:
        raise ValueError(
            f"layer '{name}' got no input but 0; give batches of data as the model will see them"
        )


def _edges(bins: Tensor) -> Tensor:
    """Returns the lower ends of bins."""
    return (bins.to(torch.int32) << _DROPPED).view(torch.float32)


def _range_of(count: Tensor, share: float) -> float:
    """Returns the upper end of the bin in which this share of the values is reached."""
    below = count.cumsum(0)
    reached = int((below.double() >= share * float(below[-1])).nonzero()[0])
    return float(_edges(torch.tensor([max(reached, 1) + 1])))


def _root_mean_square(count: Tensor) -> float:
    """Returns the root mean square of counted values, each in the middle of its bin."""
    filled = count.nonzero().flatten()
    low, high = _edges(filled).double(), _edges(filled + 1).double()
    middle = torch.where(filled == 0, 0.0, (low + high) / 2)
    return math.sqrt(float((count[filled] * middle.square()).sum()) / int(count.sum()))


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
