from __future__ import annotations

import json
import math
import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import pulsora as pl
from conftest import CONFIGS, make_batch, make_tile, repetitions, same_bits, train
from pulsora import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Edit = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_property_38_resume_equals_an_uninterrupted_run(
    config: pl.TileConfig, steps: int, tmp_path: Path
) -> None:
    path = tmp_path / "tile.safetensors"
    tile = make_tile(config)
    train(tile, steps)
    tile.save(path)
    resumed = pl.Tile.load(path, threads=1)
    assert resumed.config == config
    assert resumed.counters == tile.counters
    assert resumed.statistics() == tile.statistics()
    assert same_bits(train(tile, 4, steps), train(resumed, 4, steps))
    assert tile.statistics() == resumed.statistics()


def test_property_38_resume_within_a_mini_batch(config: pl.TileConfig) -> None:
    x, d = make_batch(5)
    tile = make_tile(config)
    tile.update(x, d, 0.05)
    tile.update(x, d, 0.05, end_of_batch=False)
    resumed = pl.Tile.from_state(tile.state(), threads=1)
    for each in (tile, resumed):
        each.update(2.0 * x, d, 0.05)
    assert same_bits([tile.weights], [resumed.weights])


def test_property_38_what_accumulated_updates_owe_is_saved(tmp_path: Path) -> None:
    config = pl.LRTTConfig(
        rank=3, fast=pl.devices.SoftBounds(dw_min=0.01), ab_update="accumulated", transfer_every=3
    )
    x, d = make_batch(5)
    tile = make_tile(config)
    train(tile, 4)
    tile.update(x, d, 0.05, end_of_batch=False)
    tile.save(tmp_path / "tile.safetensors")
    resumed = pl.Tile.load(tmp_path / "tile.safetensors", threads=1)
    assert resumed.config == config
    assert tile.statistics()["pulses_a"] > 0
    assert same_bits(train(tile, 4), train(resumed, 4))
    assert tile.statistics() == resumed.statistics()
    other = make_tile(config.replace(ab_update="sample"))
    with pytest.raises(pl.StateError):
        other.load_state(tile.state())


def test_tensors_alone_hold_a_state(config: pl.TileConfig) -> None:
    tile = make_tile(config)
    train(tile, 2)
    saved = state.from_tensors(state.to_tensors(tile.state()))
    other = make_tile(config)
    other.load_state(saved)
    assert same_bits(train(tile, 2), train(other, 2))


def test_a_file_is_plain_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    tile = make_tile(CONFIGS["lrtt"]())
    tile.save(path)
    tensors = safetensors.numpy.load_file(path)
    assert same_bits([tensors["visible/weights"]], [tile.visible])
    assert list(tmp_path.iterdir()) == [path]


def _edited(data: bytes, edit: Edit) -> bytes:
    """A file of version 2, which had no checksum, with an edited header."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    values = json.loads(header["__metadata__"].pop(state.FORMAT))
    header["__metadata__"][state.FORMAT] = values
    del values["checksum"]
    values["version"] = 2
    edit(header, values)
    if header["__metadata__"]:
        header["__metadata__"] = {key: json.dumps(v) for key, v in header["__metadata__"].items()}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _renamed(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["weightz"] = header.pop("weights")


def _reshaped(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["weights"]["shape"].reverse()


def _retyped(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["weights"]["dtype"] = "I32"


def _foreign(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["__metadata__"] = {"format": "pt"}


def _many_axes(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["weights"]["shape"] += [1] * 64


def _large_axis(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["weights"] |= {"shape": [0, 2**63], "data_offsets": [0, 0]}


EDITS: list[tuple[str, Edit, str]] = [
    ("version", lambda _, v: v.update(version=3), "version 3 but has no value 'checksum'"),
    (
        "old version",
        lambda _, v: v.update(version=0),
        "version 0; this build reads versions 1 to 5",
    ),
    ("no version", lambda _, v: v.pop("version"), "no count 'version'"),
    ("seed", lambda _, v: v.update(seed=[]), r"seed is \[\]; it must be a number, as text"),
    ("infinite seed", lambda _, v: v.update(seed=math.inf), "table of values is damaged"),
    ("no config", lambda _, v: v.pop("config"), "no 'config'"),
    ("bad config", lambda _, v: v["config"].update(kind="x"), "'x', which is not a choice"),
    ("bad parameter", lambda _, v: v["config"]["device"].update(dw_min=-1), "dw_min is -1"),
    ("huge", lambda _, v: v.update(d_size=10**6, x_size=10**6), "too few for a tile"),
    ("beyond", lambda _, v: v.update(d_size=2**62, x_size=2**62), "too few for a tile"),
    ("infinite", lambda _, v: v.update(d_size=math.inf), "table of values is damaged"),
    ("not a number", lambda _, v: v.update(d_size=math.nan), "table of values is damaged"),
    ("negative", lambda _, v: v.update(d_size=-6), "no count 'd_size'"),
    ("not whole", lambda _, v: v.update(d_size=6.5), "no count 'd_size'"),
    ("counter", lambda _, v: v.update(update_samples=-1), "no count 'update_samples'"),
    ("large counter", lambda _, v: v.update(update_samples=2**50), "'update_samples' is"),
    ("larger counter", lambda _, v: v.update(update_samples=2**70), "beyond 64 bits"),
    ("text counter", lambda _, v: v.update(mini_batches="1"), "of another kind"),
    ("stranger", lambda _, v: v.update(strange=1), "value 'strange' that this tile does not know"),
    ("renamed tensor", _renamed, "too few"),
    ("reshaped tensor", _reshaped, r"float32\[10, 6\] where float32\[6, 10\] is expected"),
    ("retyped tensor", _retyped, "int32"),
    ("many axes", _many_axes, "has 66 axes"),
    ("large axis", _large_axis, "beyond 64 bits"),
    ("no metadata", lambda h, _: h.update(__metadata__=None), "not the state of a tile"),
    ("foreign", _foreign, "not the state of a tile"),
]


@pytest.mark.parametrize(("edit", "fragment"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edited_file_is_refused(edit: Edit, fragment: str, tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    path.write_bytes(_edited(state.dumps(make_tile(CONFIGS["single"]()).state()), edit))
    with pytest.raises(pl.StateError, match=fragment) as caught:
        pl.Tile.load(path)
    assert str(path) in str(caught.value)


def test_what_is_edited_here_was_loaded_before(tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    tile = make_tile(CONFIGS["single"]())
    path.write_bytes(_edited(state.dumps(tile.state()), lambda *_: None))
    assert same_bits([pl.Tile.load(path).weights], [tile.weights])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_neither_loaded_nor_saved(
    config: pl.TileConfig, value: float
) -> None:
    tile = make_tile(config)
    train(tile, 2)
    before = state.dumps(tile.state())
    for name, array in tile.state().tensors.items():
        saved = tile.state()
        saved.tensors[name] = array.copy()
        saved.tensors[name].flat[-1] = value
        with pytest.raises(pl.StateError, match=f"'{name}' of the state.*not finite"):
            tile.load_state(saved.signed())
        assert state.dumps(tile.state()) == before


def test_a_tile_that_diverged_says_so_when_it_is_saved(tmp_path: Path) -> None:
    tile = pl.Tile(2, 2, pl.IdealConfig())
    tile.weights = np.full((2, 2), 3e38, np.float32)
    tile.save(tmp_path / "tile")
    before = (tmp_path / "tile").read_bytes()
    tile.update(np.full(2, 1e19, np.float32), np.full(2, -1e19, np.float32), 1.0)
    with pytest.raises(pl.InputError, match=r"y\[0, 0\] is inf; the sums of this read"):
        tile.forward(np.ones(2, np.float32))
    with pytest.raises(pl.StateError, match="diverged"):
        tile.save(tmp_path / "tile")
    assert (tmp_path / "tile").read_bytes() == before


def test_a_count_at_its_end_is_saved_and_loaded() -> None:
    """Counts of pulses stay at the largest number, instead of turning negative."""
    tile = make_tile(CONFIGS["single"]())
    saved = tile.state()
    saved.values["pulses"] = 2**63 - 1
    tile.load_state(saved.signed())
    train(tile, 2)
    assert tile.statistics()["pulses"] == 2**63 - 1
    assert pl.Tile.from_state(tile.state()).state().values["pulses"] == 2**63 - 1
    tile = make_tile(CONFIGS["lrtt"]())
    saved = tile.state()
    full = [f"transfer/total/{name}" for name in ("sendings", "trains", "pulses")]
    saved.values.update(dict.fromkeys(full, 2**63 - 1))
    tile.load_state(saved.signed())
    train(tile, 2)
    tile.adapter.transfer()
    values = pl.Tile.from_state(tile.state()).state().values
    assert [values[name] for name in full] == [2**63 - 1] * 3


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    data = state.dumps(make_tile(CONFIGS["lrtt"]()).state())
    path = tmp_path / "tile.safetensors"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(pl.StateError, match=r"complete safetensors file.*cut short"):
        pl.Tile.load(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"weights": np.zeros((6, 10), np.float32)}, path)
    with pytest.raises(pl.StateError, match="not the state of a tile"):
        pl.Tile.load(path)
    with pytest.raises(FileNotFoundError):
        pl.Tile.load(tmp_path / "missing.safetensors")


@pytest.mark.parametrize("other", ["ideal", "lrtt", "write_noise"])
def test_the_state_of_another_tile_changes_nothing(other: str) -> None:
    tile = make_tile(CONFIGS["single"]())
    train(tile, 2)
    before = state.dumps(tile.state())
    with pytest.raises(pl.StateError, match=r"another|lacks|no tensor"):
        tile.load_state(make_tile(CONFIGS[other]()).state())
    with pytest.raises(pl.StateError, match="another 'seed'"):
        tile.load_state(make_tile(CONFIGS["single"](), seed=6).state())
    assert state.dumps(tile.state()) == before


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    tile = make_tile(CONFIGS["ideal"]())
    tile.save(path)
    before = path.read_bytes()
    with pytest.raises(pl.StateError, match=r"state\.unsaveable is an object of type object"):
        state.save(pl.State({}, {"unsaveable": object()}), path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tile.save(tmp_path / "nowhere" / "tile")
    with pytest.raises(IsADirectoryError):
        tile.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pl.Tile.load(tmp_path / "nowhere")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def _mutated(rng: random.Random, data: bytes) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = (
            rng.randrange(len(mutant))
            if rng.random() < 0.2
            else rng.randrange(len(mutant) * 9 // 10)
        )
        kind = rng.random()
        if kind < 0.6:
            mutant[at] = rng.randrange(256)
        elif kind < 0.8:
            del mutant[at : at + rng.randint(1, 8)]
        else:
            mutant[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(mutant)


@pytest.mark.parametrize("name", ["single", "lrtt"])
def test_fifty_thousand_damaged_files_are_read_or_refused(name: str) -> None:
    rng = random.Random(name)  # noqa: S311
    config = CONFIGS[name]()
    if isinstance(config, pl.LRTTConfig):
        config.rank = 1
    data = state.dumps(pl.Tile(2, 2, config, threads=1).state())
    refused = 0
    count = repetitions(50_000)
    for _ in range(count):
        try:
            tile = pl.Tile.from_state(state.loads(_mutated(rng, data)), threads=1)
        except pl.StateError:  # noqa: PERF203
            refused += 1
        else:  # what was read can be used
            tile.update(np.ones((9, 2), np.float32), np.ones((9, 2), np.float32), 0.1)
    assert 0.98 * count < refused <= count


def test_what_is_no_state_is_refused() -> None:
    tile = make_tile(pl.SingleConfig())
    before = state.dumps(tile.state())
    wrong: Any = {"tensors": {}, "values": {}}
    with pytest.raises(TypeError, match=r"saved is of type dict; give a State, as of tile\.state"):
        tile.load_state(wrong)
    with pytest.raises(TypeError, match=r"data is of type dict; give bytes, as of dumps\(state\)"):
        state.loads(wrong)
    assert state.dumps(tile.state()) == before
