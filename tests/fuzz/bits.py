"""Cuts of a batch and numbers of threads: whatever they are, the bits are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulsora as pl
from tests.fuzz import generators
from tests.fuzz.checks import REFUSALS, bits, outcome, overflows, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tests.fuzz.random_source import Draws

    Batch = NDArray[np.float32]


def run(draws: Draws) -> None:
    config = generators.config(
        draws, value_of=draws.pick((generators.plausible, generators.plausible, generators.extreme))
    )
    if isinstance(config, pl.OneSidedConfig):
        # A refresh of cells with tiny steps takes 65536 pulses a cell, some one by one: a minute.
        refresh = config.refresh_update
        config = config.replace(
            refresh_update=refresh.replace(desired_bl=min(refresh.desired_bl, 255))
        )
    # Small tiles work on one thread whatever they are told; a larger one now and then does not.
    large = draws.chance(0.05)
    whole = generators.tile(draws, config, largest=draws.pick((9, 40)))
    if large:
        try:
            whole = pl.Tile(150, 130, whole.config, seed=1)
        except REFUSALS:
            return
    whole.threads = 1
    try:
        start = whole.state()
    except pl.StateError:
        require(overflows(whole), "a new tile cannot be saved")
        return
    parts = pl.Tile.from_state(start, threads=draws.integer(1, 3))
    draws.note("threads", parts.threads)
    for _ in range(draws.integer(1, 3)):
        rows = draws.integer(1, 60 if large else 14)
        scale = draws.pick((1.0, 1.0, 1e-3, 1e3))
        x = draws.normal(rows, whole.x_size, scale=scale)
        d = draws.normal(rows, whole.d_size, scale=0.1)
        x[draws.integer(0, rows - 1)] *= draws.pick((0.0, 1.0))
        if not _step(draws, whole, parts, x, d):
            return
    require(whole.weights.tobytes() == parts.weights.tobytes(), "the weights differ")
    require(bits(whole) == bits(parts), "the states differ")


def _step(draws: Draws, whole: pl.Tile, parts: pl.Tile, x: Batch, d: Batch) -> bool:
    """One mini-batch of both tiles; False if a read was refused, which sets the tiles apart."""
    config = whole.config
    # An update may reuse what the last reads of whole batches gave.
    # A modifier of training reads belongs to a mini-batch.
    modifies = getattr(config, "modifier", "none") != "none" or getattr(config, "drop_connect", 0)
    whole_only = config.facts.reuses_reads or modifies
    reads = [slice(0, len(x))] if whole_only else draws.cuts(len(x))
    for name, batch in (("forward", x), ("backward", d)):
        given = outcome(lambda: getattr(whole, name)(batch))  # noqa: B023 - at once
        parted = [
            outcome(lambda: getattr(parts, name)(batch[part]))  # noqa: B023
            for part in reads
        ]
        if isinstance(given, str):  # sums of a sample are beyond single precision
            require(given in parted, f"a whole {name} read is refused, its parts are not")
            return False
        joined = b"".join(part for part in parted if isinstance(part, bytes))
        require(joined == given, f"{name} reads differ")
    lr = draws.pick((0.01, 0.1, 1.0, -0.05))
    merged = any(device.noise_merge == "batch" for device in config.named_devices().values())
    updates = [slice(0, len(x))] if merged else draws.cuts(len(x))
    draws.note("reads", reads, "updates", updates, "lr", lr)
    try:
        whole.update(x, d, lr)
    except REFUSALS:
        for part in updates:
            try:
                parts.update(x[part], d[part], lr, end_of_batch=False)
            except REFUSALS:
                continue
            require(holds=False, what="a whole batch is refused, a part of it is not")
        return True
    for part in updates:
        parts.update(x[part], d[part], lr, end_of_batch=False)
    parts.end_batch(lr)
    return True
