"""The CUDA graph of a training step, and the memory in which it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.graphs.graph_part import GraphPart
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.optimizer_groups import has_analog, learning_rate
from pulsora.nn.clipping import clip_all
from pulsora.nn.tiles.followed_weights import follow_all, followed_layers
from pulsora.nn.tiles.held_weights import layers_with_held_weights
from pulsora.nn.tiles.layer_update import apply_updates, tiles_pulsed_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor, nn

    from pulsora.graphs.amp import Amp
    from pulsora.nn.tiles.layer_update import LayerUpdate
    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.optim import _Pulses

__all__ = ["RecordedStep", "has_begun", "in_gpu_memory", "repeatable"]


class RecordedStep:
    """A recorded step, and the memory in which it computes.

    It has no reference to its `TrainingStep`: graphs in a reference cycle could be destroyed at any
    time, even while another graph is captured.

    Args:
        optimizer: The optimiser.
        loss: Returns the detached loss of a batch, after its backward pass.
        batch: Tensors of the shapes of a batch.
        amp: The mixed precision of the step. With a scaler, the update is a graph of its own.
        model: The trained model.
        arrays: The tiles of each layer.
        constants: What is constant in the graph, but learning rates.
        rates: The learning rates that are constant in the graph.
        digital_too: Whether the step of digital parameters is recorded.
        draws: Whether the step draws random numbers of torch on the GPU, as dropout does.
    """

    def __init__(
        self,
        optimizer: _Pulses,
        loss: Callable[[Sequence[Tensor]], Tensor],
        batch: Sequence[Tensor],
        *,
        amp: Amp,
        model: nn.Module,
        arrays: Iterable[TileArray],
        constants: object,
        rates: object,
        digital_too: bool,
        draws: bool,
    ) -> None:
        self.constants, self.rates, self.digital_too = constants, rates, digital_too
        self._draws = draws
        self._layers = followed_layers(model)
        self._held = layers_with_held_weights(model)
        stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
        self._clipped = [each for each in self._held if id(each.carrier) in stepped]
        self._exchange: Any = None  # of changes between processes
        follow_all(self._layers)  # what happens in every step is recorded, and nothing else
        self._begin()
        self._batch = [each.clone() for each in batch]
        device = batch[0].device
        groups = optimizer.param_groups
        # Numbers in GPU memory are read now, because a capture forbids it.
        present = {id(group): learning_rate(group) for group in groups}
        self._of_pulses = {i for i, group in enumerate(groups) if has_analog(group)}
        layers = [[tile._core for tile in array] for array in arrays]  # noqa: SLF001
        self._first = GraphPart(device, layers)
        self.tiles = self._first.tiles
        self._update: GraphPart | None = None  # behind a scaler, if anything is recorded there
        self._left_out: Tensor | None = None  # whether a step makes no update
        torch.clear_autocast_cache()
        try:
            with self._first.captured():
                self._loss = loss(self._batch)
                self._left_out = amp.record_update(self._loss)
                if amp.scaler is None:
                    self._record_update(self._first, optimizer, present)
            if amp.scaler is not None and (digital_too or _has_gradients(optimizer)):
                self._update = GraphPart(device, layers)
                with self._update.captured():
                    self._record_update(self._update, optimizer, present)
        finally:
            torch.clear_autocast_cache()
        self._gradients = [
            (each, each.grad) for each in model.parameters() if each.grad is not None
        ]

    def _record_update(
        self, part: GraphPart, optimizer: _Pulses, present: Mapping[int, float]
    ) -> None:
        """Records what follows the backward pass."""
        analog = list(optimizer._analog())  # noqa: SLF001 - of this package
        updates = optimizer._updates(analog, present)  # noqa: SLF001
        optimizer._use_up(analog)  # noqa: SLF001 - torch's step must not see them
        if self.digital_too:
            self._step_digitally(optimizer)
        # Last, so that the updates are launched while the graph runs.
        self._pulse(part, updates, optimizer)

    def _pulse(self, part: GraphPart, updates: Sequence[LayerUpdate], optimizer: _Pulses) -> None:
        """Records the updates of the tiles, each with the number of its learning rate.

        What processes share is exchanged afterwards.
        """
        numbers = {
            id(each.array): i
            for i, group in enumerate(optimizer.param_groups)
            for each in group["params"]
            if isinstance(each, AnalogParameter)
        }
        shared = [each.array for each in updates if tiles_pulsed_here(each) is not None]
        for update in updates:
            part.tiles.use_rate(numbers[id(update.array)])
            apply_updates([update])
        if shared:
            self._exchange = shared[0].process_group.recorded_exchange(shared)

    def run(self, optimizer: _Pulses, batch: Sequence[Tensor]) -> Tensor:
        """Runs the step with another batch, and returns the loss."""
        rates = [
            0.0 if number not in self._of_pulses and in_gpu_memory(group) else learning_rate(group)
            for number, group in enumerate(optimizer.param_groups)
        ]
        self._begin()
        for kept, given in zip(self._batch, batch, strict=True):
            kept.copy_(given, non_blocking=True)
        self._first.run(rates, draws=self._draws)
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        if self._left_out is not None:
            if self._left_out.item():
                return self._loss.clone()
            if self._update is not None:
                self._update.run(rates, draws=False)
        if self._exchange is not None:
            self._exchange.exchange_numbers()
        if not self.digital_too:
            self._step_digitally(optimizer)
        return self._loss.clone()

    def _begin(self) -> None:
        for layer in self._held:
            layer.held.begin_step(layer.carrier)

    def _step_digitally(self, optimizer: _Pulses) -> None:
        """Makes torch's step, and what follows a step of any optimiser."""
        optimizer._step_digitally()  # noqa: SLF001 - of this package
        clip_all(self._clipped)
        follow_all(self._layers)


def repeatable(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the digital step of an optimiser works only on tensors on the GPU."""
    groups = optimizer.param_groups
    if isinstance(optimizer, torch.optim.SGD):  # which reads an lr in GPU memory
        return not any(map(in_gpu_memory, groups))
    return all(group.get("capturable", False) for group in groups)


def _has_gradients(optimizer: _Pulses) -> bool:
    """Whether an analog layer has a gradient."""
    return any(each.grad is not None for _, each in optimizer._analog())  # noqa: SLF001


def has_begun(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser has made the state of its first step, which no graph may make again.

    A scaler may leave out the first steps.
    """
    groups = optimizer.param_groups
    if isinstance(optimizer, torch.optim.SGD) and not any(map(_momentum, groups)):
        return True
    digital = (p for group in groups for p in group["params"] if not isinstance(p, AnalogParameter))
    return bool(optimizer.state) or not any(each.requires_grad for each in digital)


def _momentum(group: Mapping[str, Any]) -> bool:
    return bool(group["momentum"])


def in_gpu_memory(group: Mapping[str, Any]) -> bool:
    """Whether the lr of a group is a tensor on a GPU; to read it is to wait for the GPU."""
    return isinstance(group["lr"], torch.Tensor) and group["lr"].is_cuda
