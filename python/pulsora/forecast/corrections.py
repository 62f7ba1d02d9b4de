"""Corrections of predicted moves by how earlier predictions compare with the steps that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pulsora.forecast.history import inner
from pulsora.forecast.kernels import ResidualMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from pulsora.forecast.history import BlockMeans, History

    Values = list[Tensor]
    Key = NDArray[np.float32]

__all__ = [
    "Corrector",
    "MemoryCorrector",
    "ScaleCorrector",
    "circumstances",
    "compare",
    "corrector_of",
]

_FORGETTING = 0.5  # weight of a comparison over the weight of the next
_MOST = 2.0  # largest factor by which ScaleCorrector changes a move
_KEY = 4


class Corrector(Protocol):
    """Learns factors for predicted moves."""

    def factor(self, key: Key, step: int) -> float:
        """The factor for a move that is predicted after pass `step` under these circumstances."""
        ...

    def learn(self, key: Key, step: int, ratio: float) -> None:
        """Takes the ratio of a move that came to its prediction, see `compare`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores a saved state."""
        ...


class ScaleCorrector:
    """The mean of earlier ratios, each of which weighs half of the next; from 0 to 2, first 1."""

    def __init__(self) -> None:
        self._sum, self._weight = 0.0, 0.0

    def factor(self, key: Key, step: int) -> float:  # noqa: ARG002 - it needs no circumstances
        """See Corrector."""
        return min(max(self._sum / self._weight, 0.0), _MOST) if self._weight else 1.0

    def learn(self, key: Key, step: int, ratio: float) -> None:  # noqa: ARG002
        """See Corrector."""
        self._sum = _FORGETTING * self._sum + ratio
        self._weight = _FORGETTING * self._weight + 1.0

    def state_dict(self) -> dict[str, Any]:
        """See Corrector."""
        return {"sum": self._sum, "weight": self._weight}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """See Corrector."""
        self._sum, self._weight = float(saved["sum"]), float(saved["weight"])


class MemoryCorrector:
    """A memory of the residuals ratio - 1 by circumstances (`ResidualMemory`): from 0.8 to 1.2."""

    def __init__(self) -> None:
        self._memory = ResidualMemory(_KEY)

    def factor(self, key: Key, step: int) -> float:
        """See Corrector."""
        (correction,) = self._memory.corrections(key[None], [1.0], float(step), threads=1)
        return 1.0 + float(correction)

    def learn(self, key: Key, step: int, ratio: float) -> None:
        """See Corrector."""
        self._memory.remember(key, ratio - 1.0, float(step))

    def state_dict(self) -> dict[str, Any]:
        """See Corrector."""
        return {name: array.tolist() for name, array in self._memory.state_dict().items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """See Corrector."""
        entries = np.asarray(saved["entries"], np.float64).reshape(-1, 3)
        keys = np.asarray(saved["keys"], np.float32).reshape(-1, _KEY)
        linear = np.asarray(saved["linear"], np.float64)
        self._memory.load_state_dict({"entries": entries, "keys": keys, "linear": linear})


CORRECTORS: dict[str, type[ScaleCorrector | MemoryCorrector] | None] = {
    "none": None,
    "scale": ScaleCorrector,
    "memory": MemoryCorrector,
}
"""Correctors of `HybridTrainer` by name."""


def corrector_of(name: str) -> Corrector | None:
    """The corrector of that name; None for "none".

    Raises:
        ValueError: for an unknown name.
    """
    if name not in CORRECTORS:
        raise ValueError(f"corrections must be one of {', '.join(CORRECTORS)} (got {name!r})")
    made = CORRECTORS[name]
    return None if made is None else made()


def circumstances(history: History, share: float, steps: int) -> Key:
    """Quantities on which a residual may depend.

    The share of the passes that is made; the fall of the loss since the first block, and over the
    latest four blocks (as logarithms); the learning rate after the jump over the present one.
    """
    losses = np.log(np.maximum(np.abs(history.losses[-5:] or [1.0]), 1e-12))
    whole = np.log(max(abs(history.losses[0]), 1e-12)) if history.losses else 0.0
    ahead = history.rates([steps])[0]
    return np.array([share, losses[-1] - whole, losses[-1] - losses[0], ahead], np.float32)


def compare(predicted: Values, blocks: BlockMeans) -> float:
    """The ratio <m, p> / <p, p> of the latest move m from block to block to its prediction p.

    The prediction is given per pass. The ratio is 1 for a prediction of no move.
    """
    before, after = blocks.means[-2:]
    passed = blocks.times[-1] - blocks.times[-2]
    moved = [(b - a) / passed for a, b in zip(before, after, strict=True)]
    squared = inner(predicted, predicted)
    return inner(moved, predicted) / squared if squared > 0.0 else 1.0
