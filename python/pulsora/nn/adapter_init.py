"""The factors A and B of low-rank adapters: sizes, scales of cells, and errors of writes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pulsora.config import LRTTConfig
from pulsora.nn.tiles.weight_scaling import reach_of, written_to
from pulsora.tile import Tile

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["FILL", "Gauge", "balanced", "cell_scale", "distance", "error_of", "matched_gauge"]

FILL = 0.5
"""Part of the cells' range that the largest element of a loaded factor takes, to leave room."""


class Gauge(NamedTuple):
    """Sizes of the factors of a new adapter whose first steps equal plain SGD.

    Attributes:
        alpha: The factor on A B.
        b_std: Standard deviation of the elements of B; the elements of A are 0.
        a_scale: Factor on A's cells, so that A fills them while it learns.
        b_scale: Factor on B's cells.
    """

    alpha: float
    b_std: float
    a_scale: float
    b_scale: float


def matched_gauge(rank: int, in_features: int, config: TileConfig) -> Gauge:
    """Returns the sizes of `LRTTConfig` with ab_lr_scale = 'matched', for these cells.

    In tiles with adapters, learning rates of A and B are lr alpha s^2 and lr alpha t^2. Here the
    learning rates are lr alpha, as for parameters of torch, and the cells are scaled by 1/s and
    1/t, which is equivalent.
    """
    device = written_to(config)
    settings: dict[str, Any] = {}
    if device is not None:
        pulsed: Any = config  # with cells, a configuration has an update
        settings = {"fast": device, "update": pulsed.update}
    # The rule is in the core; it depends only on the inputs, the rank and the cells of the adapter.
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
    """Returns A c and B / c, with c > 0 for each component, so that A and B use cells equally.

    In each component, the largest elements of A and of B then have equal ratios to the largest of
    the whole factor. The product and the largest element of A do not change.
    """
    of_a, of_b = a.abs().amax(0), b.abs().amax(1)
    is_used = (of_a > 0.0) & (of_b > 0.0)
    c = torch.where(is_used, (of_b / of_a.where(is_used, torch.ones_like(of_a))).sqrt(), 1.0)
    if is_used.any():
        c = torch.where(is_used, c * (of_a[is_used].amax() / (of_a * c)[is_used].amax()), c)
    return a * c, b / c[:, None]


def cell_scale(values: Tensor, config: TileConfig) -> Tensor:
    """Returns the factor [1] on cells that hold these values with room to learn; 1 for zeros."""
    largest = values.abs().amax().float().cpu()[None]
    scale = largest / (FILL * reach_of(config))
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
