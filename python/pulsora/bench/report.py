"""Text, table and JSON file of the results of `pulsora bench`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from pulsora._core import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import JustifyMethod

    from pulsora.bench.machine import Ceilings, Place
    from pulsora.bench.measure import Result

__all__ = ["headline", "legend", "remark", "table", "to_json"]


_SHORT = {"bytes": "bytes", "operations": "ops"}


def headline(place: Place, ceilings: Ceilings, batch: int) -> str:
    """The machine, its ceilings, and the size of the mini-batches."""
    return (
        f"{place.name}: copies {ceilings.bytes * 1e-9:.1f} GB/s, "
        f"{ceilings.operations * 1e-9:.1f} G fused multiply-adds/s; batch {batch}"
    )


def remark(place: Place) -> str | None:
    """A warning if other processes used the CPU over the last minute, else None."""
    load = os.getloadavg()[0]
    if not place.on_cpu or load < 1.0:
        return None
    text = f"load average {load:.1f}: other processes share the cores, so times are upper limits"
    if place.threads > 1 and os.environ.get("OMP_WAIT_POLICY", "").lower() != "passive":
        text += "; with OMP_WAIT_POLICY=passive in the environment, threads wait without spinning"
    return text


def table(results: Sequence[Result], place: Place, ceilings: Ceilings) -> Table:
    """One row per case: times, the bound, what sets it, and the share of the bound reached.

    Only names of tiles may wrap, so that the table takes 80 columns on the CPU.
    """
    heads = ["tile", "operation", "size", "median\nus", "spread"]
    heads += [] if place.on_cpu else ["host\nus"]
    heads += ["bound\nus", "by", "reached"]
    shown = Table(box=SIMPLE_HEAD, padding=0)
    for head in heads:
        justify: JustifyMethod = "left" if head in {"tile", "operation", "by"} else "right"
        shown.add_column(head, justify=justify, no_wrap=head != "tile")
    for result in results:
        case, time = result.case, result.time
        bound, limit = ceilings.bound(result.work)
        row = [case.tile, case.operation, str(case.size), _us(time.median)]
        row += [f"{(time.upper - time.lower) / time.median:.0%}"]
        row += [] if place.on_cpu else [_us(time.host)]
        row += [_us(bound), _SHORT[limit], f"{result.reached(ceilings):.0%}"]
        shown.add_row(*row)
    return shown


def legend(place: Place) -> Table:
    """The meaning of the columns of `table`, in words."""
    meanings = {
        "median": "time of one call, in microseconds; half of the calls took less",
        "spread": "distance between the quartiles of these times, in per cent of the median",
        "host": "time until Python goes on, while the GPU still works",
        "bound": "least time on this machine: all bytes at the bandwidth of copies, or all "
        "operations at the rate of fused multiply-adds, whichever takes longer",
        "by": "which of the two sets the bound: bytes, or operations (ops)",
        "reached": "bound / median; 100 % would be the limit of the machine",
    }
    shown = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, meaning in meanings.items():
        if name != "host" or not place.on_cpu:
            shown.add_row(name, meaning)
    return shown


def to_json(results: Sequence[Result], place: Place, ceilings: Ceilings) -> str:
    """All measurements as JSON; times in seconds."""
    values = {
        "version": __version__,
        "device": place.device,
        "machine": place.name,
        "ceilings": vars(ceilings),
        "results": [result.to_dict(ceilings) for result in results],
    }
    return json.dumps(values, indent=1) + "\n"


def _us(seconds: float) -> str:
    microseconds = seconds * 1e6
    return f"{microseconds:.1f}" if microseconds < 1000.0 else f"{microseconds:.0f}"
