"""Cells whose two devices follow a table over the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from reference_inference import pcm

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path

D, X = 6, 11
SEED, TILE = 5, 3
NODES = [-1.0, -0.4, 0.0, 0.5, 1.0]
UP = [0.05, 0.2, 0.5, 0.7, 0.95]
DOWN = [0.85, 0.52, 0.5, 0.3, 0.15]  # UP - DOWN = 0.8 w
TABLE = {"cell": "table", "table_w": NODES, "table_g": [*UP, *DOWN]}
W = (0.3 * np.sin(1.7 * np.arange(D * X))).reshape(D, X).astype(np.float32)
SCALE = np.abs(W).max(axis=1, keepdims=True)
PERFECT = pl.IOParameters(is_perfect=True)
INPUTS = np.cos(0.9 * np.arange(4 * X)).reshape(4, X).astype(np.float32)


def tile_of(**settings: Any) -> Any:  # noqa: ANN401
    """A tile with weights."""
    tile = pl.Tile(D, X, pl.InferenceConfig(**TABLE | settings), seed=SEED, tile_id=TILE)
    tile.weights = W
    return tile


def targets() -> np.ndarray:
    """Targets of both devices in uS, [D, X, 2]."""
    relative = W / SCALE
    return 25.0 * np.stack([np.interp(relative, NODES, g) for g in (UP, DOWN)], axis=-1)


def test_exact_cells_of_a_table_are_the_weights() -> None:
    exact = pl.noise_models.PCMLike(prog_noise_scale=0, read_noise_scale=0, drift_scale=0)
    tile = tile_of(noise_model=exact, forward=PERFECT)
    tile.programming.program()
    np.testing.assert_allclose(tile.programming.conductances("target"), targets(), atol=1e-5)
    np.testing.assert_allclose(tile.weights, W, atol=1e-6)
    np.testing.assert_allclose(tile.forward(INPUTS), INPUTS @ W.T, atol=2e-6)


@pytest.mark.parametrize("point", [(0, 0.0, 0), (7, 3600.0, 1)])
def test_property_61_devices_of_a_table_have_draws_of_their_own(
    point: tuple[int, float, int],
) -> None:
    tile = tile_of(stuck_low=0.05)
    tile.programming.program(point[0])
    tile.programming.drift(point[1], redraw=point[2])
    now = tile.programming.conductances()
    for k in range(2):
        wanted = pcm(targets()[..., k].ravel(), SEED, TILE, point, stream=k)
        expected = np.where(wanted["stuck"] < np.float32(0.05), 0.0, wanted["now"])
        assert np.abs(now[..., k].ravel() - expected).max() < 2e-4
    alpha = np.array(tile.programming.compensation)[:, None]
    wanted_weights = alpha * SCALE * (now[..., 0] - now[..., 1]) / 25.0 / 0.8
    assert np.abs(tile.weights - wanted_weights).max() < 1e-6


def test_levels_measured_values_states_and_files_go_on(tmp_path: Path) -> None:
    tile = tile_of(cell_bits=3)
    tile.programming.program(3)
    found = tile.programming.conductances("target") / 25.0 * 7
    assert np.abs(found - np.rint(found)).max() < 1e-5
    values = tile.programming.conductances("programmed")
    tile.programming.drift(60.0)
    other = tile_of(cell_bits=3)
    other.programming.program_measured(values, 3)
    other.programming.drift(60.0)
    y = tile.forward(INPUTS)
    assert np.array_equal(other.forward(INPUTS), y)
    other.programming.drift(60.0)
    assert np.array_equal(pl.Tile.from_state(other.state()).forward(INPUTS), y)
    entry = tile.hardware_counts()
    assert entry["arrays"][0]["columns"] == 2 * X
    assert entry["reads"][0]["adc"] == 4 * D

    config = pl.InferenceConfig(**TABLE)
    model = pl.convert_to_analog(torch.nn.Linear(X, D), config, max_input_size=6, seed=1).eval()
    pl.inference.save_conductances(pl.program(model), tmp_path, which="programmed")
    x = torch.from_numpy(INPUTS)
    before = model(x)
    pl.inference.load_conductances(pl.inference.unprogram(model), tmp_path)
    assert torch.equal(model(x), before)
    straight = config.replace(table_w=[-1.0, 1.0], table_g=[0.1, 0.9, 0.9, 0.1])
    other_model = pl.convert_to_analog(torch.nn.Linear(X, D), straight, max_input_size=6).eval()
    with pytest.raises(ValueError, match="table_"):
        pl.inference.load_conductances(other_model, tmp_path)


def test_fresh_noise_of_a_table_is_drawn_by_each_read() -> None:
    quiet = pl.IOParameters(
        inp_res=0, out_res=0, out_noise=0, inp_bound=0, out_bound=0,
        noise_management="none", bound_management="none",
    )  # fmt: skip
    spread = {}
    cells: dict[str, dict[str, Any]] = {
        "table": {"table_w": [-1.0, 1.0], "table_g": [0.0, 1.0, 1.0, 0.0]},
        "two_sided_pair": {},  # the same targets
    }
    for name, settings in cells.items():
        config = pl.InferenceConfig(
            cell=name, read_window=1e-3, forward=quiet, compensation="none", **settings
        )
        tile: Any = pl.Tile(D, X, config, seed=SEED, tile_id=TILE)
        tile.weights = W
        tile.programming.program()
        tile.programming.drift(3600.0)
        y = tile.forward(np.tile(INPUTS[:1], (4000, 1))) / SCALE.ravel()
        spread[name] = float(np.sqrt((y.std(axis=0) ** 2).sum()))
    # 4000 reads of 6 outputs, with devices of other errors: the sums differ by a few per cent.
    assert spread["table"] == pytest.approx(spread["two_sided_pair"], rel=0.1)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"cell": "table"}, "table_w has 0 entries that do not reach from -1 to 1"),
    (TABLE | {"table_w": [-1.0, -0.4, -0.4, 0.5, 1.0]}, "table_w[2] is -0.4"),
    (TABLE | {"table_w": [-0.9, -0.4, 0.0, 0.5, 1.0]}, "do not reach from -1 to 1"),
    (TABLE | {"table_g": UP}, "table_g has 5 entries; give 10"),
    (TABLE | {"table_g": [*UP, *UP]}, "gives the difference 0 of the devices to the weight 1"),
    (
        TABLE | {"table_g": [0.05, 0.3, *UP[2:], *DOWN]},
        "does not give weights back: at InferenceConfig.table_w = -0.4",
    ),
    (TABLE | {"table_g": [*UP[:4], 1.5, *DOWN]}, "table_g[4] is 1.5"),
    (TABLE | {"cell": "pair"}, "table_w is set, and InferenceConfig.cell follows no table"),
    ({"table_g": [0.5]}, "table_g is set"),
    (TABLE | {"significance": [1, 2]}, "choose cell='pairs'"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSALS)
def test_tables_that_do_not_invert_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        pl.InferenceConfig(**settings)
    assert message in str(refusal.value)
