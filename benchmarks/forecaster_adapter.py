"""Finds why predicted steps and averages harm arrays with an adapter.

It changes the task `lrtt` of forecaster.py in one thing at a time.

    python benchmarks/forecaster_adapter.py [--seeds 1 2 3]

All but "plain" make 30 % fewer backward passes. Only the last two rows average, and no guard holds
back a jump. Changes are written as HybridTrainer does it, or as the row says. The loss on the test
images is printed as a table of Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from forecaster import AVERAGING, PLAIN, ROWS, STRETCHED, run
from forecaster_tasks import TASKS
from pulsora.training import data as datasets

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pulsora.tile import Tile

WRITE = "pulsora.forecast.weights._transfer"  # what writes a change d^T x to a tile with an adapter


def not_at_all(tile: Tile, left: Tensor, right: Tensor) -> None:
    """Leaves the weights where they are: the schedule alone goes forward."""


def early_transfer(tile: Tile, left: Tensor, right: Tensor) -> None:  # noqa: ARG001
    """Ends the cycle of the adapter, and moves nothing."""
    tile.adapter.transfer()


def digitally(tile: Tile, left: Tensor, right: Tensor) -> None:
    """Adds the change to the visible array without noise, and leaves the adapter alone."""
    tile.arrays["visible"] = np.asarray(tile.arrays["visible"]) + (left.T @ right).numpy()


def into_a(tile: Tile, left: Tensor, right: Tensor) -> None:
    """Adds to A, without noise, the part of the change in the row space of B."""
    x, d = np.zeros((1, tile.x_size), np.float32), np.zeros((1, tile.d_size), np.float32)
    alpha = tile.explain(x, d, 1.0)["alpha"]
    a, b = np.asarray(tile.adapter.a), np.asarray(tile.adapter.b)
    tile.adapter.a = a + (left.T @ right).numpy() @ np.linalg.pinv(b) / alpha


JUMPS = {"average": False, "guard": False}
AT_TRANSFERS = JUMPS | {"warm_up": 100, "full": 100, "cycles": 5}
# Of each row: the options of HybridTrainer, and what writes a change instead; None for nothing.
STUDY: dict[str, tuple[dict[str, Any], Callable[[Tile, Tensor, Tensor], None] | None]] = {
    "plain": (ROWS[PLAIN], None),
    "schedule stretched": (ROWS[STRETCHED], None),
    "schedule skips steps, weights do not jump": (JUMPS, not_at_all),
    "nor do they jump, but the cycle ends": (JUMPS, early_transfer),
    "jumps": (JUMPS, None),
    "jumps at transfers that are due": (AT_TRANSFERS, None),
    "the schedule of these, weights do not jump": (AT_TRANSFERS, not_at_all),
    "jumps, written digitally": (JUMPS, digitally),
    "jumps of A alone, written digitally": (JUMPS, into_a),
    "averaging alone": (ROWS[AVERAGING], None),
    "averaging alone, written digitally": (ROWS[AVERAGING], digitally),
}


def main() -> None:
    """Makes all runs, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="the model has tiles with adapters")
    data = datasets.digits()
    table = ["| run | test loss | each seed |", "| --- | --- | --- |"]
    for row, (options, write) in STUDY.items():
        losses = []
        for seed in arguments.seeds:
            print(f"== {row}, seed {seed}", flush=True)
            with mock.patch(WRITE, write) if write else contextlib.nullcontext():
                losses.append(run(TASKS["lrtt"], seed, data, options)["loss"])
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        table.append(f"| {row} | {np.mean(losses):.3f} | {each} |")
    print("\n".join(table))


if __name__ == "__main__":
    main()
