#!/usr/bin/env python3
"""Compares device models from source with the same models built in, on a GPU.

    python benchmarks/device_source.py [--device cuda:0]

First, how long processes take from an empty cache and from a full one until a first update is done;
then updates of both. Of several rounds, which alternate between the two, the least counts. Both end
with the same bits, or the program fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES = Path(__file__).resolve().parent.parent / "src" / "rpucuda" / "devices"


class Case(NamedTuple):
    """An array, and how a mini-batch of so many samples updates it."""

    model: str
    header: str
    size: int
    samples: int
    settings: Mapping[str, Any]
    length: int = 31


CASES = (
    Case("SoftBounds", "soft_bounds.h", 256, 16, {}),
    Case("SoftBounds", "soft_bounds.h", 1024, 64, {}),
    Case("SoftBounds", "soft_bounds.h", 4096, 64, {}),
    Case("SoftBounds", "soft_bounds.h", 4096, 64, {}, length=1),
    Case("ConstantStep", "constant_step.h", 4096, 64, {}),
    Case("ConstantStep", "constant_step.h", 4096, 64, {"noise_merge": "batch"}),
)

# Prints the seconds that a process takes to register a model, to make a tile and to update it.
START = """
import json, sys, time
import numpy as np
import torch
import pulsora as pl
x, d = torch.ones(8, 64, device=sys.argv[2]), torch.ones(8, 64, device=sys.argv[2])
pl.Tile(64, 64, device=sys.argv[2]).update(x, d, 0.1)
torch.cuda.synchronize()
begin = [time.perf_counter(), time.process_time()]
made = pl.devices.from_source(open(sys.argv[1]).read().replace("SoftBounds", "SoftBoundsCopy"))
registered = time.perf_counter() - begin[0]
tile = pl.Tile(64, 64, pl.SingleConfig(device=made()), device=sys.argv[2])
tile.update(x, d, 0.1)
torch.cuda.synchronize()
print(json.dumps({
    "registered": registered, "updated": time.perf_counter() - begin[0] - registered,
    "processor": time.process_time() - begin[1], **pl.devices.compile_counts(),
}))
"""


def starts(device: str) -> None:
    """Times two processes, of which the second finds what the first compiled."""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first", "second"):
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-c", START, str(DEVICES / "soft_bounds.h"), device],
                env={**os.environ, "PULSORA_CACHE_DIR": cache},
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            seen = json.loads(done.stdout)
            print(
                f"{name} start: {seen['registered']:.3f} s until the model is registered, "
                f"{seen['updated']:.3f} s more until a tile on the GPU is updated; of the process, "
                f"{seen['processor']:.3f} s; compiled {seen['compiled']}, from disk "
                f"{seen['from_disk']}"
            )


def milliseconds(tile: pl.Tile, x: torch.Tensor, d: torch.Tensor, updates: int) -> float:
    """The GPU's time for an update.

    The first updates start from weights of 0, since cells near their bounds take longer.
    """
    tile.weights = np.zeros((tile.d_size, tile.x_size), np.float32)
    tile.update(x, d, 0.01)  # compiles and loads what it needs
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(updates):
        tile.update(x, d, 0.01)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / updates


def compare(case: Case, made: type[pl.devices.Device], device: str, rounds: int) -> None:
    """Prints the times of both models for one case."""
    update = pl.UpdateParameters(desired_bl=case.length)
    x, d = (torch.randn(case.samples, case.size, device=device) for _ in range(2))
    tiles = [
        pl.Tile(
            case.size, case.size, pl.SingleConfig(device=model(**case.settings), update=update),
            seed=1, device=device,
        )
        for model in (getattr(pl.devices, case.model), made)
    ]  # fmt: skip
    best = [float("inf")] * 2
    for _ in range(rounds):
        for i, tile in enumerate(tiles):
            best[i] = min(best[i], milliseconds(tile, x, 0.1 * d, 20))
    if tiles[0].weights.tobytes() != tiles[1].weights.tobytes():
        raise SystemExit(f"{case}: the two models end with different bits")
    settings = "".join(f", {name}={value}" for name, value in case.settings.items())
    print(
        f"{case.model}{settings}, {case.size} x {case.size}, {case.samples} samples, "
        f"desired_bl={case.length}: "
        f"built in {1000 * best[0]:.1f} us, from source {1000 * best[1]:.1f} us, ratio "
        f"{best[1] / best[0]:.3f}"
    )


def main() -> None:
    """Prints both comparisons."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.cuda.set_device(options.device)
    starts(options.device)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PULSORA_CACHE_DIR"] = cache
        copies: dict[str, type[pl.devices.Device]] = {}
        for case in CASES:
            if case.model not in copies:
                text = (DEVICES / case.header).read_text()
                copies[case.model] = pl.devices.from_source(
                    text.replace(case.model, case.model + "Copy")
                )
            compare(case, copies[case.model], options.device, options.rounds)


if __name__ == "__main__":
    main()
