"""Explanations of updates: the result of `Tile.explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation(Mapping[str, Any]):
    """Settings in force and warnings for an update: to print, and a mapping (`told["alpha"]`).

    Attributes:
        settings: Settings in force, by name.
        warnings: Effects that one may not expect, and what to change.
    """

    settings: Mapping[str, Any]
    warnings: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a number, a text or a table
        return self.settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __str__(self) -> str:
        lines = [*_table(self.settings, 0), *(f"warning: {text}" for text in self.warnings)]
        return "\n".join(lines)


def _table(values: Mapping[str, Any], depth: int) -> Iterator[str]:
    width = max(map(len, values), default=0)
    for name, value in values.items():
        label = "  " * depth + name.ljust(width)
        if isinstance(value, dict):
            yield label.rstrip()
            yield from _table(value, depth + 1)
        else:
            yield f"{label}  {value:.6g}" if isinstance(value, float) else f"{label}  {value}"
