"""IR drop: reads against exact solutions of the resistive ladder that a line is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import ROOT
from reference_io import JUNCTION, wire_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

OFF: dict[str, Any] = {
    "inp_res": 0.0, "out_res": 0.0, "inp_bound": 0.0, "out_bound": 0.0, "out_noise": 0.0,
    "noise_management": "none", "bound_management": "none",
}  # fmt: skip
DRAWS, N = 200, 256
LOADS = (1.0, 3.0, 10.0, 30.0, 100.0)


def wired_tile(weights: Floats, gw: float) -> pl.Tile:
    """A tile without any effect but the IR drop, in both directions."""
    io = pl.IOParameters(ir_drop=1.0, ir_drop_gw_div_gmax=gw, **OFF)
    tile = pl.Tile(*weights.shape, pl.IdealConfig(forward=io, backward=io), seed=1)
    tile.weights = weights.astype(np.float32)
    return tile


def ladder(cells: Floats, inputs: Floats, gw: float) -> Floats:
    """Currents [lines] of lines of conductances [lines, n] at voltages [lines, n].

    The part of a line beyond a wire is replaced by its Norton equivalent, from the far end on. Cell
    0 is at the read-out, which holds the line at 0 V.
    """
    current, conductance = np.zeros(len(cells)), np.zeros(len(cells))
    for j in reversed(range(cells.shape[1])):
        current = current + cells[:, j] * inputs[:, j]
        conductance = conductance + cells[:, j]
        if j > 0:
            passed = gw / (gw + conductance)
            current, conductance = current * passed, conductance * passed
    return current


def test_the_ladder_solves_the_equations_of_its_nodes() -> None:
    rng = np.random.default_rng(3)
    n, gw = 40, 25.0
    g, v = rng.uniform(0.0, 1.0, n), rng.uniform(-1.0, 1.0, n)
    nodes = np.diag(g) + gw * (2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
    nodes[-1, -1] -= gw  # the far end is open
    u = np.linalg.solve(nodes[1:, 1:], (g * v)[1:])  # node 0 is at 0 V
    assert ladder(g[None], v[None], gw)[0] == pytest.approx(g[0] * v[0] + gw * u[0], rel=1e-12)


@pytest.mark.parametrize(
    ("gw", "n"),
    [(571428.57, n) for n in (64, 1024, 1500, 2048, 4096)]
    + [(1e4, n) for n in (128, 256, 512)]
    + [(1e3, 512), (100.0, 512)],
)
def test_a_uniform_line_delivers_what_the_ladder_does(gw: float, n: int) -> None:
    """Within 0.8 % of tanh(s)/s, and of the ladder of n cells by 0.6 % of the ideal current."""
    s = n * np.sqrt(0.5 / gw)
    ones = np.ones((1, n))
    for read in (
        wired_tile(np.full((1, n), 0.5), gw).forward(ones.astype(np.float32))[0, 0],
        wired_tile(np.full((n, 1), 0.5), gw).backward(ones.astype(np.float32))[0, 0],
    ):
        share = read / (0.5 * n)
        assert share == pytest.approx(np.tanh(s) / s, rel=0.008)
        assert share == pytest.approx(ladder(0.5 * ones, ones, gw)[0] / (0.5 * n), abs=0.006)


def test_a_read_falls_with_its_load_and_keeps_its_sign() -> None:
    """Products of one sign, wherever they are on the line, on both sides of the junctions."""
    n = 96
    rng = np.random.default_rng(5)
    j = np.arange(n)
    inputs = np.stack(
        [np.ones(n), j < 8, j >= n - 8, j == 0, j == n - 1, rng.random(n) < 0.05, rng.random(n)]
    ).astype(np.float32)
    weights = rng.uniform(0.1, 1.0, (5, n))
    loads = np.concatenate([np.geomspace(1e-3, 1e6, 60), JUNCTION * (1 + np.array([-1, 1]) * 1e-3)])
    ideal = inputs @ weights.T
    earlier = ideal
    for load in np.sort(loads):
        gw = n * float(ideal.max()) / load
        read = wired_tile(weights, gw).forward(inputs)
        slack = 2e-6 * ideal
        assert (read <= earlier + slack).all()
        assert (read >= -slack).all()
        negative = wired_tile(-weights, gw).forward(inputs)
        np.testing.assert_allclose(negative, -read, rtol=0, atol=2e-6 * float(ideal.max()))
        back = wired_tile(weights.T, gw).backward(inputs)
        np.testing.assert_array_equal(back, read)
        earlier = read
    assert (earlier[0] < 0.01 * ideal[0]).all()


def test_products_of_both_signs_stay_within_their_ideal_magnitudes() -> None:
    rng = np.random.default_rng(6)
    weights, inputs = rng.normal(size=(20, 64)), rng.normal(size=(30, 64)).astype(np.float32)
    most = np.abs(inputs) @ np.abs(weights).T
    for gw in (1e6, 1e4, 1e3, 100.0, 1.0, 1e-3):
        assert (np.abs(wired_tile(weights, gw).forward(inputs)) <= most).all()


def lines(name: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights and inputs [DRAWS, N] of a row of the table in docs/reference/io.md."""
    j, full = np.arange(N), (DRAWS, N)
    weights = rng.uniform(0.0, 1.0, full)
    if name in {"equal weights, inputs 1", "inputs 1"}:
        return (weights if name == "inputs 1" else np.ones(full)), np.ones(full)
    active = {"half of the inputs 1, others off": 1 / 2, "1/16 of the inputs 1, others off": 1 / 16}
    if name in active:
        return weights, 1.0 * (rng.random(full) < active[name])
    if name == "weights of both signs, half of the inputs 1":
        return 2.0 * weights - 1.0, 1.0 * (rng.random(full) < 1 / 2)
    if name in {"inputs as pulse widths", "inputs as voltages"}:
        return weights, rng.integers(0, 33, full) / 32
    chosen = {"near half": j < N // 2, "far half": j >= N // 2, "far cell": j == N - 1}
    return 0.5 + 0.5 * weights, np.tile(1.0 * chosen[name.removesuffix(" alone")], (DRAWS, 1))


def exact(name: str, weights: Floats, inputs: Floats, gw: float) -> Floats:
    """Currents of the lines; an input that is off takes its cell from the line."""
    ones = np.ones_like(inputs)
    if name == "inputs as voltages":
        return ladder(weights, inputs, gw)
    if name == "inputs as pulse widths":  # the mean over 32 instants
        instants = (np.arange(32) + 0.5) / 32
        return np.mean([ladder(weights * (inputs > i), ones, gw) for i in instants], axis=0)
    plus, minus = np.maximum(weights, 0.0) * inputs, np.maximum(-weights, 0.0) * inputs
    return ladder(plus, ones, gw) - ladder(minus, ones, gw)


def documented() -> dict[str, list[tuple[float, float]]]:
    """The table of errors: root mean square and largest, in percent, for each of LOADS."""
    text = (ROOT / "docs/reference/io.md").read_text(encoding="utf-8")
    table = text.split("| line | a = 1 |")[1].split("\n\n")[0].splitlines()[2:]
    rows = {}
    for row in table:
        name, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        rows[name] = [tuple(map(float, cell.split(", "))) for cell in cells]
    return rows  # type: ignore[return-value]


@pytest.mark.parametrize("name", list(documented()))
def test_errors_are_those_of_the_page(name: str) -> None:
    """Relative to the ideal sum of magnitudes; 200 lines of 256 cells, seed 0."""
    weights, inputs = lines(name, np.random.default_rng(0))
    weights = weights / np.abs(weights * inputs).sum(axis=1, keepdims=True)
    for load, (mean, largest) in zip(LOADS, documented()[name], strict=True):
        gw = N / load
        read = np.diag(wired_tile(weights, gw).forward(inputs.astype(np.float32)))
        error = 100.0 * (read - exact(name, weights, inputs, gw))
        assert np.sqrt(np.mean(error**2)) == pytest.approx(mean, abs=0.051)
        assert np.abs(error).max() == pytest.approx(largest, abs=0.051)


def test_the_junction_is_where_both_curves_meet() -> None:
    assert pytest.approx(1.5277587, abs=5e-8) == JUNCTION
    below, above = wire_loss(np.array(JUNCTION * (1 - 1e-9))), wire_loss(np.array(JUNCTION + 1e-9))
    np.testing.assert_allclose(below, above, atol=1e-8)


@pytest.mark.parametrize(
    ("bound", "resolution", "inside"),
    [(12.0, 1 / 510, False), (1.5, 1 / 510, False), (1.0, 1 / 510, True), (12.0, 510.0, True)],
)
def test_the_top_level_is_outside_where_single_precision_puts_it_above_the_bound(
    bound: float, resolution: float, inside: bool
) -> None:
    def read(bound_management: str) -> float:
        changes = {"out_bound": bound, "out_res": resolution, "bound_management": bound_management}
        io = pl.IOParameters(**(OFF | changes))
        tile = pl.Tile(1, 1, pl.IdealConfig(forward=io), seed=1)
        tile.weights = np.full((1, 1), bound, np.float32)
        return float(tile.forward(np.ones((1, 1), np.float32))[0, 0])

    assert read("none") == np.float32(bound)
    # Read again at half the scale, the bound lies between two levels and goes to the lower one.
    again = bound - bound / 255
    assert read("iterative") == pytest.approx(bound if inside else again, rel=1e-6)
