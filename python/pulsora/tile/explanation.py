"""What `Tile.explain` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, KeysView, Mapping

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """What an update would do; print it. Settings are found by name: `told["alpha"]`, `"alpha" in told`, `dict(told)`.

    Attributes:
        values: Settings in force, by name.
        warnings: What will not work as one might expect, and what to change.
    """

    values: Mapping[str, Any]
    warnings: tuple[str, ...]

    # All of a mapping but the methods `values` and `items`: the first is the attribute above.
    def __getitem__(self, name: str) -> object:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> KeysView[str]:
        """Names of the settings."""
        return self.values.keys()

    def __str__(self) -> str:
        lines = [*_table(self.values, 0), *(f"warning: {text}" for text in self.warnings)]
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
