"""Trainings with sharded weights, for test_sharded_weights.py.

Called as `distributed_runs.py`, it starts processes, which make all runs together.
"""

from __future__ import annotations

import dataclasses
import sys
import traceback
from typing import Any

import distributed_cases as cases
import distributed_runs as runs
from distributed_models import World


def run_all(world: World) -> dict[str, Any]:
    runs.begin(world)
    world = dataclasses.replace(world, weights="sharded")
    found: dict[str, Any] = {}
    names = {**cases.EXACT, **(cases.EXACT_OF_TWO if world.size == 2 else {})}
    names.pop("penalised")
    for name, run in names.items():
        found[name] = run(world)
    return found


if __name__ == "__main__":
    sys.exit(runs.main(run_all))
