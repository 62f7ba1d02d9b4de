"""Adapters without pulses and noise, against docs/reference/lrtt.md in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl
from tests.fuzz.checks import Broken, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.fuzz.random_source import Draws

    Matrix = NDArray[np.float64]

RANDOM = ("kaiming", "orthogonal")
BOUND = 1e3
"""Bounds of all cells, so wide that none is met."""


class Model:
    """Rules of docs/reference/lrtt.md for the adapter; with swap_xd, for the transposed tile."""

    def __init__(self, config: Any, d_size: int, x_size: int) -> None:  # noqa: ANN401 - LRTTConfig
        self.config = config
        self.outputs, self.inputs = (x_size, d_size) if config.swap_xd else (d_size, x_size)
        rank = config.rank
        self.w = np.zeros((self.outputs, self.inputs))
        self.a = np.zeros((self.outputs, rank))
        self.b = np.zeros((rank, self.inputs))
        automatic = np.sqrt(self.inputs / (2 * max(rank, 1))) / config.reinit_gain
        self.alpha = automatic if config.lora_alpha == "auto" else config.lora_alpha
        if config.rank_scaling == "rslora":
            self.alpha /= np.sqrt(max(rank, 1))
        self.transfer_lr = self.alpha if config.transfer_lr == "alpha" else config.transfer_lr
        self.vectors = np.zeros_like(self.b)
        self.since = 0
        self.snapshot: tuple[Matrix, Matrix] | None = None
        self.transfers = 0

    @property
    def weights(self) -> Matrix:
        injected = self.alpha * self.a @ self.b if self.config.forward_inject else 0.0
        total = self.w + injected
        return total.T if self.config.swap_xd else total

    def sides(self, x: Matrix, d: Matrix) -> tuple[Matrix, Matrix]:
        """The inputs of the updates of B and of A."""
        return (d, x) if self.config.swap_xd else (x, d)

    def update(self, x: Matrix, d: Matrix, lr: float, gate: Matrix | None = None) -> None:
        """A part of a mini-batch."""
        into_b, into_a = self.sides(x, d)
        if self.config.rank == 0:
            self.w -= lr * into_a.T @ into_b
            return
        every = 0 if self.config.units_in_mbatch else self.config.transfer_every
        while len(into_b):
            now = min(len(into_b), every - self.since) if every else len(into_b)
            self._learn(into_b[:now], into_a[:now], lr, None if gate is None else gate[:now])
            into_b, into_a = into_b[now:], into_a[now:]
            gate = None if gate is None else gate[now:]
            if every:
                self.since += now
            if every and self.since == every:
                self.since = 0
                self.transfer()

    def _learn(self, into_b: Matrix, into_a: Matrix, lr: float, gate: Matrix | None) -> None:
        if self.snapshot is None:
            self.snapshot = self.a.copy(), self.b.copy()
        a, b = self.snapshot
        g, e = into_b @ b.T, into_a @ a
        if gate is not None:
            g, e = gate * g, gate * e
        scale = self.alpha if self.config.ab_lr_scale == "alpha" else 1.0
        if self.config.ab_step_limit > 0.0:
            factor = self._step_factors(into_b, into_a, g, e, scale)[:, None]
            g, e = factor * g, factor * e
        eta = lr * scale
        self.a -= eta * into_a.T @ g
        self.b -= eta * e.T @ into_b

    def _step_factors(
        self, into_b: Matrix, into_a: Matrix, g: Matrix, e: Matrix, scale: float
    ) -> Matrix:
        """min(1, limit / response) of each sample; 0 / 0 is 1, and a response beyond x = 0 is 0."""
        of_in, of_out, of_g, of_e = ((v**2).sum(axis=1) for v in (into_b, into_a, g, e))
        asked = abs(self.alpha * scale) * (of_g * of_out + of_e * of_in)
        allowed = self.config.ab_step_limit * of_in * of_out
        return np.where(asked > allowed, allowed / np.where(asked > 0.0, asked, 1.0), 1.0)

    def end_of_batch(self) -> None:
        self.snapshot = None
        if self.config.units_in_mbatch and self.config.transfer_every and self.config.rank:
            self.since += 1
            if self.since == self.config.transfer_every:
                self.since = 0
                self.transfer()

    def transfer(self) -> None:
        self.w += self.transfer_lr * self.a @ self.b
        self.transfers += 1
        self.snapshot = None
        reinit = self.config.reinit
        if reinit != "none":
            self.a[:] = 0.0
        if reinit == "decay":
            self.b *= self.config.reinit_decay
        elif reinit == "svd":
            norms = np.linalg.norm(self.vectors, axis=1, keepdims=True)
            self.b = self.vectors / norms * self.config.reinit_gain * np.sqrt(2.0)
        elif reinit in RANDOM:
            self.b[:] = np.nan  # taken from the tile, once its law has been looked at

    def left_to_chance(self) -> bool:
        return bool(np.isnan(self.b).any())


def run(draws: Draws) -> None:
    d_size, x_size = draws.integer(1, 9), draws.integer(1, 9)
    config = _config(draws, min(d_size, x_size))
    draws.note("Tile", d_size, x_size, config)
    tile = pl.Tile(d_size, x_size, config, seed=draws.integer(0, 99), threads=1)
    model = Model(config, d_size, x_size)
    if tile.adapter is None:
        require(config.rank == 0, "a tile of rank above 0 has no adapter")
    else:
        model.b[:] = tile.adapter.b
        if config.reinit == "svd":
            require(not model.b.any(), "B is not 0 before its directions were set")
            _hand_in_vectors(draws, tile, model)
    if draws.chance(0.5):
        weights = draws.normal(d_size, x_size, scale=0.3)
        tile.weights = weights
        model.w = _framed(model, weights)
    for _ in range(draws.integer(1, 5)):
        _mini_batch(draws, tile, model)
        _compare(tile, model)


def _framed(model: Model, matrix: NDArray[Any]) -> Matrix:
    wide = matrix.astype(np.float64)
    return wide.T.copy() if model.config.swap_xd else wide


def _config(draws: Draws, largest: int) -> Any:  # noqa: ANN401 - LRTTConfig
    # Bounds without a spread, and nothing that moves weights by itself.
    device = pl.devices.ConstantStep(w_max=BOUND, w_min=-BOUND, w_max_dtod=0.0, w_min_dtod=0.0)
    rank = draws.integer(0, largest)
    perfect = pl.IOParameters(is_perfect=True)
    inject = draws.chance(0.8)
    usable = ["analog", "exact", "reuse"] if inject else ["analog", "exact"]
    return pl.LRTTConfig(
        rank=rank,
        visible=device,
        fast=device,
        lora_alpha="auto" if draws.chance(0.4) else draws.uniform(-1.5, 1.5),
        transfer_lr="alpha" if draws.chance(0.5) else draws.uniform(-1.5, 1.5),
        rank_scaling=draws.pick(("none", "rslora")),
        ab_lr_scale=draws.pick(("alpha", "none")),
        forward_inject=inject,
        inject_io="per_array",
        projection=draws.pick(usable),
        swap_xd=draws.chance(0.4),
        transfer_every=draws.integer(0, 9),
        units_in_mbatch=draws.chance(0.3),
        transfer_mode="exact",
        transfer_read=draws.pick(("exact", "analog")),
        rank_chunk=draws.integer(1, rank) if rank and draws.chance(0.5) else -1,
        rank_offset=draws.integer(0, rank - 1) if rank and draws.chance(0.5) else 0,
        reinit=draws.pick(("kaiming", "orthogonal", "keep_b", "decay", "none", "svd")),
        reinit_gain=draws.uniform(0.2, 1.5),
        reinit_decay=draws.uniform(-1.0, 1.2),
        ab_step_limit=draws.uniform(0.1, 2.0) if draws.chance(0.3) else 0.0,
        forward=perfect,
        backward=perfect,
        update=pl.UpdateParameters(pulse_type="none"),
    )


def _hand_in_vectors(draws: Draws, tile: pl.Tile, model: Model) -> None:
    assert tile.adapter is not None
    vectors = draws.normal(*model.b.shape) + np.float32(0.1)
    tile.adapter.set_reinit_vectors(vectors)
    model.vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(model.vectors, axis=1, keepdims=True)
    model.b = model.vectors / norms * model.config.reinit_gain * np.sqrt(2.0)


def _mini_batch(draws: Draws, tile: pl.Tile, model: Model) -> None:
    rows = draws.integer(1, 8)
    config = model.config
    if (
        config.rank
        and config.reinit in RANDOM
        and config.transfer_every
        and not config.units_in_mbatch
    ):
        # What B is after a re-init by chance can be seen between calls alone.
        rows = min(rows, config.transfer_every - model.since)
    x = draws.normal(rows, tile.x_size)
    d = draws.normal(rows, tile.d_size, scale=0.3)
    lr = draws.pick((0.05, 0.01, -0.02))
    gate = None
    gated = tile.adapter is not None and config.forward_inject
    if gated and draws.chance(0.3):
        gate = draws.normal(rows, config.rank)
    draws.note("mini-batch of", rows, "lr", lr, "gated" if gate is not None else "")
    _read(tile, model, x, d, gate)
    if gate is None:
        for part in draws.cuts(rows):
            tile.update(x[part], d[part], lr, end_of_batch=False)
    else:
        assert tile.adapter is not None
        tile.adapter.update(x, d, gate, lr, end_of_batch=False)
    model.update(x.astype(np.float64), d.astype(np.float64), lr, gate)
    _settle(tile, model)
    if tile.adapter is not None and draws.chance(0.1):
        draws.note("transfer")
        tile.adapter.transfer()
        model.transfer()
        _settle(tile, model)
    tile.end_batch(lr)
    model.end_of_batch()
    _settle(tile, model)


def _read(tile: pl.Tile, model: Model, x: Any, d: Any, gate: Any) -> None:  # noqa: ANN401
    weights = model.weights
    _close("forward", tile.forward(x), x @ weights.T)
    _close("backward", tile.backward(d), d @ weights)
    if gate is None or tile.adapter is None:
        return
    into_b, into_a = model.sides(x, d)
    y, read = tile.adapter.forward(x, gate)
    dx, slope = tile.adapter.backward(d, gate, read)
    # The adapter's own direction of a gated read is that of its inputs; swapped, it is the
    # transposed tile's.
    if model.config.swap_xd:
        through = x @ model.a
        _close("B x", read, through)
        _close("gated forward", y, x @ model.w + model.alpha * (gate * through) @ model.b)
        back = d @ model.b.T
        _close("gated backward", dx, d @ model.w.T + model.alpha * (gate * back) @ model.a.T)
    else:
        through = into_b @ model.b.T
        _close("B x", read, through)
        _close("gated forward", y, x @ model.w.T + model.alpha * (gate * through) @ model.a.T)
        back = into_a @ model.a
        _close("gated backward", dx, d @ model.w + model.alpha * (gate * back) @ model.b)
    _close("gradient of the gate", slope, model.alpha * through * back)


def _settle(tile: pl.Tile, model: Model) -> None:
    """Takes what a re-init by chance has drawn, after a look at its law."""
    if not model.left_to_chance():
        return
    assert tile.adapter is not None
    b = tile.adapter.b.astype(np.float64)
    gain = model.config.reinit_gain
    if model.config.reinit == "orthogonal":
        _close("B B^T", b @ b.T, 2.0 * gain**2 * np.eye(len(b)))
    else:
        deviation = gain * np.sqrt(2.0 / model.inputs)
        require(np.abs(b).max() < 6.5 * deviation, "B is larger than chance allows")
        require(b.any(), "B is 0 after a re-init")
    model.b = b


def _compare(tile: pl.Tile, model: Model) -> None:
    _close("weights", tile.weights, model.weights)
    _close("W", _framed(model, tile.visible), model.w)
    if tile.adapter is not None:
        _close("A", tile.adapter.a, model.a)
        _close("B", tile.adapter.b, model.b)
        total = tile.adapter.transfer_stats["total"]
        require(total["transfers"] == model.transfers, "the number of transfers differs")


def _close(name: str, got: Any, wanted: Matrix) -> None:  # noqa: ANN401 - an array
    if got.shape != wanted.shape:
        raise Broken(f"{name} has shape {got.shape} instead of {wanted.shape}")
    scale = max(1e-3, float(np.abs(wanted).max()))
    if scale > BOUND / 2:
        return  # where the cells may meet their bounds
    error = float(np.abs(got - wanted).max())
    require(error <= 1e-4 * scale, f"{name} differs by {error:.3g} of {scale:.3g}")
