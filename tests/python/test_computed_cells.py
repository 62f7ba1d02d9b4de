"""Cells that are computed whenever an operation touches them: bits, states and memory."""

from __future__ import annotations

import copy
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from conftest import D_SIZE, DEVICES, ROOT, X_SIZE, make_batch, same_bits
from pulsora.state import dumps

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

KINDS = [kind for kind in pl.config.CLASSES if kind not in ("ideal", "inference")]


def _with_cells(config: pl.TileConfig, cells: str, **device: float) -> pl.TileConfig:
    """A configuration in which all devices have such cells."""
    values = config.to_dict()

    def change(value: Any) -> None:  # noqa: ANN401
        if isinstance(value, dict):
            if "dw_min" in value:
                value.update(cells=cells, **device)
            for each in value.values():
                change(each)
        elif isinstance(value, list):
            for each in value:
                change(each)

    change(values)
    return pl.TileConfig.from_dict(values)


def _run(config: pl.TileConfig, device: str, steps: int = 6) -> list[np.ndarray[Any, Any]]:
    """Reads, weights and cells of a training, whose tile is copied, saved and loaded on the way."""
    tile = pl.Tile(D_SIZE, X_SIZE, config, seed=4, device=device)
    seen = []
    for step in range(steps):
        x, d = (torch.from_numpy(each).to(device) for each in make_batch(5, step))
        reads = (tile.forward(x), tile.backward(d))
        seen += [torch.from_dlpack(each).cpu().numpy() for each in reads]
        tile.update(x, d, 0.1)
        seen.append(tile.weights)
        if step == 2:
            tile = copy.deepcopy(tile)
    for name in tile.arrays:
        seen += list(tile.describe_cells(name).values())
    return seen


# Devices of arrays that a kind does not have by default are left out with a warning.
@pytest.mark.filterwarnings("ignore:.*has no effect beside the other settings")
@pytest.mark.parametrize("kind", KINDS)
def test_property_36_every_kind_of_tile_has_the_bits_of_stored_cells(
    kind: str, device: str
) -> None:
    config = pl.config.CLASSES[kind]()
    if "transfer_every" in config.to_dict() and kind == "lrtt":
        config = config.replace(rank=2, transfer_every=2)
    stored, computed = (
        _run(_with_cells(config, cells, reset_dtod=0.1), device) for cells in ("stored", "computed")
    )
    assert same_bits(stored, computed)


@pytest.mark.parametrize("mode", ["write_verify", "lossless", "exact", "single", "verified"])
def test_transfers_of_an_adapter_have_the_bits_of_stored_cells(mode: str, device: str) -> None:
    plain = pl.LRTTConfig(rank=2, transfer_every=2, transfer_mode=mode)
    seen = [
        _run(plain.replace(visible=plain.visible.replace(cells=cells)), device)
        for cells in ("stored", "auto", "computed")
    ]
    assert same_bits(seen[0], seen[1])
    assert same_bits(seen[0], seen[2])


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
@pytest.mark.xdist_group("device source")
def test_a_model_from_source_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSORA_CACHE_DIR", str(tmp_path))
    text = (ROOT / "src" / "rpucuda" / "devices" / "soft_bounds.h").read_text()
    made = pl.devices.from_source(text.replace("SoftBounds", "SoftBoundsLent"))
    seen = [
        _run(pl.SingleConfig(device=device(cells=cells, lifetime=30.0, lifetime_dtod=0.2)), "cpu")
        for device in (made, pl.devices.SoftBounds)
        for cells in ("stored", "computed")
    ]
    for each in seen[1:]:
        assert same_bits(seen[0], each)
    state = pl.Tile(4, 5, pl.SingleConfig(device=made(cells="computed"))).state()
    assert dumps(pl.Tile.from_state(state).state()) == dumps(state)


def _tile(cells: str) -> pl.Tile:
    plain = pl.LRTTConfig(rank=2)
    return pl.Tile(30, 40, plain.replace(visible=plain.visible.replace(cells=cells)), seed=3)


def test_a_state_holds_the_key_and_a_checksum(tmp_path: Path) -> None:
    stored, computed = _tile("stored").state(), _tile("auto").state()
    assert "visible/cells" in stored.tensors
    assert "visible/cells" not in computed.tensors
    drawn = computed.values["visible/cells_drawn"]
    assert sorted(drawn) == ["checksum", "key"]
    assert all(len(each) == 16 for each in drawn.values())
    for name, state in (("stored", stored), ("computed", computed)):
        pl.Tile.from_state(state).save(tmp_path / name)
    sizes = [(tmp_path / name).stat().st_size for name in ("stored", "computed")]
    assert sizes[0] - sizes[1] > 7.5 * 30 * 40
    assert sizes[1] < 4 * 30 * 40 + 16000
    other = _tile("auto")
    other.load_state(stored)  # as files of earlier versions have them
    assert dumps(other.state()) == dumps(computed)


def test_cells_that_this_version_does_not_draw_are_refused() -> None:
    tile = _tile("computed")
    before = dumps(tile.state())
    state = tile.state()
    state.values["visible/cells_drawn"]["checksum"] = "0" * 16
    with pytest.raises(pl.StateError, match=r"this version draws others by it \(checksum"):
        tile.load_state(state.signed())
    assert dumps(tile.state()) == before


def test_models_save_load_and_copy(tmp_path: Path) -> None:
    def model(cells: str) -> torch.nn.Module:
        torch.manual_seed(1)
        plain = pl.LRTTConfig(rank=2, transfer_every=2)
        config = plain.replace(visible=plain.visible.replace(cells=cells))
        return pl.convert_to_analog(
            torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Linear(7, 4)), config, seed=3
        )

    def trained(net: torch.nn.Module, steps: int, first: int = 0) -> list[np.ndarray[Any, Any]]:
        optimizer = pl.optim.AnalogSGD(net.parameters(), lr=0.1)
        for step in range(first, first + steps):
            torch.manual_seed(step)
            optimizer.zero_grad()
            net(torch.randn(5, 6)).square().mean().backward()
            optimizer.step()
        return [tile.weights for layer in net for tile in layer.tiles]

    expected = trained(model("stored"), 6)
    net = model("computed")
    trained(net, 3)
    torch.save(net.state_dict(), tmp_path / "state.pt")
    pl.save(net, tmp_path / "parts")
    again, parts = model("computed"), model("stored")
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=False))
    pl.load(parts, tmp_path / "parts")
    for each in (net, copy.deepcopy(net), again, parts):
        assert same_bits(trained(each, 3, 3), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_memory_that_a_tile_tells(device: str) -> None:
    sizes = {
        cells: pl.Tile(
            256, 256, pl.SingleConfig(device=pl.devices.SoftBounds(cells=cells)), device=device
        ).memory_bytes
        for cells in ("auto", "stored", "computed")
    }
    assert sizes["auto"] == sizes["stored"] == 12 * 256 * 256
    assert sizes["computed"] == 4 * 256 * 256
    adapter = pl.Tile(256, 256, pl.LRTTConfig(rank=8), device=device).memory_bytes
    assert adapter == 4 * 256 * 256 + 24 * 8 * 512  # as docs/howto/large_models.md says


def test_settings() -> None:
    assert pl.devices.SoftBounds().cells == "auto"
    with pytest.raises(pl.ConfigError, match="cells"):
        pl.devices.SoftBounds(cells="lent")
    values = pl.SingleConfig(device=pl.devices.ExpStep(cells="computed")).to_dict()
    assert json.loads(json.dumps(values)) == values
    assert pl.TileConfig.from_dict(values).device.cells == "computed"
