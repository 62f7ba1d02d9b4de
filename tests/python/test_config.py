from __future__ import annotations

import copy
import inspect
import json
import pickle
import random
import re
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulsora as pl
from conftest import CONFIGS, make_tile, repetitions
from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = [
    pl.UpdateParameters,
    pl.IOParameters,
    *pl.config.CLASSES.values(),
    *(getattr(pl.devices, model) for model in pl.devices.MODELS),
]


@pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)
def test_defaults_round_trip(made: type[pl.TileConfig]) -> None:
    config = made()
    plain = json.loads(json.dumps(config.to_dict()))
    assert made.from_dict(plain) == config
    assert repr(config) == f"{made.__name__}()"
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
    assert [field.name for field in fields(made)] == list(inspect.signature(made).parameters)
    for name in inspect.signature(made).parameters:
        assert f"    {name}: " in made.__doc__


@pytest.mark.parametrize("name", CONFIGS)
def test_a_tile_gives_back_its_configuration(name: str) -> None:
    config = CONFIGS[name]()
    assert pl.Tile(6, 10, config).config == config
    assert pl.TileConfig.from_dict(config.to_dict()) == config
    assert type(config).from_dict(config.to_dict()) == config


def test_values_are_kept_as_the_core_keeps_them() -> None:
    device = pl.devices.SoftBounds(dw_min=1 / 3, w_max=np.float32(0.7), mult_noise=np.bool_(0))
    assert np.float32(device.dw_min) == np.float32(1 / 3)
    assert type(device.w_max) is float
    assert device.mult_noise is False
    assert pl.LRTTConfig(rank=4.0).rank == 4
    assert pl.LRTTConfig(lora_alpha=2).lora_alpha == 2.0
    assert pl.LRTTConfig().lora_alpha == "auto"
    assert pl.devices.PiecewiseStep(piecewise_up=np.ones(3)).piecewise_up == (1.0, 1.0, 1.0)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    config = pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(dw_min=0.01))
    assert repr(config) == "LRTTConfig(rank=2, visible=SoftBounds(dw_min=0.01))"
    assert eval(repr(config), vars(pl) | vars(pl.devices)) == config  # noqa: S307


def test_print_shows_every_parameter_and_what_differs_from_the_defaults() -> None:
    lines = str(pl.IOParameters(out_noise=0.5)).splitlines()
    assert lines[0] == "IOParameters"
    assert [line.split()[0] for line in lines[1:]] == list(pl.IOParameters().to_dict())
    assert "  bound_management        'iterative'" in lines
    assert [line for line in lines if "default" in line] == [
        "  out_noise               0.5  (default 0.06)"
    ]
    text = str(pl.LRTTConfig(visible=pl.devices.SoftBounds(dw_min=0.25)))
    assert re.search(r"\n  visible +SoftBounds\n    dw_min +0.25  \(default 0.001\)\n", text)


def test_replace_and_assignment_check() -> None:
    config = pl.LRTTConfig(rank=2)
    assert config.replace(rank=3) == pl.LRTTConfig(rank=3)
    assert config == pl.LRTTConfig(rank=2)
    assert config != pl.LRTTConfig(rank=3)
    config.rank = 5
    assert config.rank == 5
    with pytest.raises(pl.ConfigError, match=r"LRTTConfig.rank is -1; it must be >= 0"):
        config.rank = -1
    with pytest.raises(pl.ConfigError, match="did you mean 'rank'"):
        config.ran = 3
    with pytest.raises(AttributeError, match="default"):
        del config.rank
    assert config.rank == 5
    config.visible.dw_min = 0.01
    assert config.to_dict()["visible"]["dw_min"] == 0.01


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("device", pl.devices.EcRam),
        ("device", pl.devices.ConstantStep),
        ("forward", pl.IOParameters),
    ],
)
def test_forgotten_brackets_are_pointed_out(name: str, made: Callable[[], object]) -> None:
    message = rf"SingleConfig\.{name} is (\w+) itself, .*did you mean \1\(\)\?"
    with pytest.raises(pl.ConfigError, match=message):
        pl.SingleConfig(**{name: made})
    with pytest.raises(pl.ConfigError, match=message):
        pl.SingleConfig().replace(**{name: made})
    assert pl.SingleConfig(**{name: made()}) is not None


def test_ideal_reads_are_perfect_unless_told_otherwise() -> None:
    assert pl.IdealConfig().forward.is_perfect
    assert pl.IdealConfig().backward.is_perfect
    assert not pl.IdealConfig(forward=pl.IOParameters()).forward.is_perfect
    assert not pl.SingleConfig().forward.is_perfect


def test_presets_are_devices_too() -> None:
    device = pl.devices.EcRam(dw_min_std=0.0)
    assert isinstance(device, pl.devices.LinearStep)
    assert device.dw_min_std == 0.0
    with pytest.raises(AttributeError, match="did you mean 'EcRam'"):
        pl.devices.EcRan  # noqa: B018


NAMES = sorted({name for made in CLASSES for name in inspect.signature(made).parameters})
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["auto", "alpha", "none", "lrtt", "single", "ideal", "SoftBounds", "abs_max"]),
)
KEYS = st.one_of(st.sampled_from([*NAMES, "kind", "lrtt", "model", "device"]), st.text(max_size=3))
TREES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4), st.tuples(inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(KEYS, TREES, max_size=5), st.sampled_from(["TileConfig", *pl.devices.MODELS])
)
@settings(max_examples=500, deadline=None)
def test_any_table_is_read_or_refused(values: dict[str, Any], struct: str) -> None:
    try:
        complete = _core.validate(struct, values, "config")
    except pl.ConfigError:
        pass
    else:
        assert _core.validate(struct, complete, "config") == complete


WRONG: list[object] = [None, True, -1, 0, 3, 2**80, -1e300, 1e-46, float("nan"), float("inf")]
WRONG += ["", "none", "auto", "SoftBounds", "\ud800", [], [1.0] * 100, {}, {"model": "x"}]
WRONG += [b"x", object(), 1j]


def _broken(rng: random.Random, values: object, depth: int = 0) -> object:
    """A table with one entry somewhere replaced, renamed or dropped."""
    if not isinstance(values, dict) or not values or (depth and rng.random() < 0.3):
        return rng.choice(WRONG)
    name = rng.choice(list(values))
    kind = rng.random()
    rest = {key: value for key, value in values.items() if key != name}
    if kind < 0.1:
        return rest
    if kind < 0.2:
        return rest | {rng.choice([name[:-1], name + "_", "", 7, None]): values[name]}
    return values | {name: _broken(rng, values[name], depth + 1)}


def test_a_hundred_thousand_damaged_tables_are_read_or_refused() -> None:
    rng = random.Random(0)  # noqa: S311
    tables = [make_tile(make())._core.config() for make in CONFIGS.values()]
    refused = 0
    count = repetitions(100_000)
    for _ in range(count):
        try:
            _core.validate("TileConfig", _broken(rng, rng.choice(tables)), "")
        except pl.ConfigError:  # noqa: PERF203
            refused += 1
    assert 0.3 * count < refused < 0.95 * count


def test_damaged_configurations_are_read_or_refused() -> None:
    rng = random.Random(1)  # noqa: S311
    tables = [make().to_dict() for make in CONFIGS.values()]
    tables += [make_tile(make())._core.config() for make in CONFIGS.values()]
    refused = 0
    for _ in range(4000):
        table = _broken(rng, rng.choice(tables))
        try:
            made = pl.TileConfig.from_dict(table if isinstance(table, dict) else {"kind": table})
        except pl.ConfigError:
            refused += 1
        else:
            assert pl.TileConfig.from_dict(made.to_dict()) == made
    assert 1000 < refused < 3800


# The kinds that version 1 had.
EARLIEST = [name for name, make in CONFIGS.items() if make().kind in {"ideal", "single", "lrtt"}]


@pytest.mark.parametrize("name", EARLIEST)
def test_tables_of_earlier_versions_are_read(name: str) -> None:
    config = CONFIGS[name]()
    flat = config.to_dict()
    own = {field["name"] for field in pl.config.COMPOUNDS["lrtt"]["fields"]}
    adapter = {key: value for key, value in flat.items() if key in own}
    rest = {key: value for key, value in flat.items() if key not in own}
    # What to_dict() gave, and the table of all kinds that was saved.
    assert pl.TileConfig.from_dict(rest | ({"lrtt": adapter} if adapter else {})) == config
    every = pl.LRTTConfig(rank=2).to_dict()
    whole = {"device": pl.devices.PowStep().to_dict(), "update": every["update"]}
    whole["lrtt"] = {key: every[key] for key in own} | adapter
    assert pl.TileConfig.from_dict(whole | rest) == config
    with pytest.raises(pl.ConfigError, match="lrtt is not a parameter"):
        pl.TileConfig.from_dict(rest | {"lrtt": 3})


def test_what_is_valid_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device, forward = pl.devices.SoftBounds(dw_min=0.01), {"out_noise": 0.1}
    checked: list[tuple[str, Any]] = []
    honest = _core.validate

    def validate(name: str, values: Any, path: str) -> Any:  # noqa: ANN401
        checked.append((name, values))
        return honest(name, values, path)

    monkeypatch.setattr(_core, "validate", validate)
    config = pl.SingleConfig(device=device, forward=forward)
    assert config.device is device
    assert config.forward.out_noise == np.float32(0.1)
    ((_, values),) = checked
    assert values.get("device") is None
    assert values["forward"] == forward
    with pytest.raises(pl.ConfigError, match=r"SingleConfig\.device"):
        pl.SingleConfig(device=pl.IOParameters())
    with pytest.raises(pl.ConfigError, match=r"SingleConfig\.forward"):
        pl.SingleConfig(forward=device)


def test_a_configuration_says_what_it_is_made_of() -> None:
    config = pl.LRTTConfig(rank=2, fast=pl.devices.EcRam(), projection="reuse", update={})
    assert list(config.named_devices().items()) == [
        ("visible", config.visible),
        ("fast", config.fast),
    ]
    assert config.facts.reuses_reads
    assert config.summary() == (
        "LRTTConfig(rank=2, visible=ConstantStep, fast=LinearStep, projection='reuse')"
    )
    assert pl.SingleConfig().summary() == "SingleConfig(device=ConstantStep)"
    assert not pl.SingleConfig().facts.reuses_reads
    assert pl.IdealConfig().summary() == "IdealConfig()"
    programmed = pl.InferenceConfig(noise_model=pl.noise_models.Hermes())
    assert programmed.summary() == "InferenceConfig(noise_model=Hermes)"
    pulsed = programmed.replace(write="pulses")
    assert (
        pulsed.summary()
        == "InferenceConfig(noise_model=Hermes, write='pulses', device=ConstantStep)"
    )
    assert pl.IdealConfig().named_devices() == {}


def test_torch_is_not_needed() -> None:
    code = "import sys, pulsora.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_a_table_that_contains_itself_is_refused() -> None:
    values: dict[str, Any] = {}
    values["lrtt"] = values
    with pytest.raises(pl.ConfigError, match="does it contain itself"):
        _core.validate("TileConfig", values, "")
