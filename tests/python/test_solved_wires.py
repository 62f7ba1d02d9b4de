"""Reads of arrays whose wires have resistance, against dense nodal analysis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from host_reads import HostReads

Array = Any
Tile = Any
OFF: dict[str, Any] = {
    "inp_res": 0.0, "out_res": 0.0, "inp_bound": 0.0, "out_bound": 0.0,
    "out_noise": 0.0, "noise_management": "none", "bound_management": "none",
}  # fmt: skip
PERFECT = pl.IOParameters(is_perfect=True)


def wired(r_in: float, r_out: float, **settings: Any) -> pl.IOParameters:
    """Wires of these resistances, in units of a cell of weight 1 (1 S here), and nothing else."""
    given = OFF | {"wires": "solved", "wire_r_in": r_in, "wire_r_out": r_out, "wire_g_max": 1e6}
    return pl.IOParameters(**(given | settings))


def tile_of(weights: Array, forward: pl.IOParameters, device: str = "cpu", **more: Any) -> Tile:
    """A tile of floating-point weights with this read."""
    config = pl.IdealConfig(forward=forward, **({"backward": PERFECT} | more))
    tile: Any = HostReads(pl.Tile(*weights.shape, config, seed=1, device=device))
    tile.weights = weights.astype(np.float32)
    return tile


def nodal(weights: Array, inputs: Array, r_in: float, r_out: float) -> Array:
    """Currents of the outputs [D] by the equations of all nodes, solved at once.

    Nodes are cells on their input line, on the line of positive and on the line of negative weights
    of their output; input lines are driven at output 0, output lines are held at 0 V at input 0.
    """
    outputs, n = weights.shape
    count = 3 * outputs * n
    matrix = np.zeros((count, count))

    def node(line: int, i: int, j: int) -> int:
        return (line * outputs + i) * n + j

    def join(a: int, b: int, conductance: float) -> None:
        for one, other in ((a, b), (b, a)):
            matrix[one, one] += conductance
            matrix[one, other] -= conductance

    for i in range(outputs):
        for j in range(n):
            if i + 1 < outputs:
                join(node(0, i, j), node(0, i + 1, j), 1 / r_in)
            for line, g in ((1, weights[i, j]), (2, -weights[i, j])):
                join(node(0, i, j), node(line, i, j), max(g, 0.0))
                if j + 1 < n:
                    join(node(line, i, j), node(line, i, j + 1), 1 / r_out)
    held = [node(0, 0, j) for j in range(n)]
    held += [node(line, i, 0) for line in (1, 2) for i in range(outputs)]
    voltages = np.zeros(count)
    voltages[held[:n]] = inputs
    free = np.setdiff1d(np.arange(count), held)
    rest = -matrix[np.ix_(free, held)] @ voltages[held]
    voltages[free] = np.linalg.solve(matrix[np.ix_(free, free)], rest)
    into = matrix @ voltages
    ends = np.array([[node(line, i, 0) for i in range(outputs)] for line in (1, 2)])
    return -(into[ends[0]] - into[ends[1]])


def matrix_of(rows: int, cols: int, seed: int = 0) -> Array:
    """Weights of both signs, some of which are 0."""
    w = np.random.default_rng(seed).uniform(-1, 1, (rows, cols))
    return np.where(np.abs(w) < 0.1, 0.0, w).astype(np.float32).astype(np.float64)


def inputs_of(samples: int, cols: int, seed: int = 1) -> Array:
    x = np.random.default_rng(seed).uniform(-1, 1, (samples, cols))
    return x.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("shape", [(16, 16), (5, 16), (16, 3), (1, 9), (9, 1)])
@pytest.mark.parametrize(("r_in", "r_out"), [(1e-3, 1e-3), (1e-2, 3e-3), (1e-4, 1e-2)])
def test_property_72_reads_solve_the_equations_of_all_nodes(
    device: str, shape: tuple[int, int], r_in: float, r_out: float
) -> None:
    w, x = matrix_of(*shape), inputs_of(4, shape[1])
    wanted = np.stack([nodal(w, one, r_in, r_out) for one in x])
    largest = np.abs(wanted).max()
    found = tile_of(w, wired(r_in, r_out), device).forward(x.astype(np.float32))
    assert np.abs(found - wanted).max() < 1e-5 * largest
    if shape == (16, 16):
        assert np.abs(x @ w.T - wanted).max() > 1e-3 * largest
    # One sample, another cut of the samples and another place have the same bits.
    tile = tile_of(w, wired(r_in, r_out))
    assert np.array_equal(tile.forward(x.astype(np.float32)), found)
    tile = tile_of(w, wired(r_in, r_out), device)
    assert np.array_equal(tile.forward(x[2].astype(np.float32)), found[2])


def test_wires_of_one_direction_need_no_sweeps() -> None:
    w, x = matrix_of(16, 16), inputs_of(3, 16)
    x32 = x.astype(np.float32)
    for r_in, r_out in ((0.0, 0.5), (0.5, 0.0)):
        wanted = np.stack([nodal(w, one, max(r_in, 1e-12), max(r_out, 1e-12)) for one in x])
        found = tile_of(w, wired(r_in, r_out, wire_sweeps=1)).forward(x32)
        assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
        assert np.abs(x @ w.T - wanted).max() > 0.3 * np.abs(wanted).max()
    none = tile_of(w, wired(0.0, 0.0)).forward(x32)
    assert np.abs(none - x @ w.T).max() < 1e-5


def test_sweeps_lead_to_the_solution() -> None:
    w, x = matrix_of(16, 16), inputs_of(3, 16)
    wanted = np.stack([nodal(w, one, 0.03, 0.03) for one in x])
    errors = []
    for sweeps in (1, 2, 4, 8, 16, 32):
        found = tile_of(w, wired(0.03, 0.03, wire_sweeps=sweeps)).forward(x.astype(np.float32))
        errors.append(np.abs(found - wanted).max() / np.abs(wanted).max())
    assert errors[0] > errors[1] > errors[2] > errors[3] > errors[4]
    assert errors[-1] < 1e-5


@pytest.mark.parametrize("passes", ["pos_neg_separate", "pos_neg_separate_digital_sum"])
def test_a_linear_network_does_not_mind_separate_passes(device: str, passes: str) -> None:
    w, x = matrix_of(16, 16), inputs_of(3, 16)
    wanted = np.stack([nodal(w, one, 0.002, 0.004) for one in x])
    io = wired(0.002, 0.004, mv_type=passes)
    found = tile_of(w, io, device).forward(x.astype(np.float32))
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_property_72_the_formula_is_the_limit_of_good_wires() -> None:
    # One output of positive weights, inputs 1: to first order in r, cells lose what the currents
    # beyond them drop along the way. The formula has that order, for a uniform line.
    n = 64
    w, x = np.full((1, n), 0.5), np.ones(n, dtype=np.float32)
    losses = []
    for r in (1e-4, 1e-5):
        solved = tile_of(w, wired(0.0, r)).forward(x)[0]
        io = pl.IOParameters(ir_drop=1.0, ir_drop_gw_div_gmax=1 / r, **OFF)
        formula = tile_of(w, io).forward(x)[0]
        ideal = 0.5 * n
        first = r * sum(0.25 * (n - k) * (n - k) for k in range(1, n))
        assert (ideal - solved) == pytest.approx(first, rel=0.3 if r > 5e-5 else 0.03)
        losses.append((ideal - solved) / (ideal - formula))
    assert losses[1] == pytest.approx(1.0, abs=0.06)


def test_large_batches_are_read_in_parts(device: str) -> None:
    # 600 x 500 cells: 13 samples at a time.
    w, x = matrix_of(600, 500), inputs_of(30, 500).astype(np.float32)
    tile = tile_of(w, wired(1e-6, 1e-6, wire_sweeps=2), device)
    together = tile.forward(x)
    assert np.array_equal(together[17:30], tile.forward(x[17:30]))
    lost = np.abs(together - x @ w.T.astype(np.float32)).max() / np.abs(together).max()
    assert 1e-3 < lost < 0.5


def test_backward_reads_have_wires_too(device: str) -> None:
    w, d = matrix_of(11, 16), inputs_of(3, 11)
    tile = tile_of(w, PERFECT, device, backward=wired(0.003, 0.001))
    wanted = np.stack([nodal(w.T, one, 0.003, 0.001) for one in d])
    found = tile.backward(d.astype(np.float32))
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_samples_beyond_the_range_are_read_again(device: str) -> None:
    # The network is linear, so that a read at a larger scale has the same result.
    w, x = matrix_of(16, 16), inputs_of(6, 16)
    x[2] *= 0.01
    wanted = np.stack([nodal(w, one, 0.002, 0.004) for one in x])
    io = wired(
        0.002, 0.004, out_bound=0.4, bound_management="iterative", noise_management="abs_max"
    )
    found = tile_of(w, io, device).forward(x.astype(np.float32))
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_bits_of_inputs_are_read_one_by_one(device: str) -> None:
    w, x = matrix_of(16, 16), inputs_of(4, 16)
    io = wired(0.002, 0.004, mv_type="bit_serial", inp_res=1 / 14, inp_bound=1.0)
    levels = np.rint(np.clip(x, -1, 1) * 7) / 7
    wanted = np.stack([nodal(w, one, 0.002, 0.004) for one in levels])
    found = tile_of(w, io, device).forward(x.astype(np.float32))
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_converters_and_noise_stand_around_the_wires() -> None:
    w, x = matrix_of(16, 16), inputs_of(3, 16)
    step = 1 / 32
    io = wired(0.002, 0.002, inp_res=1 / 16, inp_bound=1.0, out_bound=4.0, out_res=step / 8.0)
    levels = np.rint(np.clip(x, -1, 1) * 8) / 8
    sums = np.stack([nodal(w, one, 0.002, 0.002) for one in levels])
    found = tile_of(w, io).forward(x.astype(np.float32))
    sure = np.abs(sums / step % 1 - 0.5) > 1e-3
    assert sure.mean() > 0.9
    wanted = np.clip(np.rint(sums / step) * step, -4, 4)
    assert np.abs(np.where(sure, found, wanted) - wanted).max() < 1e-6
    noisy = wired(0.002, 0.002, w_noise=0.05, w_noise_type="additive_constant")
    rows = 20000
    drawn = tile_of(w, noisy).forward(np.repeat(x[:1], rows, axis=0).astype(np.float32))
    sigma = 0.05 * np.linalg.norm(x[0])
    # 20000 numbers tell a mean to sigma / 141 and a deviation to 1 / 200: 5 of these.
    exact = nodal(w, x[0], 0.002, 0.002)
    assert np.abs(drawn.astype(np.float64).mean(axis=0) - exact).max() < 5 * sigma / 141
    np.testing.assert_allclose(drawn.std(axis=0), sigma, rtol=5 / 200)


@pytest.mark.parametrize("cell", ["pair", "slices"])
def test_programmed_arrays_have_wires(device: str, cell: str) -> None:
    torch = pytest.importorskip("torch")
    io = wired(0.35, 0.35, wire_g_max=25.0, wire_sweeps=4)
    shared = {"slice_converters": "shared"} if cell == "slices" else {}
    config = pl.InferenceConfig(forward=io, cell=cell, compensation="none", **shared)
    w = (0.1 * matrix_of(16, 16)).astype(np.float32)
    x = inputs_of(5, 16).astype(np.float32)
    tile: Any = HostReads(pl.Tile(16, 16, config, seed=3, device=device))
    tile.weights = w
    tile.programming.program(2)
    tile.programming.drift(1e5)
    scale = np.array(tile.programming.scales)
    seen = tile.weights.astype(np.float64) / scale[:, None]
    ohm = 0.35 * 25e-6
    wanted = scale * np.stack([nodal(seen, one, ohm, ohm) for one in x.astype(np.float64)])
    found = tile.forward(x)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
    # Poor wires are an error of their own in a model.
    poor = wired(20.0, 20.0, wire_g_max=25.0)
    layer = pl.nn.AnalogLinear(
        16, 16, bias=False, config=pl.InferenceConfig(forward=poor, compensation="none"), seed=1
    ).eval()
    assert pl.inference.explain(layer, torch.from_numpy(x)).of_layer("")["wires"] > 1e-3


@pytest.mark.parametrize(
    ("io", "message"),
    [
        ({"wire_r_in": 1.0}, "wire_r_in is set, and .* choose wires='solved'"),
        ({"wire_r_out": 1.0}, "wire_r_out is set"),
        ({"wire_g_max": 1.0}, "wire_g_max is set"),
        ({"wire_sweeps": 3}, "wire_sweeps is set"),
        ({"wires": "solved", "ir_drop": 1.0}, "ir_drop is 1, and .* set ir_drop to 0"),
        ({"wires": "solved", "mv_type": "ideal"}, "use 'one_pass'"),
        ({"wires": "solved", "wire_r_in": -1.0}, "wire_r_in is -1"),
        ({"wires": "solved", "wire_sweeps": 0}, "wire_sweeps is 0"),
        ({"wires": "solved", "wire_r_in": 1e15}, "a wire of .* give up to 1e6"),
        ({"wires": "solved", "mv_type": "pos_neg_separate", "w_read_asymmetry_dtod": 0.1},
         "w_read_asymmetry_dtod is 0.1"),
        ({"wires": "solved", "weight_bits": 24}, "wires is 'solved'"),
    ],
)  # fmt: skip
def test_bad_wires_are_refused(io: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        pl.IOParameters(**io)


def test_arrays_that_offer_no_solved_wires_refuse_them() -> None:
    for config in (pl.SingleConfig, pl.LRTTConfig, pl.MixedPrecisionConfig):
        with pytest.raises(
            pl.ConfigError, match=r"forward.wires is 'solved', which reads of pulsed"
        ):
            pl.Tile(4, 3, config(forward=wired(1e-3, 1e-3)))
    with pytest.raises(pl.ConfigError, match="set compensation_read = 'exact'"):
        pl.Tile(4, 3, pl.InferenceConfig(forward=wired(1e-3, 1e-3)))
    lines = wired(1e-3, 1e-3)
    for config in (
        pl.TransferConfig(transfer_forward=lines),
        pl.OneSidedConfig(refresh_forward=lines),
    ):
        with pytest.raises(pl.ConfigError, match="which reads of single lines do not offer"):
            pl.Tile(4, 3, config)
    exact = pl.InferenceConfig(forward=lines, compensation_read="exact")
    tile = pl.Tile(4, 3, exact)
    tile.weights = np.ones((4, 3), dtype=np.float32)
    tile.programming.program()
    assert np.isfinite(tile.forward(np.ones(3, dtype=np.float32))).all()
