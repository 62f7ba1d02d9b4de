"""Training steps with batches of any structure, for loops of other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pulsora.graphs.batch_parts import put_together, taken_apart
from pulsora.graphs.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor, nn

__all__ = ["BatchStep"]

_MOST_KEYS = 64
"""Most shapes and constants of batches that a step counts before it stops to look for a graph."""

_Labelled: TypeAlias = "list[tuple[Any, Tensor]]"


class BatchStep(TrainingStep):
    """A training step of `loss_of(batch)`, which may keep other numbers than the loss.

    Constants in a batch are constants of its graph: other constants have another graph.

    Args:
        model: The trained model.
        optimizer: As for `TrainingStep`.
        loss_of: Returns the loss of a batch, a tensor of one element.
        before_step: As for `TrainingStep`. It and `loss_of` may call `keep`.
        amp, scaler: As for `TrainingStep`.

    Raises:
        TypeError, ValueError: As for `TrainingStep`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_of: Callable[[Any], Tensor],
        *,
        before_step: Callable[[], object] | None = None,
        amp: bool | torch.dtype = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        super().__init__(model, optimizer, loss_of, before_step=before_step, amp=amp, scaler=scaler)
        self._structure: Hashable = None
        self._now: Any = None  # key of the graph of the present batch
        self._kept: _Labelled = []
        self._results: dict[Any, list[tuple[Any, torch.dtype, torch.Size]]] = {}

    def step(self, batch: object) -> tuple[Tensor, _Labelled]:
        """Makes a step.

        Returns:
            The loss, detached, and what `keep` got: labels, and the values of this step.

        Raises:
            TypeError: For a batch without tensors, or with objects beside tensors and constants.
        """
        tensors: list[Tensor] = []
        self._structure = taken_apart(batch, tensors)
        if not tensors:
            raise TypeError(f"a batch of type {type(batch).__name__} has no tensor")
        self._now = self._key(tensors)
        made = self._make(tensors)
        results = self._results[self._now]
        if len(results) == 1:
            return made, []
        (_, loss), *kept = [
            (label, value.to(dtype).reshape(shape))
            for (label, dtype, shape), value in zip(results, made.unbind(), strict=True)
        ]
        return loss, kept

    def keep(self, label: object, value: Tensor) -> None:
        """Keeps a number of the present step, which `step` then returns, also of a recorded one.

        Args:
            label: What tells the number from others; a constant of the graph.
            value: A tensor of one element on the device of the batch.
        """
        self._kept.append((label, value.detach().clone()))

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        """Returns the detached loss of a batch, after its backward pass, and kept numbers."""
        self._kept = []
        numbers = [(None, super().loss(batch)), *self._kept]
        self._kept = []
        self._results[self._now] = [(label, each.dtype, each.shape) for label, each in numbers]
        if len(numbers) == 1:
            return numbers[0][1]
        # float64 holds each float, and integers up to 2^53, exactly.
        return torch.stack([each.double().reshape(()) for _, each in numbers])

    def _forward(self, batch: Sequence[Tensor]) -> Tensor:
        return self.loss_fn(put_together(self._structure, iter(batch)))

    def _key(self, batch: Sequence[Tensor]) -> Any:  # noqa: ANN401
        key = super()._key(batch)
        if key is None:
            return None
        key = (key, self._structure)
        if key not in self._seen and len(self._seen) >= _MOST_KEYS:
            self._be_plain(f"batches have more than {_MOST_KEYS} shapes and constants")
            return None
        return key
