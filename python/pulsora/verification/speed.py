"""A short measure of speed, beside the times of known machines in `speed.json`."""

from __future__ import annotations

import json
from pathlib import Path

from pulsora import _core
from pulsora.bench.cases import Case
from pulsora.bench.machine import Place
from pulsora.bench.measure import run

__all__ = ["OPERATIONS", "note"]

OPERATIONS = ("forward", "backward", "update sparse", "update dense")
_SIZE, _BATCH, _MODEL = 512, 64, "SoftBounds"


def note(device: str = "cpu", seconds: float = 0.1) -> str:
    """Milliseconds of four operations, beside the table for this kind of machine.

    SoftBounds, 512 x 512, batch 64; one thread of a CPU, or a GPU. Each result is checked.

    Raises:
        WrongResultError: If a result is wrong.
    """
    table = json.loads(Path(__file__).with_name("speed.json").read_text(encoding="utf-8"))
    place = Place(device, threads=1)
    kind = _core.instruction_sets()[-1] if place.on_cpu else place.name
    known = table["machines"].get(kind, {})
    parts = []
    for operation in OPERATIONS:
        case = Case(operation, _MODEL, _SIZE, _BATCH)
        taken = 1e3 * run(case, place, seconds).time.median
        beside = f" ({known[operation]:.3g})" if operation in known else ""
        parts.append(f"{operation} {taken:.3g}{beside}")
    source = f"in brackets: {kind} in the table" if known else f"the table has no {kind}"
    return f"{', '.join(parts)} ms; {source}"
