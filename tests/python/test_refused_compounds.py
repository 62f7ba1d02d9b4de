"""Settings of compounds that have no effect, or no meaning, are refused with a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

CELLS = pl.devices.SoftBounds(dw_min=0.01)
MERGED = pl.devices.ConstantStep(noise_merge="batch")
MANAGED = pl.IOParameters(noise_management="abs_max")
BOUNDED = pl.IOParameters(noise_management="none", bound_management="iterative")


def update(pulse_type: str) -> dict[str, Any]:
    return {"update": pl.UpdateParameters(pulse_type=pulse_type)}


# What is refused when a configuration is made: (a function that makes it, the message).
CONFIGS: list[tuple[Callable[[], pl.TileConfig], str]] = [
    (lambda: pl.TTv2(CELLS, gamma_vec=[1.0]), "gamma_vec has 1 numbers"),
    (lambda: pl.TTv2(CELLS, gamma_vec=[1.0, 0.0]), "gamma_vec ends with 0"),
    (lambda: pl.TTv2(CELLS, transfer_every_vec=[1.0, 2.0]), "transfer_every_vec has 2 numbers"),
    (lambda: pl.TTv2(CELLS, transfer_lr_vec=[1.0, 2.0]), "transfer_lr_vec has 2 numbers"),
    (lambda: pl.TTv2(CELLS, fast=[]), "fast has 0 devices"),
    (lambda: pl.VectorConfig(devices=[]), "devices has 0 devices"),
    (lambda: pl.VectorConfig(gamma_vec=[1.0]), "gamma_vec has 1 factors"),
    (lambda: pl.TikiTaka(CELLS, transfer_every=0.5), "in samples"),
    (lambda: pl.TTv2(CELLS, transfer_every=16777217), "whole numbers up to 16777215"),
    (lambda: pl.ChoppedTTv2(CELLS, with_reset_prob=0.1), "with_reset_prob is 0.1"),
    (lambda: pl.ChoppedTTv2(CELLS, thres_scale=2.0), "thres_scale is 2"),
    (lambda: pl.AGAD(CELLS, random_selection=True), "random_selection is True"),
    (lambda: pl.AGAD(CELLS, fast=[CELLS, CELLS]), "fast has 2 devices"),
    (lambda: pl.AGAD(CELLS, in_chop_prob=0.0), "in_chop_prob is 0"),
]


@pytest.mark.parametrize(("make", "message"), CONFIGS, ids=[message for _, message in CONFIGS])
def test_configurations(make: Callable[[], pl.TileConfig], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        make()


# What is refused when a tile is made.
TILES: list[tuple[pl.TileConfig, str]] = [
    (pl.TikiTaka(CELLS, **update("none")), r"update.pulse_type is 'none'"),
    (pl.TTv2(CELLS, **update("none_with_device")), r"update.pulse_type is 'none_with_device'"),
    (pl.VectorConfig(**update("none")), r"update.pulse_type is 'none'"),
    (pl.ReferenceConfig(**update("none_with_device")), r"update.pulse_type is 'none_with_device'"),
    (pl.OneSidedConfig(**update("none")), r"update.pulse_type is 'none'"),
    (pl.MixedPrecisionConfig(**update("none")), r"update.pulse_type is 'none'"),
    (pl.TTv2(CELLS, n_reads_per_transfer=6), "n_reads_per_transfer is 6, and the tile has 5 col"),
    (
        pl.TTv2(CELLS, n_reads_per_transfer=5, transfer_columns=False),
        "n_reads_per_transfer is 5, and the tile has 4 rows",
    ),
    (pl.TTv2(CELLS, transfer_forward=MANAGED), r"transfer_forward.noise_management is set"),
    (pl.TTv2(CELLS, transfer_forward=BOUNDED), r"transfer_forward.bound_management is set"),
    (pl.TTv2(CELLS, fast=[MERGED]), r"fast\[0\].noise_merge is 'batch'"),
    (
        pl.OneSidedConfig(device=pl.devices.ConstantStep(w_max=0.0, w_min=-1.0)),
        "device.w_max is 0",
    ),
]


@pytest.mark.parametrize(("config", "message"), TILES, ids=[message for _, message in TILES])
def test_tiles(config: pl.TileConfig, message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        pl.Tile(4, 5, config)


def test_an_exact_write_is_no_digital_update() -> None:
    exact = pl.UpdateParameters(pulse_type="none_with_device")
    tile = pl.Tile(4, 5, pl.TikiTaka(CELLS, transfer_update=exact), seed=1)
    tile.update(np.ones((1, 5), "f"), np.ones((1, 4), "f"), 0.1)
    assert tile.counters["mini_batches"] == 1


def after(config: pl.TileConfig, updates: int = 1) -> pl.Tile:
    tile = pl.Tile(4, 5, config, seed=1)
    x, d = np.linspace(0.5, 1, 5, dtype="f"), np.linspace(-1, -0.5, 4, dtype="f")
    for _ in range(updates):
        tile.update(x, d, 0.1)
    return tile


# What AIHWKit takes and ignores is either refused above or has its effect.


@pytest.mark.parametrize("algorithm", [pl.TikiTaka, pl.TTv2])
@pytest.mark.parametrize("columns", [True, False])
def test_lines_are_reset_with_and_without_a_buffer(
    algorithm: Callable[..., pl.TileConfig], *, columns: bool
) -> None:
    cells = CELLS.replace(reset_std=0.0, reset=0.0)
    plain, reset = (
        after(algorithm(cells, transfer_columns=columns, with_reset_prob=chance)).arrays["fast_0"]
        for chance in (0.0, 1.0)
    )
    plain, reset = (each.T if columns else each for each in (plain, reset))
    assert np.abs(plain).min() > 0.0
    assert not reset[0].any()
    np.testing.assert_array_equal(reset[1:], plain[1:])


@pytest.mark.parametrize("algorithm", [pl.ChoppedTTv2, pl.AGAD])
def test_choppers_take_several_reads(algorithm: Callable[..., pl.TileConfig]) -> None:
    tile = after(algorithm(CELLS, fast_lr=0.1, n_reads_per_transfer=2), updates=7)
    assert tile.statistics()["lines_read"] == [14]


@pytest.mark.parametrize(
    ("master", "error", "message"),
    [
        (np.zeros((5, 4), "f"), pl.InputError, r"shape \[5, 4\]; follow takes \[d_size = 4"),
        (np.full((4, 5), np.inf, "f"), pl.InputError, r"master\[0, 0\] is inf"),
        (np.zeros((4, 5), int), TypeError, "convert it to float32"),
    ],
)
def test_masters(master: Any, error: type[Exception], message: str) -> None:  # noqa: ANN401
    tile = pl.Tile(4, 5, pl.MixedPrecisionConfig(visible=CELLS), seed=1)
    before = pl.state.dumps(tile.state())
    with pytest.raises(error, match=message):
        tile.follow(master)
    assert pl.state.dumps(tile.state()) == before
