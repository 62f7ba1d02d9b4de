"""The factors A and B of low-rank adapters: their sizes, their cells, and how far a written pair is off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pulsora.config import LRTTConfig
from pulsora.nn.tiles.weight_scaling import reach, written_to
from pulsora.tile import Tile

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["FILL", "Gauge", "balanced", "cell_scale", "distance", "error_of", "matched_gauge"]

FILL = 0.5
"""What part of the cells' range the largest element of a loaded factor takes: the rest is room to learn."""


class Gauge(NamedTuple):
    """Sizes of the factors of a new adapter, whose first steps are those of plain SGD.

    Attributes:
        alpha: The factor on A B.
        b_std: Standard deviation of the elements of B; those of A are 0.
        a_scale: What A's cells are multiplied by, so that A fills them while it learns.
        b_scale: What B's cells are multiplied by.
    """

    alpha: float
    b_std: float
    a_scale: float
    b_scale: float


def matched_gauge(rank: int, in_features: int, config: TileConfig) -> Gauge:
    """The sizes that `LRTTConfig` chooses with ab_lr_scale = 'matched', for cells of this configuration.

    In tiles with adapters, learning rates of A and B are lr alpha s^2 and lr alpha t^2; here cells are 1/s and
    1/t of A and B instead, whose learning rates are lr alpha as those of any parameter of torch, which is the same.
    """
    device = written_to(config)
    settings = {} if device is None else {"fast": device, "update": getattr(config, "update")}  # noqa: B009 - what has cells has it
    # The core has the rule; it depends on the inputs, the rank and the cells of the adapter alone.
    tile = Tile(rank, in_features, LRTTConfig(rank=rank, **settings), threads=1)
    values = tile.explain(np.zeros((1, in_features)), np.zeros((1, rank)), 1.0)
    alpha = float(values["alpha"])
    s, t = (math.sqrt(float(values[name]) / alpha) for name in ("a_lr", "b_lr"))
    has_cells = device is not None
    return Gauge(
        alpha * s * t,
        float(values["reinit_std"]) / t,
        1.0 / s if has_cells else 1.0,
        1.0 / t if has_cells else 1.0,
    )


def balanced(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A c and B / c with c > 0 for each component, so that both sides of each are equally small beside the largest.

    The product is the same, and so is the largest element of A; the cells of neither side are left empty.
    """
    of_a, of_b = a.abs().amax(0), b.abs().amax(1)
    is_used = (of_a > 0.0) & (of_b > 0.0)
    c = torch.where(is_used, (of_b / of_a.where(is_used, torch.ones_like(of_a))).sqrt(), 1.0)
    if is_used.any():
        c = torch.where(is_used, c * (of_a[is_used].amax() / (of_a * c)[is_used].amax()), c)
    return a * c, b / c[:, None]


def cell_scale(values: Tensor, config: TileConfig) -> Tensor:
    """What cells have to be multiplied by [1] to hold these values with room to learn; 1 if all are 0."""
    largest = values.abs().amax().float().cpu()[None]
    scale = largest / (FILL * reach(written_to(config)))
    return torch.where(largest > 0.0, scale, torch.ones_like(scale))


def error_of(written: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> float:
    """|A' B' - A B| / |A B| (Frobenius); 0 where both are 0."""
    error, whole = distance(written, wanted)
    return error / whole if whole > 0.0 else (math.inf if error > 0.0 else 0.0)


def distance(written: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """|A' B' - A B| and |A B| (Frobenius), without forming a product."""
    (a_new, b_new), (a, b) = (
        tuple(factor.detach().double().cpu() for factor in pair) for pair in (written, wanted)
    )
    # A' B' - A B = (A' - A) B' + A (B' - B), in which nothing large cancels.
    error = _norm(torch.cat([a_new - a, a], 1), torch.cat([b_new, b_new - b], 0))
    return error, _norm(a, b)


def _norm(p: Tensor, q: Tensor) -> float:
    """|P Q|, from the small products P^T P and Q Q^T."""
    return math.sqrt(max(float(((p.T @ p) * (q @ q.T)).sum()), 0.0))
