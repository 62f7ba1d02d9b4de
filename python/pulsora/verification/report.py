"""Results of a self-test: checks, a line of verdict, text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pulsora._internal.files import replace_file

if TYPE_CHECKING:
    import os

__all__ = ["Check", "SelfTest"]

_MOST_NAMED = 3  # faults of one check that the verdict names


@dataclass(frozen=True)
class Check:
    """One check of a self-test.

    Attributes:
        name: What was checked.
        faults: What differs, one line each; empty if nothing does.
        note: What was found: numbers, names, versions.
        skipped: Whether there was nothing to check, for example because there is no GPU.
    """

    name: str
    faults: tuple[str, ...] = ()
    note: str = ""
    skipped: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.faults

    def summary(self) -> str:
        """The faults in one line, of which the first three are named."""
        named = "; ".join(self.faults[:_MOST_NAMED])
        more = len(self.faults) - _MOST_NAMED
        return f"{self.name}: {named}" + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class SelfTest:
    """Results of `pulsora.selftest()`.

    Attributes:
        checks: All checks, in the order in which they ran.
        machine: Versions, processor, instruction sets and GPUs.
        seconds: Time that the self-test took.
    """

    checks: tuple[Check, ...]
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no check found a fault."""
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """One line: "OK" with what was checked, or "FAULT" with the first faults of each check."""
        bad = [check for check in self.checks if not check.ok]
        if bad:
            return "FAULT: " + " | ".join(check.summary() for check in bad)
        skipped = [check.name for check in self.checks if check.skipped]
        text = f"OK: {len(self.checks) - len(skipped)} checks found no fault"
        return text + (f"; not checked: {', '.join(skipped)}" if skipped else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the JSON file contains them."""
        checks = [asdict(check) | {"ok": check.ok} for check in self.checks]
        return {
            "verdict": self.verdict,
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "machine": self.machine,
            "checks": checks,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON file to attach to a bug report.

        Raises:
            OSError: If the file cannot be written; a previous one is then as it was.
        """
        replace_file(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    def __str__(self) -> str:
        width = max((len(check.name) for check in self.checks), default=0)
        lines = []
        for check in self.checks:
            word = "skipped" if check.skipped else "ok" if check.ok else "FAULT"
            lines.append(f"{word:<8}{check.name:<{width}}  {check.note}".rstrip())
            lines += [f"{'':<8}{'':<{width}}  {fault}" for fault in check.faults]
        return "\n".join([*lines, self.verdict])
