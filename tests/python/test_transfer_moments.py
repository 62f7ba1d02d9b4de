"""Means and variances of chains with noise: recorded ones, and those of an oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from recorded_cases import cases, inputs
from recorded_moments import SIGMAS, deviations, of_case, of_runs, require_equal
from reference_chain import simulate
from transfer_cases import arrays_of, config_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recorded_moments import Moments

    Matrix = NDArray[np.float64]

NOISY = {case["name"]: case for case in cases("transfer") if "repeats" in case}
CLIPPED_ROWS = "s_ttv1_gamma_rows"
"""Rows that need more pulses than a train has slots; see the oracle."""
KEPT = {
    "buffer": ("buffered_FP_weight", "buffered_FP_weight_0"),
    "means": ("running_mean_weight",),
    "references": ("past_mean_weight",),
}
"""Digital numbers of a transfer, and their names in recorded results."""


def of_tiles(case: dict[str, Any], runs: int) -> dict[str, Moments]:
    """The moments of `runs` tiles, under the names of recorded results."""
    x, d, weights = inputs(case)
    config, batch = config_of(case), case["inputs"]["m_batch"]
    ends: dict[str, list[Matrix]] = {}
    for run in range(runs):
        tile = pl.Tile(*weights.shape, config, seed=1000 + run)
        tile.weights = weights
        for first in range(0, len(x), batch):
            tile.update(x[first : first + batch], d[first : first + batch], lr=case["lr"])
        found = arrays_of(tile)
        for name, tensor in tile.state().tensors.items():
            for theirs in KEPT.get(name.rsplit("/", maxsplit=1)[-1], ()):  # by lines
                found[theirs] = tensor.T if config.transfer_columns else tensor
        for name, values in found.items():
            ends.setdefault(name, []).append(np.asarray(values, np.float64))
    return {name: of_runs(np.array(values)) for name, values in ends.items()}


AS_RECORDED = [name for name in NOISY if name != CLIPPED_ROWS]


@pytest.mark.parametrize("name", ["s_ttv1", "s_cttv2_auto", "s_agad"])
def test_recorded_moments(name: str) -> None:
    require_equal(of_tiles(NOISY[name], 300), of_case(NOISY[name]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", AS_RECORDED)
def test_recorded_moments_of_many_runs(name: str) -> None:
    require_equal(of_tiles(NOISY[name], 1500), of_case(NOISY[name]))


def oracle(name: str, *, line_clips: bool) -> dict[str, Moments]:
    ends = simulate(NOISY[name], 3000, line_clips=line_clips)
    return {key: of_runs(values) for key, values in ends.items()}


@pytest.mark.parametrize("name", ["s_ttv1", CLIPPED_ROWS])
def test_the_oracle_has_the_recorded_moments(name: str) -> None:
    """In the other simulator, the line of a row that needs too many pulses loses some of them."""
    require_equal(oracle(name, line_clips=True), of_case(NOISY[name]))


@pytest.mark.parametrize("name", ["s_ttv1", CLIPPED_ROWS])
def test_large_cells_alone_lose_pulses(name: str) -> None:
    """The train of the driven line, a column or a row, fires in every slot."""
    found = of_tiles(NOISY[name], 800)
    require_equal(found, oracle(name, line_clips=False))
    if name == CLIPPED_ROWS:
        slow = "hidden_weights_1"
        assert deviations(found[slow], of_case(NOISY[name])[slow])[0] > SIGMAS
