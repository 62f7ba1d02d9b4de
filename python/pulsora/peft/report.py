"""Reports on adapters that were loaded or saved."""

from __future__ import annotations

from dataclasses import dataclass

from pulsora._internal.text_tables import aligned

__all__ = ["AdapterReport", "AdapterRow"]


@dataclass(frozen=True)
class AdapterRow:
    """The adapter of one layer.

    Attributes:
        name: Name of the layer in `named_modules()` of the model without adapters.
        layer: Class of the layer.
        rank: Number of components.
        alpha: Factor on A B.
        how: Place of A and B, or origin of the saved factors.
        error: |A' B' - A B| / |A B| (Frobenius) with written A' B' and wanted A B; 0 where both are
            0.
        clipped: Number of elements of A and B outside the bounds of their cells.
    """

    name: str
    layer: str
    rank: int
    alpha: float
    how: str
    error: float
    clipped: int = 0


class AdapterReport(tuple[AdapterRow, ...]):  # noqa: SLOT001 - it has attributes
    """The adapters of a model, in order; `print` shows a table.

    Attributes:
        beside: Names of the parameters and buffers that were trained beside the adapters, and were
            saved or loaded with them.
        missing: What PEFT's format has no place for: hooks that change outputs of adapted layers,
            trained layers of classes without a digital twin.
    """

    beside: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest error of a layer."""
        return max((row.error for row in self), default=0.0)

    @property
    def clipped(self) -> int:
        """Number of clipped elements in all layers."""
        return sum(row.clipped for row in self)

    def __repr__(self) -> str:
        rows = [("layer", "class", "rank", "alpha", "error", "clipped", "how")]
        rows += [
            (
                row.name or "(model)",
                row.layer,
                str(row.rank),
                f"{row.alpha:.4g}",
                f"{row.error:.1e}",
                str(row.clipped),
                row.how,
            )
            for row in self
        ]
        lists = (("trained beside them", self.beside), ("not in the file", self.missing))
        return aligned(rows) + "".join(
            f"\n{what}: {', '.join(names)}" for what, names in lists if names
        )

    __str__ = __repr__
