"""Automatic mixed precision of a training step: the type of autocast, and a GradScaler."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

__all__ = ["Amp"]

_TYPES = (torch.bfloat16, torch.float16)


class Amp:
    """The mixed precision of a training step.

    Args:
        amp: True or torch.bfloat16, torch.float16, or False for none.
        scaler: A `torch.amp.GradScaler`, or None. One that is not enabled is none.

    Raises:
        TypeError: For an amp or a scaler of another kind.
    """

    def __init__(self, amp: object, scaler: object) -> None:
        if not (isinstance(amp, bool) or amp in _TYPES):
            raise TypeError(
                f"amp = {amp!r}: write True, for bfloat16, torch.float16, whose losses need a "
                "scaler, or False"
            )
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise TypeError(
                f"scaler is of type {type(scaler).__name__}; give a torch.amp.GradScaler, or None"
            )
        self.type: Any = torch.bfloat16 if amp is True else amp or None
        """Type of the forward pass under autocast; None without autocast."""
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None

    def autocast(self, place: str) -> AbstractContextManager[object]:
        """Returns the context of the forward pass on a kind of device."""
        return nullcontext() if self.type is None else torch.autocast(place, self.type)

    def scaled(self, loss: Tensor) -> Any:  # noqa: ANN401 - torch's scale has no narrower type
        """Returns the loss times the factor of the scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the factor of the scaler."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the step of the optimiser, unless the scaler found gradients that are infinite."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def record_update(self, loss: Tensor) -> Tensor | None:
        """Updates the factor before the step, by work on the GPU alone.

        Returns:
            Whether the step is to be left out, a tensor; None without a scaler.
        """
        if self.scaler is None:
            return None
        one = torch.ones((), device=loss.device)
        before: Any = self.scaler.scale(one)
        self.scaler.update()
        # The scaler makes its factor smaller if, and only if, it found infinite gradients. A factor
        # that has become 0 stays so, and no gradient is finite then.
        return (self.scaler.scale(one) < before) | (before == 0)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Makes the scaler forget a step that was not made to its end."""
        if self.scaler is not None:
            self.scaler.update(self.scaler.get_scale())

    @property
    def constants(self) -> tuple[object, ...]:
        """Numbers of the scaler that are constants of a graph."""
        if self.scaler is None:
            return ()
        return (
            self.scaler.get_growth_factor(),
            self.scaler.get_backoff_factor(),
            self.scaler.get_growth_interval(),
        )
