"""Settings of compounds that have no effect beside the others: refused, or left out of what
earlier versions saved."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import same_bits

CELLS = pl.devices.SoftBounds(dw_min=0.01)
CHOPPED = {"buffer": "chopped"}
DYNAMIC = {"buffer": "dynamic"}
SUM = {"buffer": "sum"}

UNUSED: list[tuple[dict[str, Any], str, Any, str]] = [
    ({}, "step", 0.5, "only buffer = 'sum', 'chopped' and 'dynamic' use it; leave it at 1"),
    ({}, "momentum", 0.5, "leave it at 0.1"),
    ({}, "forget_buffer", False, "leave it at True"),
    ({}, "thres_scale", 2.0, "only buffer = 'sum' uses it"),
    *(
        (base, name, value, "only buffer = 'chopped' and 'dynamic' use it")
        for base in ({}, SUM)
        for name, value in (
            ("in_chop_prob", 0.5),
            ("in_chop_random", False),
            ("out_chop_prob", 0.5),
            ("buffer_granularity", 2.0),
            ("auto_granularity", 100.0),
        )
    ),
    *(
        (base, "auto_momentum", 0.5, "only auto_scale = True uses it")
        for base in ({}, SUM, CHOPPED, DYNAMIC)
    ),
    *(
        (base, "tail_weightening", 2.0, "only buffer = 'dynamic' uses it")
        for base in ({}, SUM, CHOPPED)
    ),
    *((base, "buffer_cap", 2.0, "forget_buffer = False") for base in ({}, SUM, CHOPPED, DYNAMIC)),
    (CHOPPED | {"no_buffer": True}, "forget_buffer", False, "no_buffer = True keeps nothing"),
    ({"gamma_vec": [0.5, 1.0]}, "gamma", 0.5, "gamma_vec takes its place; leave it at 0"),
    ({"transfer_every_vec": [2]}, "transfer_every", 3.0, "transfer_every_vec takes its place"),
    ({"transfer_lr_vec": [2.0]}, "transfer_lr", 3.0, "transfer_lr_vec takes its place"),
]


def config(**settings: Any) -> pl.TransferConfig:
    return pl.TransferConfig(**({"visible": CELLS, "fast": [CELLS]} | settings))


@pytest.mark.parametrize(("base", "name", "value", "said"), UNUSED)
def test_a_setting_without_effect_is_refused(
    base: dict[str, Any], name: str, value: object, said: str
) -> None:
    made = config(**base)
    shown = f"{value:g}" if isinstance(value, float) else f"{value}"
    with pytest.raises(pl.ConfigError, match=f"{name} is {shown}, but ") as caught:
        config(**base, **{name: value})
    assert said in str(caught.value)
    with pytest.raises(pl.ConfigError, match=name):
        setattr(made, name, value)
    assert made == config(**base)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fixed_bl", False),
        ("um_grad_scale", 2.0),
        ("res", 0.5),
        ("sto_round", True),
        ("x_res_implicit", 0.5),
        ("d_res_implicit", 0.5),
    ],
)
def test_settings_of_pulse_trains_are_refused_with_buffers(name: str, value: object) -> None:
    writes = pl.UpdateParameters(**{name: value})
    pl.Tile(3, 4, config(transfer_update=writes), seed=1)
    for base in (SUM, CHOPPED, DYNAMIC):
        made = config(**base, transfer_update=writes)
        with pytest.raises(pl.ConfigError, match=rf"transfer_update\.{name} is .*numbers of puls"):
            pl.Tile(3, 4, made, seed=1)


def test_settings_that_have_an_effect_are_taken() -> None:
    config(**SUM, thres_scale=2.0, step=0.5, momentum=0.5, forget_buffer=False)
    config(**CHOPPED, in_chop_prob=0.5, in_chop_random=False, out_chop_prob=0.5, no_buffer=True)
    pl.ChoppedTTv2(CELLS, no_buffer=True)
    config(**CHOPPED, auto_scale=True, auto_momentum=0.5, auto_granularity=100.0)
    config(**DYNAMIC, tail_weightening=2.0, forget_buffer=False, buffer_cap=2.0)
    config(**DYNAMIC, buffer_granularity=2.0, momentum=0.5)


def test_named_constructors_and_presets_can_be_made_and_read_back() -> None:
    made = [make(CELLS) for make in (pl.TikiTaka, pl.TTv2, pl.ChoppedTTv2, pl.AGAD)]
    made += [
        getattr(pl.presets, name)()
        for name in pl.presets.__all__
        if name.endswith(("TikiTaka", "TTv2", "AGAD"))
    ]
    assert len(made) == 4 + 6 * 4
    for each in made:
        assert pl.TileConfig.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_configurations_of_earlier_versions_load_with_a_warning() -> None:
    saved = config(**SUM).to_dict()
    saved |= {"out_chop_prob": 0.5, "tail_weightening": 2.0}
    saved["transfer_update"] |= {"res": 0.25}
    with pytest.warns(UserWarning, match="has no effect") as told:
        found = pl.TileConfig.from_dict(saved)
    assert found == config(**SUM)
    said = "\n".join(str(each.message) for each in told)
    for part in ("out_chop_prob is 0.5", "tail_weightening is 2.0", "transfer_update.res is 0.25"):
        assert part in said


def test_states_of_earlier_versions_load_and_go_on_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    x, d = rng.normal(size=(2, 8, 4)).astype(np.float32)

    def tile() -> pl.Tile:
        return pl.Tile(4, 4, config(**SUM), seed=1)

    plain = tile()
    plain.update(x, d, 0.1)
    state = plain.state()
    values = dict(state.values)
    values["config"] = values["config"] | {"out_chop_prob": 0.5, "auto_momentum": 0.5}
    values["config"]["transfer_update"] = values["config"]["transfer_update"] | {"res": 0.25}
    earlier = pl.state.State(dict(state.tensors), values).signed()
    for resumed in (pl.Tile.from_state(earlier), tile()):
        resumed.load_state(earlier)
        assert resumed.config == plain.config
        for each in (resumed, plain):
            each.load_state(state)
            each.update(x, d, 0.1)
        assert same_bits([resumed.weights], [plain.weights])


def test_a_period_in_a_list_counts_as_the_period() -> None:
    rng = np.random.default_rng(1)
    x, d = rng.normal(size=(2, 40, 4)).astype(np.float32)
    for period in (2.0, -0.5):
        tiles = [
            pl.Tile(
                4,
                4,
                pl.ChoppedTTv2(CELLS, auto_granularity=100.0, transfer_lr=10.0, **named),
                seed=1,
            )
            for named in ({"transfer_every": period}, {"transfer_every_vec": [period]})
        ]
        for tile in tiles:
            tile.update(x, d, 0.1)
        assert sum(tiles[0].statistics()["lines_read"]) > 0
        assert same_bits([tiles[0].weights], [tiles[1].weights])
        assert (tiles[0].weights != 0).any()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"others": [CELLS]}, "only cells = 'vector' uses it; leave it at its default"),
        ({"gamma_vec": [1.0]}, "only cells = 'vector' uses it"),
        ({"update_policy": "single_random"}, "only cells = 'vector' uses it; leave it at 'all'"),
        ({"cells": "vector", "reference_start": "zero"}, "only cells = 'reference' uses it"),
        ({"cells": "one_sided", "reference_pulses": 3}, "only cells = 'reference' uses it"),
        ({"cells": "reference", "refresh_every": 0}, "only cells = 'one_sided' uses it"),
        ({"refresh_upper_thres": 0.5}, "only cells = 'one_sided' uses it"),
        ({"refresh_lower_thres": 0.5}, "only cells = 'one_sided' uses it"),
        ({"read_io": "per_array"}, "cells = 'single' is one array"),
        ({"random_row": True}, "n_rows_per_transfer = 0 sends all rows; leave it at False"),
        ({"n_d_bins": 4, "stoc_round_x": False}, "n_x_bins = 0 rounds nothing; leave it at True"),
        ({"n_x_bins": 4, "stoc_round_d": False}, "n_d_bins = 0 rounds nothing"),
    ],
)
def test_settings_of_mixed_precision_without_effect_are_refused(
    settings: dict[str, Any], why: str
) -> None:
    name = list(settings)[-1]
    with pytest.raises(pl.ConfigError, match=rf"(^|\.){name} is ") as caught:
        pl.Tile(3, 4, pl.MixedPrecisionConfig(visible=CELLS, **settings), seed=1)
    assert why in str(caught.value)


def test_mixed_precision_of_earlier_versions_loads_with_a_warning() -> None:
    made = pl.MixedPrecisionConfig(visible=CELLS, n_x_bins=4, stoc_round_x=False)
    saved = made.to_dict() | {"random_row": True, "refresh_every": 5}
    with pytest.warns(UserWarning, match="has no effect") as told:
        assert pl.TileConfig.from_dict(saved) == made
    said = "\n".join(str(each.message) for each in told)
    assert "random_row is True" in said
    assert "refresh_every is 5" in said


def test_idle_settings_that_are_arrays_or_devices_are_told_in_short() -> None:
    made = pl.MixedPrecisionConfig(visible=CELLS)
    for factors in (np.array([], np.float32), ()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert pl.TileConfig.from_dict(made.to_dict() | {"gamma_vec": factors}) == made
    with pytest.warns(UserWarning, match=r"gamma_vec is array.*takes its default, \[\]"):
        pl.TileConfig.from_dict(made.to_dict() | {"gamma_vec": np.array([0.5, 0.5])})
    with pytest.warns(UserWarning, match=r"others is \[\{\.\.\.\}\], which"):
        pl.TileConfig.from_dict(made.to_dict() | {"others": [CELLS.to_dict()]})


def test_ranges_that_no_layer_calibrates_and_thresholds_in_the_wrong_order_are_refused() -> None:
    reads = pl.IOParameters(noise_management="input_range")
    with pytest.raises(pl.ConfigError, match="nm_thres, the range, is 0; set nm_thres"):
        pl.Tile(3, 4, pl.MixedPrecisionConfig(visible=CELLS, forward=reads), seed=1)
    with pytest.raises(pl.ConfigError, match=r"refresh_lower_thres is 0\.\d+, above refresh_upper"):
        pl.OneSidedConfig(refresh_lower_thres=0.9)
    with pytest.raises(pl.ConfigError, match=r"transfer_max_pulses is 5, which .*'verified' does"):
        pl.Tile(3, 4, pl.LRTTConfig(transfer_mode="verified", transfer_max_pulses=5), seed=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"transfer_every": 0.5}, r"transfer_every is 0.5; .*half of 64 samples is a period of 32"),
        ({"transfer_every": 1.5, "units_in_mbatch": False}, "counts samples, because units_in_mb"),
        ({"fast": [CELLS] * 2, "transfer_every_vec": [1, 0.5]}, r"transfer_every_vec\[1\] is 0.5"),
    ],
)
def test_periods_that_are_no_whole_numbers_are_refused_with_what_they_count(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(pl.ConfigError, match=said):
        pl.Tile(3, 4, config(**settings), seed=1)
