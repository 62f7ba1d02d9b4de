"""Many runs of two soft-bounds arrays without a buffer between them, in NumPy: an oracle.

Written from the rules alone (docs/reference/transfers.md): the fast array gets pulse trains, and
reads without noise of its lines are written onto the slow one by pulse trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recorded_cases import inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A soft-bounds cell whose bounds lie at +-bound, with relative noise of each pulse."""

    dw_min: float
    bound: float
    noise: float

    def pulsed(
        self, rng: np.random.Generator, w: Matrix, up: NDArray[np.bool_], hit: NDArray[np.bool_]
    ) -> Matrix:
        """The weights after one pulse, up or down, on the cells that are hit."""
        mean = np.where(up, self.dw_min * (1 - w / self.bound), -self.dw_min * (1 + w / self.bound))
        moved = w + mean * (1 + self.noise * rng.standard_normal(w.shape))
        return np.where(hit, np.clip(moved, -self.bound, self.bound), w)


def trains(
    rng: np.random.Generator, kept: Matrix, clipped: Matrix, strength: float, slots: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Trains [runs, slots, lines] of both sides, for `strength` kept clipped^T pulses.

    Both managements of updates are on: the longest train is as long as the largest element needs,
    and both sides have the same largest probability. Where `slots` are too few, those of `clipped`
    grow until they end at 1, so that the large elements of that side lose pulses.
    """
    kept, clipped = np.abs(kept), np.abs(clipped)
    top, top_clipped = (np.maximum(each.max(axis=1), 1e-30) for each in (kept, clipped))
    needed = strength * top * top_clipped
    length = np.minimum(np.ceil(needed), slots)
    share = needed / np.maximum(length, 1)
    p_kept = kept / top[:, None] * np.sqrt(np.minimum(share, 1))[:, None]
    p_clipped = clipped / top_clipped[:, None] * np.maximum(share, np.sqrt(share))[:, None]
    live = (np.arange(slots) < length[:, None])[:, :, None]
    fired = [
        (rng.random((len(p), slots, p.shape[1])) < p[:, None]) & live for p in (p_kept, p_clipped)
    ]
    return fired[0], fired[1]


def simulate(
    case: dict[str, Any], runs: int, *, line_clips: bool, seed: int = 0
) -> dict[str, Matrix]:
    """Weights of a recorded case [runs, d, x], under the names of its results.

    `line_clips` says which side of a written row loses pulses if its largest element needs more of
    them than a train has slots: the line, and with it all cells, or only those large cells.
    """
    given, settings = case["config"], case["config"]["transfer_update"]
    fast_cell, slow_cell = (
        Cell(each["dw_min"], each["w_max"], each["dw_min_std"]) for each in given["devices"]
    )
    assert all(each["w_min"] == -each["w_max"] for each in given["devices"])
    assert not given["with_reset_prob"]
    assert given["transfer_forward"] == {"is_perfect": True}
    rng = np.random.default_rng(seed)
    x, d, start = inputs(case)
    by_rows = not given["transfer_columns"]
    size = case["inputs"]["m_batch"] if given["units_in_mbatch"] else 1
    every = round(given["transfer_every"] * size)
    scale = case["lr"] if given["scale_transfer_lr"] else 1.0
    strength = scale * given["transfer_lr"] / slow_cell.dw_min
    fast = np.zeros((runs, *start.shape))
    slow = np.repeat(start[None].astype(float), runs, axis=0)
    for number in range(len(x)):
        up = np.outer(d[number], x[number]) < 0
        x_fires, d_fires = trains(
            rng,
            np.repeat(x[number][None].astype(float), runs, axis=0),
            np.repeat(d[number][None].astype(float), runs, axis=0),
            case["lr"] * given["fast_lr"] / fast_cell.dw_min,
            case["update"]["desired_bl"],
        )
        for slot in range(x_fires.shape[1]):
            hit = d_fires[:, slot, :, None] & x_fires[:, slot, None, :]
            fast = fast_cell.pulsed(rng, fast, up, hit)
        if (number + 1) % every:
            continue
        line = (number // every) % start.shape[0 if by_rows else 1]
        where = (slice(None), line) if by_rows else (slice(None), slice(None), line)
        read = fast[where].copy()
        sides = (np.ones((runs, 1)), read)
        if by_rows and line_clips:
            cells, driven = trains(rng, *sides[::-1], strength, settings["desired_bl"])
        else:
            driven, cells = trains(rng, *sides, strength, settings["desired_bl"])
        written = slow[where].copy()
        for slot in range(cells.shape[1]):
            written = slow_cell.pulsed(rng, written, read > 0, driven[:, slot] & cells[:, slot])
        slow[where] = written
    weights = given["gamma"] * fast + slow
    return {"W": weights, "hidden_weights_0": fast, "hidden_weights_1": slow}
