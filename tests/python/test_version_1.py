"""Files that were saved before states had their present form still load, and go on to the bit.

The files in tests/data/version_1 were written at commit 97f8fcc, each in the middle of a mini-batch
and of a cycle of transfers; `expected.json` holds the SHA-256 of everything that the run gave which
was not interrupted.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import PLAIN_LRTT, train

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

DATA = Path(__file__).resolve().parents[1] / "data" / "version_1"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
TILES = sorted(set(EXPECTED) - {"model"})


def digest(arrays: Iterable[NDArray[np.float32]]) -> str:
    bits = hashlib.sha256()
    for array in arrays:
        bits.update(np.ascontiguousarray(array).tobytes())
    return bits.hexdigest()


@pytest.mark.parametrize("name", TILES)
def test_property_38_a_tile_of_version_1_goes_on_to_the_bit(name: str) -> None:
    tile = pl.Tile.load(DATA / f"{name}.safetensors", threads=1)
    assert digest(train(tile, 4, 3)) == EXPECTED[name]["bits"]
    assert tile.statistics()["pulses"] == EXPECTED[name]["pulses"]
    assert tile.counters == EXPECTED[name]["counters"]
    # What is saved now is of the present version, and is the same tile.
    saved = tile.state()
    assert saved.values["version"] > 1
    again = pl.Tile.from_state(saved, threads=1)
    assert digest(train(again, 2, 7)) == digest(train(tile, 2, 7))


def go_on(tiles: Iterable[pl.Tile]) -> list[NDArray[np.float32]]:
    seen = []
    for tile in tiles:
        rng = np.random.default_rng(9)
        for _ in range(4):
            x = rng.normal(size=(4, tile.x_size)).astype(np.float32)
            d = 0.1 * rng.normal(size=(4, tile.d_size)).astype(np.float32)
            seen += [tile.forward(x), tile.backward(d)]
            tile.update(x, d, 0.05)
        seen.append(tile.weights)
    return seen


def test_property_38_a_model_of_version_1_goes_on_to_the_bit() -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file  # noqa: PLC0415 - needs torch

    cells = {"visible": pl.devices.EcRam(), "fast": pl.devices.Idealized()}
    config = pl.LRTTConfig(
        rank=2, **(PLAIN_LRTT | cells | {"transfer_every": 5, "reinit_gain": 0.5})
    )
    soft = pl.SingleConfig(device=pl.devices.SoftBounds())
    model = torch.nn.Sequential(
        pl.nn.AnalogConv2d(1, 3, 3, config=soft, seed=1, threads=1),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        pl.nn.AnalogLinear(
            48, 4, config=config, seed=2, threads=1, digital_bias=False, max_input_size=30
        ),
    )
    model.load_state_dict(load_file(DATA / "model.safetensors"))
    tiles = [tile for layer in (model[0], model[3]) for tile in layer.tiles]
    assert digest(go_on(tiles)) == EXPECTED["model"]["bits"]
