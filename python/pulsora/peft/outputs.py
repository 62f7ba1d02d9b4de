"""One check of all functions that move adapters: outputs of a layer on a few random rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pulsora.convert.outputs import distance, like, numbers, perfect_reads, share
from pulsora.nn import ConstantGate, GatedAdapter
from pulsora.nn.gated_adapter import features_of
from pulsora.peft.changes import NO_ADAPTERS, change_of_tiles, tile_weights
from pulsora.peft.files import LayerFactors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

__all__ = [
    "gated_by",
    "hooks_change",
    "random_rows",
    "require_change",
    "require_equal_outputs",
]

_ROWS = 8


@contextmanager
def gated_by(layer: nn.Module, codes: Tensor | None) -> Iterator[None]:
    """Gives an adapted layer constant weights of its components in place of its gate."""
    if codes is None or not isinstance(layer, GatedAdapter):
        yield
        return
    gate, layer.gate = layer.gate, ConstantGate(codes).to(random_rows(layer).device)
    try:
        yield
    finally:
        layer.gate = gate


def random_rows(layer: nn.Module) -> Tensor:
    """Returns rows of standard normal numbers that a layer takes, the same at each call."""
    inner: Any = layer.base if isinstance(layer, GatedAdapter) else layer
    inputs, _ = features_of(inner)
    x = torch.randn(_ROWS, inputs, generator=torch.Generator().manual_seed(5), device="cpu")
    return like(inner, x)


def hooks_change(layer: nn.Module, x: Tensor) -> bool:
    """Whether hooks on the forward pass of a layer change its outputs; or fail on rows."""
    if not (layer._forward_hooks or layer._forward_pre_hooks):  # noqa: SLF001 - has no other way
        return False
    try:
        return not torch.equal(layer(x), layer.forward(x))
    except Exception:  # noqa: BLE001 - hooks of the user's
        return True


def require_equal_outputs(
    name: str,
    layer: Callable[[Tensor], Tensor],
    becomes: Callable[[Tensor], Tensor],
    x: Tensor,
    parts: float,
    remedy: str,
    slack: float = 0.0,
) -> None:
    """Raises ValueError if the outputs of a layer are not what they become, within rounding.

    Args:
        name: The layer's name, for the message.
        layer: The layer's computation, of rows x.
        becomes: The computation that takes its place.
        x: Rows of inputs.
        parts: Sum of the sizes of the terms of an output row, which their rounding is relative to.
        remedy: End of the message.
        slack: Size of a difference that is known already.
    """
    before, after = numbers(layer(x)), numbers(becomes(x))
    error, size = distance(before, after), float(before.norm())
    if not error <= slack + share(x.dtype) * (size + parts * len(x) ** 0.5):
        off = f"{error / size:.2g} of their size" if size > 0.0 else f"{error:.2g}"
        raise ValueError(
            f"layer '{name}': on random inputs, its outputs would change by {off}; {remedy}"
        )


@torch.no_grad()
def require_change(
    name: str,
    layer: nn.Module,
    change: LayerFactors | Tensor,
    codes: Tensor | None,
    *,
    is_gated: bool,
    known: float = 0.0,
) -> None:
    """Raises ValueError if a change of weights is not the one that an adapted layer computes.

    Args:
        name: The layer's name.
        layer: The layer with its adapter.
        change: Factors, or the change [out_features, in_features].
        codes: Weights of the components; None for 1.
        is_gated: Whether the gate gives these weights, or else they take its place.
        known: The known error of the change, relative to it.
    """
    x = random_rows(layer)
    rows = x.double()
    if isinstance(change, LayerFactors):
        added = change.alpha * (rows @ change.b.to(rows).T) @ change.a.to(rows).T
    else:
        added = rows @ change.to(rows).T
    with perfect_reads(layer), gated_by(layer, None if is_gated else codes):
        if isinstance(layer, GatedAdapter) and hooks_change(layer.base, x):
            raise ValueError(
                f"layer '{name}': hooks on its base change outputs before the adapter is added, "
                "but where a file is loaded, hooks see the layer with its adapter; put them on the "
                "adapted layer"
            )
        if isinstance(layer, GatedAdapter) and not layer.in_tiles:
            plain = layer.base(x).double()
        else:
            plain = _without_adapters(layer, rows, codes)
        size = float(plain.norm() + added.norm()) / len(x) ** 0.5
        require_equal_outputs(
            name, layer.forward, lambda _: plain + added, x, size,
            "alpha A B, which is all that a file holds, is not all that the adapter does here",
            # Random rows show an error that is a few times smaller or larger than its mean.
            5.0 * known * float(added.norm()),
        )  # fmt: skip


def _without_adapters(layer: Any, rows: Tensor, codes: Tensor | None) -> Tensor:  # noqa: ANN401
    """Returns the outputs of a layer without the adapters in its tiles, but with their bias."""
    tiles: Any = layer.base if isinstance(layer, GatedAdapter) else layer
    weight, bias = tile_weights(tiles, NO_ADAPTERS)
    y = rows @ weight.to(rows).T
    if bias is None:
        return y
    if tiles.analog_bias:
        bias = bias + change_of_tiles(tiles, codes)[:, -1]
    return y + bias.to(rows)
