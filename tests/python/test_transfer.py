"""Chains of arrays (TransferConfig): recorded results, splits, states, schedules, bad settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from recorded_cases import TOLERANCE, cases, inputs
from transfer_cases import EXACT_READ, arrays_of, config_of, difference, to_meet

DETERMINISTIC = [case for case in cases("transfer") if "repeats" not in case]


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in listed]


@pytest.mark.parametrize("case", DETERMINISTIC, ids=names(DETERMINISTIC))
def test_recorded_results_without_noise(case: dict[str, Any]) -> None:
    x, d, weights = inputs(case)
    tile = pl.Tile(*weights.shape, config_of(case), seed=1)
    tile.weights = weights
    batch = case["inputs"]["m_batch"]
    expected = {each["after_minibatches"]: each for each in case["expected"]}
    worst = dict.fromkeys(to_meet(case), 0.0)
    for n in range(len(x) // batch):
        rows = slice(n * batch, (n + 1) * batch)
        tile.update(x[rows], d[rows], lr=case["lr"])
        if n + 1 in expected:
            found = arrays_of(tile)
            for key in worst:
                off = difference(found, expected[n + 1][key])
                worst[key] = max(worst[key], off)
    assert min(worst.values()) <= TOLERANCE, worst


# --- splits, states, schedules

CELLS = pl.devices.SoftBounds(dw_min=0.01, write_noise_std=0.5)
LINES = {
    "v1": pl.TikiTaka(CELLS, units_in_mbatch=False, transfer_every=3, with_reset_prob=0.3),
    "v1, random rows": pl.TikiTaka(
        CELLS,
        units_in_mbatch=False,
        transfer_every=2,
        n_reads_per_transfer=2,
        random_selection=True,
        transfer_columns=False,
        gamma=0.3,
    ),
    "v1, mini-batches": pl.TikiTaka(CELLS, transfer_every=2, n_reads_per_transfer=3),
    "v2": pl.TTv2(CELLS, units_in_mbatch=False, transfer_every=1, step=0.5),
    "chain": pl.TTv2(
        CELLS, [CELLS, CELLS], units_in_mbatch=False, transfer_every_vec=[1, 5], gamma=0.2
    ),
    "chopped": pl.ChoppedTTv2(
        CELLS, in_chop_prob=0.4, out_chop_prob=0.4, fast_lr=0.05, gamma=0.5, auto_granularity=20
    ),
    "dynamic": pl.AGAD(CELLS, in_chop_prob=0.3, fast_lr=0.1, auto_scale=True),
}


def state_of(tile: pl.Tile) -> bytes:
    return pl.state.dumps(tile.state())


def trained(config: pl.TransferConfig, cut: int, *, resume: bool) -> bytes:
    rng = np.random.default_rng(3)
    tile = pl.Tile(6, 5, config, seed=9)
    for n in range(8):
        x = rng.standard_normal((13, 5)).astype("f")
        d = 0.2 * rng.standard_normal((13, 6)).astype("f")
        if n == 0 or cut == 0:  # auto_scale learns the size of a mini-batch from the first one
            tile.update(x, d, lr=0.1)
        else:
            for first in range(0, 13, cut):
                rows = slice(first, first + cut)
                tile.update(x[rows], d[rows], lr=0.1, end_of_batch=first + cut >= 13)
        if resume and n == 4:
            state = tile.state()
            tile = pl.Tile(6, 5, config, seed=9)
            tile.load_state(state)
    return state_of(tile)


@pytest.mark.parametrize("name", LINES)
def test_property_37_splits_and_states_keep_every_bit(name: str) -> None:
    whole = trained(LINES[name], 0, resume=False)
    for cut in (1, 4, 7):
        assert trained(LINES[name], cut, resume=False) == whole, cut
    assert trained(LINES[name], 4, resume=True) == whole


@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize("batch", [1, 5, 20])
def test_property_42_floor_of_n_by_period_events(every: int, batch: int) -> None:
    config = pl.TTv2(CELLS, units_in_mbatch=False, transfer_every=every, n_reads_per_transfer=2)
    tile = pl.Tile(4, 5, config, seed=1)
    x, d = np.ones((100, 5), "f"), np.ones((100, 4), "f")
    for first in range(0, 100, batch):
        tile.update(x[first : first + batch], d[first : first + batch], lr=0.01)
    assert tile.statistics()["lines_read"] == [2 * (100 // every)]


@pytest.mark.parametrize(
    ("config", "clipped"),
    [
        # 3.5 steps wait in the buffer, and a write takes one of them.
        (pl.TTv2(CELLS, transfer_lr=3.5, thres_scale=30.0), 2),
        # 105.6 steps, and a pulse train has 31 slots.
        (pl.TikiTaka(CELLS, transfer_lr=3.52), 74),
        (pl.TTv2(CELLS, transfer_lr=0.9, thres_scale=30.0), 0),
    ],
    ids=["sum", "trains", "none"],
)
def test_steps_that_a_write_cannot_make_are_counted(config: pl.TileConfig, clipped: int) -> None:
    quiet = CELLS.replace(write_noise_std=0.0, w_max_dtod=0.0)
    exact = {"transfer_forward": pl.IOParameters(is_perfect=True), "scale_transfer_lr": False}
    tile = pl.Tile(4, 5, config.replace(visible=quiet, fast=[quiet], **exact), seed=1)
    tile.arrays["fast_0"] = np.full((4, 5), 30 * quiet.dw_min, "f")
    tile.update(np.zeros((1, 5), "f"), np.zeros((1, 4), "f"), lr=0.01)
    assert tile.statistics()["steps_clipped"] == [4 * clipped]  # of the column that was read
    again = pl.Tile.from_state(tile.state())
    assert again.statistics() == tile.statistics()


def test_property_42_without_gamma_w_is_the_visible_array() -> None:
    tile = pl.Tile(4, 5, pl.AGAD(CELLS, fast_lr=0.1), seed=1)
    cells = tile.statistics()["memory_bytes"]
    x = np.random.default_rng(1).standard_normal((50, 5)).astype("f")
    for _ in range(20):
        tile.update(x, x[:, :4], lr=0.1)
        np.testing.assert_array_equal(tile.weights, tile.arrays["visible"])
        tile.forward(x)
    assert tile.statistics()["memory_bytes"] == cells


def test_setting_weights_starts_buffers_and_lines_anew() -> None:
    quiet = CELLS.replace(write_noise_std=0.0)
    config = pl.ChoppedTTv2(quiet, in_chop_prob=1.0, fast_lr=0.1)
    tile = pl.Tile(4, 5, config, seed=1)
    x = np.ones((7, 5), "f")
    tile.update(x, x[:, :4], lr=0.1)
    tile.weights = np.zeros((4, 5))
    tensors = tile.state().tensors
    buffer = next(v for k, v in tensors.items() if k.endswith("transfer_0/buffer"))
    signs = next(v for k, v in tensors.items() if k.endswith("transfer_0/line_signs"))
    assert not buffer.any()
    assert (signs == 1).all()
    assert not tile.arrays["fast_0"].any()


BAD = {
    "fast_0 merges": (
        {"fast": [pl.devices.ConstantStep(noise_merge="batch")]},
        "noise_merge is 'batch'",
    ),
    "digital": ({"update": pl.UpdateParameters(pulse_type="none")}, "would pass by the chain"),
    "fraction": ({"transfer_every": 1.5}, "units_in_mbatch = False"),
    "negative": ({"transfer_every": -1}, "take a period"),
    "gamma_vec": ({"gamma_vec": [1.0]}, "takes 2, or an empty list"),
    "last gamma": ({"gamma_vec": [1.0, 0.0]}, "ends with 0"),
    "chop many": ({"buffer": "chopped", "fast": [CELLS, CELLS]}, "take one"),
    "chop random": ({"buffer": "chopped", "random_selection": True}, "set it to False"),
    "chop reset": ({"buffer": "dynamic", "with_reset_prob": 0.5}, "do not reset"),
    "chop threshold": ({"buffer": "chopped", "thres_scale": 2.0}, "buffer_granularity"),
    "no chopping": ({"buffer": "dynamic", "in_chop_prob": 0.0}, "give a probability > 0"),
    "managed reads": ({"transfer_forward": pl.IOParameters()}, "noise_management"),
    "wires": (
        {
            "transfer_forward": pl.IOParameters(
                noise_management="none", bound_management="none", ir_drop=1.0
            )
        },
        "ir_drop",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_name_the_remedy(name: str) -> None:
    settings, message = BAD[name]
    with pytest.raises(pl.ConfigError, match=message):
        pl.Tile(4, 5, pl.TransferConfig(visible=CELLS, **({"fast": [CELLS]} | settings)), seed=1)


# --- identities

IDEAL = pl.devices.ConstantStep(
    dw_min=2**-10,
    w_max=8,
    w_min=-8,
    dw_min_std=0.0,
    **dict.fromkeys(("dw_min_dtod", "w_max_dtod", "w_min_dtod", "up_down_dtod"), 0.0),
    reset_std=0.0,
)
COUNTED = pl.UpdateParameters(
    pulse_type="deterministic_implicit", update_management=False, update_bl_management=False
)
EXACT = {"transfer_forward": EXACT_READ, "update": COUNTED}


def batches(count: int, seed: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.uniform(-1, 1, (6, 5)).astype("f"), rng.uniform(-1, 1, (6, 4)).astype("f"))
        for _ in range(count)
    ]


def test_property_42_v1_with_exact_transfers_is_delayed_sgd() -> None:
    """All that a line has gained since its last read goes to the visible array, exactly."""
    config = pl.TikiTaka(
        IDEAL,
        units_in_mbatch=False,
        transfer_every=2,
        with_reset_prob=1.0,
        scale_transfer_lr=False,
        transfer_update=pl.UpdateParameters(pulse_type="none_with_device"),
        **EXACT,
    )
    chain = pl.Tile(4, 5, config, seed=1)
    alone = pl.Tile(4, 5, pl.SingleConfig(device=IDEAL, update=COUNTED), seed=1)
    for x, d in batches(30):
        chain.update(x, d, lr=0.02)
        alone.update(x, d, lr=0.02)
        np.testing.assert_array_equal(
            chain.arrays["visible"] + chain.arrays["fast_0"], alone.weights
        )
    assert chain.arrays["visible"].any()


def test_property_42_chopped_without_changes_of_sign_is_v2() -> None:
    """Sums in steps and in weights agree to the bit where their units differ by a power of 2."""
    same = {"units_in_mbatch": False, "scale_transfer_lr": False, "momentum": 0.25, **EXACT}
    chopped = pl.ChoppedTTv2(
        IDEAL, in_chop_prob=0.0, **(same | {"scale_fast_lr": True, "transfer_lr": 0.5})
    )
    tiles = [pl.Tile(4, 5, c, seed=1) for c in (pl.TTv2(IDEAL, transfer_lr=0.5, **same), chopped)]
    for x, d in batches(40):
        for tile in tiles:
            tile.update(x, d, lr=0.02)
        np.testing.assert_array_equal(*[tile.weights for tile in tiles])
    assert tiles[0].weights.any()


def test_property_42_agad_does_not_depend_on_the_offset_of_the_fast_array() -> None:
    config = pl.AGAD(
        IDEAL, in_chop_prob=0.25, fast_lr=1.0, scale_fast_lr=True, scale_transfer_lr=False, **EXACT
    )
    weights = []
    for offset in (0.0, 0.5, -1.0):
        tile = pl.Tile(4, 5, config, seed=1)
        tile.fast_0 = np.full((4, 5), offset)
        for x, d in batches(40):
            tile.update(x, d, lr=0.02)
        weights.append(tile.weights)
    assert weights[0].any()
    np.testing.assert_allclose(weights[1], weights[0], atol=2e-3)  # sums of other roundings
    np.testing.assert_allclose(weights[2], weights[0], atol=2e-3)
