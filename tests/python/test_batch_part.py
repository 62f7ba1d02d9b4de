"""Tiles in one state share the rows of a mini-batch, and read them as one tile would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, D_SIZE, X_SIZE, make_batch, make_tile, same_bits

if TYPE_CHECKING:
    from collections.abc import Callable

PERIPHERIES: dict[str, dict[str, Any]] = {
    "default": {},
    "converters": {
        "inp_sto_round": True,
        "out_sto_round": True,
        "inp_noise": 0.05,
        "out_noise_std": 0.3,
    },
    "asymmetry": {"inp_asymmetry": 0.1, "out_asymmetry": 0.2, "noise_management": "max"},
    "weights": {"w_noise": 0.02, "w_noise_type": "additive_constant", "noise_management": "none"},
    "pcm": {"w_noise": 0.02, "w_noise_type": "pcm_read", "ir_drop": 1.0},
    "lines": {"v_offset_std": 0.1, "r_series": 0.05, "out_nonlinearity": 0.2},
    "two passes": {"mv_type": "pos_neg_separate", "w_read_asymmetry_dtod": 0.1},
    "digital sum": {
        "mv_type": "pos_neg_separate_digital_sum",
        "noise_management": "abs_max_np_sum",
    },
    "bits": {"mv_type": "bit_serial", "bound_management": "none", "inp_sto_round": True},
    "bounds": {
        "out_bound": 0.2,
        "bm_backward": True,
        "noise_management": "constant",
        "nm_thres": 0.5,
    },
    "worst case": {"out_bound": 0.2, "bound_management": "iterative_worst_case"},
    "perfect": {"is_perfect": True},
}


def tile_with(periphery: pl.IOParameters, name: str = "lrtt") -> pl.Tile:
    config = CONFIGS[name]()
    made = type(config).from_dict(
        {**config.to_dict(), "forward": periphery.to_dict(), "backward": periphery.to_dict()}
    )
    tile = make_tile(made)
    rng = np.random.default_rng(2)
    for array in tile.arrays:
        shape = tile.arrays[array].shape
        tile.arrays[array] = rng.uniform(-0.4, 0.4, shape).astype(np.float32)
    return tile


@pytest.mark.parametrize("name", ["ideal", "single", "lrtt"])
@pytest.mark.parametrize("values", list(PERIPHERIES.values()), ids=list(PERIPHERIES))
def test_property_37_two_tiles_read_the_halves_of_a_batch(
    name: str, values: dict[str, Any]
) -> None:
    whole, first, second = (tile_with(pl.IOParameters(**values), name) for _ in range(3))
    x, d = make_batch(64)
    for _ in range(2):
        parts = [
            (
                tile.forward(x[rows], first=rows.start, of=64),
                tile.backward(d[rows], first=rows.start, of=64),
            )
            for tile, rows in ((first, slice(0, 32)), (second, slice(32, 64)))
        ]
        joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
        assert same_bits(joined, [whole.forward(x), whole.backward(d)])
    assert first.counters == second.counters == whole.counters


def test_gated_reads_and_single_samples_are_shared_too() -> None:
    whole, part = make_tile(CONFIGS["lrtt"]()), make_tile(CONFIGS["lrtt"]())
    x, d = make_batch(5)
    gate = np.random.default_rng(0).uniform(size=(5, 3)).astype(np.float32)
    y, inner = whole.adapter.forward(x, gate)
    back = whole.adapter.backward(d, gate, inner)
    place = {"first": 4, "of": 5}
    y_part, inner_part = part.adapter.forward(x[4], gate[4], **place)
    back_part = part.adapter.backward(d[4], gate[4], inner_part, **place)
    assert same_bits([y_part, inner_part, *back_part], [y[4], inner[4], back[0][4], back[1][4]])
    assert same_bits([part.forward(x[4], **place)], [whole.forward(x)[4]])
    assert part.forward(x[:0], first=5, of=5).shape == (0, D_SIZE)
    assert part.counters["forward_samples"] == 15


AVERAGE = pl.SingleConfig(forward=pl.IOParameters(noise_management="average_abs_max"))


@pytest.mark.parametrize(
    ("config", "call", "error", "message"),
    [
        (None, lambda t, x: t.forward(x, first=-1), pl.ConfigError, "first is -1"),
        (None, lambda t, x: t.forward(x, first=0, of=-1), pl.ConfigError, "of is -1"),
        (None, lambda t, x: t.forward(x, first=1), pl.InputError,
         "x has 4 rows, which from first = 1 on exceed a mini-batch of 4"),
        (None, lambda t, x: t.backward(x[:, :D_SIZE], first=3, of=6), pl.InputError,
         "d has 4 rows.*first = 3.*of 6 rows; give"),
        (None, lambda t, x: t.forward(x, of=2**45), pl.InputError,
         "would exceed the 17592186044416"),
        (AVERAGE, lambda t, x: t.forward(x, of=8), pl.ConfigError,
         "'average_abs_max'.*choose 'abs_max'"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused(
    config: pl.TileConfig | None,
    call: Callable[[pl.Tile, Any], object],
    error: type[Exception],
    message: str,
) -> None:
    tile = make_tile(config or CONFIGS["single"]())
    before = tile.state()
    with pytest.raises(error, match=message):
        call(tile, np.ones((4, X_SIZE), np.float32))
    assert tile.state().values == before.values


def test_a_whole_batch_is_no_part() -> None:
    tile, other = make_tile(AVERAGE), make_tile(AVERAGE)
    x, _ = make_batch(4)
    assert same_bits([tile.forward(x, first=0, of=4)], [other.forward(x)])
