"""Fixed ranges of the DACs of a model, from its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["calibrate"]

_DROPPED = 13  # bits of a float's 31 without its sign: 10 bits of the fraction are kept
_BINS = 1 << (31 - _DROPPED)


@torch.no_grad()
def calibrate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    rule: Literal["quantile", "max"] = "quantile",
    quantile: float = 0.9999,
) -> dict[str, float]:
    """Gives each layer of InferenceConfig one fixed input range, in place, from sample inputs.

    Inputs x of a layer are then read as c q(clip(x / c, -1, 1)) with the range c: its tiles have
    `forward.noise_management` = "constant" with `nm_thres` = c. Chips without a digital maximum of
    each sample work so.

    Ranges are exact to 2^-10 of their value: values are counted by the upper bits of their
    magnitude, so that the result does not depend on how samples are split over batches.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batches: Inputs of the model; of pairs (input, target) the input.
        rule: "quantile", the smallest range that holds this share of a layer's inputs; "max", all.
        quantile: Share of the inputs within the range, above 0 and at most 1.

    Returns:
        The range of each layer by its name in `model.named_modules()`.

    Raises:
        ValueError: If the model is in training mode or has no such layer, for a bad rule, and if a
            layer gets no input but 0 or reads perfectly; nothing has changed then.
    """
    if rule not in {"quantile", "max"}:
        raise ValueError(f"rule = {rule!r}: write 'quantile' or 'max'")
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile = {quantile}: give a share above 0 and at most 1")
    if model.training:
        raise ValueError("the model is in training mode; call eval(), so that inputs have no noise")
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, AnalogModule) and layer.held is not None
    }
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, whose inputs have a range")
    for name, layer in layers.items():
        if layer.config.forward.is_perfect:  # type: ignore[attr-defined]
            raise ValueError(f"layer '{name}' reads perfectly, and has no DAC with a range")
    counts = _counted(model, layers, batches)
    share = 1.0 if rule == "max" else quantile
    ranges = {name: _range_of(name, count, share) for name, count in counts.items()}
    for name, layer in layers.items():
        _set_range(layer.tiles, ranges[name])
    return ranges


def _counted(
    model: nn.Module, layers: dict[str, AnalogModule], batches: Iterable[Any]
) -> dict[str, Tensor]:
    """Counts the inputs of each layer by their magnitude."""
    counts = {name: torch.zeros(_BINS, dtype=torch.int64) for name in layers}

    def counting(name: str) -> Any:  # noqa: ANN401 - a hook
        def hook(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
            bits = inputs[0].detach().float().abs().contiguous().view(torch.int32).flatten()
            counts[name] += torch.bincount(bits >> _DROPPED, minlength=_BINS)[:_BINS].cpu()

        return hook

    hooks = [layer.register_forward_pre_hook(counting(name)) for name, layer in layers.items()]
    try:
        for batch in batches:
            model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def _range_of(name: str, count: Tensor, share: float) -> float:
    """Returns the upper end of the bin in which this share of the inputs is reached."""
    if int(count[1:].sum()) == 0:
        raise ValueError(
            f"layer '{name}' got no input but 0; give batches of data as the model will see them"
        )
    below = count.cumsum(0)
    reached = int((below.double() >= share * float(below[-1])).nonzero()[0])
    edge = torch.tensor([max(reached, 1) + 1], dtype=torch.int32) << _DROPPED
    return float(edge.view(torch.float32))


def _set_range(array: TileArray, limit: float) -> None:
    old = array.config.forward  # type: ignore[attr-defined]
    array.set_io(forward=old.replace(noise_management="constant", nm_thres=limit))
