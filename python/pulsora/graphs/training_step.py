"""A whole training step as one CUDA graph."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from pulsora._internal.modules import require_module
from pulsora.graphs.amp import Amp
from pulsora.graphs.hooks import hooks, hooks_of_parameter, hooks_of_step
from pulsora.graphs.random_numbers import random_numbers
from pulsora.graphs.recorded_step import RecordedStep, has_begun, in_gpu_memory, repeatable
from pulsora.graphs.several_processes import BY_DDP, by_ddp, process_group
from pulsora.nn.autograd.analog_parameter import AnalogParameter, analog_arrays
from pulsora.nn.autograd.optimizer_groups import has_digital, learning_rate
from pulsora.nn.tiles.followed_weights import followed_layers
from pulsora.nn.tiles.held_weights import layers_with_held_weights
from pulsora.nn.tiles.layer_names import set_names
from pulsora.optim import _Pulses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pulsora.distributed.process_group import ProcessGroup
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["TrainingStep"]

_EAGER_STEPS = 2
"""Plain steps of a shape before recording, in which memory, products and optimisers settle."""
_MOST_SHAPES = 8
_LEAST_OF_BATCH = 2  # tensors: an input and a target
_RATES_CHANGE_OFTEN = 20  # least number of steps that pay for a record

_NEVER, _PLAIN, _RECORDS, _RECORDED = range(4)
"""How a process would make a step: plain for a reason, plain, after recording it, recorded."""

_Circumstances: TypeAlias = tuple[Any, ...]


class TrainingStep:
    """One training step of a model with analog layers, with the bits of the plain loop.

        step = TrainingStep(model, optimizer, nn.functional.cross_entropy)
        for x, target in batches:
            loss = step(x, target)

    is equivalent to:

        for x, target in batches:
            optimizer.zero_grad()
            loss = loss_fn(model(x), target)
            loss.backward()
            optimizer.step()

    On a GPU, the first two steps of each shape of the batch run as this plain loop. Then the whole
    step is recorded as a CUDA graph, whose launch takes the host a fraction of the time. The graph
    repeats torch's operations unchanged, and tiles enqueue new operations at every step, so that
    samples have new random numbers and transfers happen on schedule. Learning rates may change from
    step to step, and eager steps, evaluations and saving of states may come between. On a CPU every
    step is plain.

    If `pulsora.distributed.prepare` has made several processes train the model, a batch has the
    rows of this process. Steps average the gradients of digital parameters over the processes:
    give the prepared model itself, not a DistributedDataParallel around it, whose steps are plain.
    With NCCL, steps are recorded with their messages.

    A recorded step does not repeat Python code beside tensors: hooks, prints, decisions that depend
    on numbers. Random numbers of torch on the GPU, as of dropout, are those of the plain loop. A
    step that cannot be recorded runs as the plain loop, and one warning says why: hooks of modules,
    parameters or the optimiser, random numbers of torch, NumPy or Python on the host, messages by
    gloo, anything that waits for the GPU, more than eight shapes of the batch.

    Args:
        model: Called with all tensors of a batch but the last.
        optimizer: An optimiser of `pulsora.optim`, with the parameters that are trained.
        loss_fn: loss_fn(output, last tensor of the batch), a scalar.
        before_step: Called between `backward()` and the step of the optimiser, for instance to clip
            gradients.
        amp: The type in which the forward pass and loss_fn run under `torch.autocast`: True or
            torch.bfloat16, which has the range of single precision, or torch.float16, whose
            gradients need a scaler.
        scaler: A `torch.amp.GradScaler`, which acts as in torch's loop; before_step sees gradients
            that are unscaled. A step whose gradients are infinite updates nothing and counts for no
            transfer. Also a recorded step waits for the GPU to know whether they are.

    Raises:
        TypeError: For an optimiser that is not of pulsora.optim, a loss_fn or before_step that
            cannot be called, an amp or a scaler of another kind.
        ValueError: If the optimiser has no parameter of the model.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[..., Tensor],
        *,
        before_step: Callable[[], object] | None = None,
        amp: bool | torch.dtype = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        require_module(model)
        if before_step is not None and not callable(before_step):
            raise TypeError(f"before_step = {before_step!r}: give a function, or None")
        if not callable(loss_fn):
            raise TypeError(f"loss_fn = {loss_fn!r}: give a function of the output and the target")
        self._amp = Amp(amp, scaler)
        if not isinstance(optimizer, _Pulses):
            raise TypeError(
                f"optimizer is of type {type(optimizer).__name__}; give one of pulsora.optim, such "
                "as AnalogSGD, or AnalogOptimizer(torch.optim.AdamW, ...)"
            )
        trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if trained.isdisjoint(map(id, model.parameters())):
            raise ValueError(
                "optimizer has no parameter of the model, so the steps would train nothing; make "
                "it of model.parameters()"
            )
        set_names(analog_arrays(model))
        self.model = model
        self.optimizer: _Pulses = optimizer
        self.loss_fn = loss_fn
        self.before_step = before_step
        self.plain_because: str | None = None
        """Reason why steps on a GPU are not recorded; None if they are recorded."""
        self._graphs: dict[Any, RecordedStep] = {}
        self._seen: dict[Any, int] = {}
        self._draws = self._draws_on_gpu = False  # random numbers of the host, and of the GPU
        self._digital_too = repeatable(optimizer)
        self._since_record = _RATES_CHANGE_OFTEN

    def __call__(self, *batch: Tensor) -> Tensor:
        """Makes a step with a batch: the inputs of the model, then the target of the loss.

        Returns:
            The loss, detached.

        Raises:
            TypeError: Unless the batch is of two tensors or more; for a loss_fn that returns
                anything but a tensor.
            ValueError: For a learning rate that is not finite. A recorded step has then changed
                nothing; for a plain step see `AnalogSGD.step`.
        """
        if len(batch) < _LEAST_OF_BATCH or not all(
            isinstance(each, torch.Tensor) for each in batch
        ):
            given = ", ".join(type(each).__name__ for each in batch)
            raise TypeError(
                "a step takes tensors, as step(x, target): the inputs of the model, then what "
                f"loss_fn gets; not ({given})"
            )
        return self._make(batch)

    def _make(self, batch: Sequence[Tensor]) -> Tensor:
        """Makes a step with the tensors of a batch, and returns the loss."""
        group = process_group(self.model)
        if group is not None:
            return self._together(group, batch)
        key = self._key(batch)
        graph = None if key is None else self._recorded(key)
        if graph is None and key is not None and self._may_record(key):
            graph = self._record(key, batch)
        return self._plainly(batch) if graph is None else self._run(graph, batch)

    @property
    def recorded_shapes(self) -> int:
        """Number of executable graphs: for each shape of the batch, with and without a transfer."""
        return sum(graph.tiles.shapes for graph in self._graphs.values())

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        """Returns the detached loss of a batch, after its backward pass."""
        self.optimizer.zero_grad()
        with self._amp.autocast(batch[-1].device.type):
            loss = self._forward(batch)
        if not isinstance(loss, torch.Tensor):
            raise TypeError(
                f"loss_fn returned a {type(loss).__name__}; a step has one loss: return a scalar "
                "tensor, such as a sum"
            )
        self._amp.scaled(loss).backward()
        if (group := process_group(self.model)) and group.averages:
            group.average_gradients()
        self._amp.unscale(self.optimizer)
        if self.before_step is not None:
            self.before_step()
        return loss.detach()

    def _forward(self, batch: Sequence[Tensor]) -> Tensor:
        return self.loss_fn(self.model(*batch[:-1]), batch[-1])

    def _key(self, batch: Sequence[Tensor]) -> Any:  # noqa: ANN401
        """Returns what tells the graph of a batch from others; None if its step is plain."""
        if self.plain_because is not None or not _recordable(batch):
            return None
        return tuple((each.shape, each.dtype, each.device) for each in batch)

    def _plainly(self, batch: Sequence[Tensor]) -> Tensor:
        """Makes a step by the plain loop, and returns the loss."""
        watched = self.plain_because is None and not self._draws
        before = random_numbers(batch[0]) if watched else None
        loss = self.loss(batch)
        self._amp.step(self.optimizer)
        if before is not None and (after := random_numbers(batch[0])) is not None:
            self._draws_on_gpu = self._draws_on_gpu or after[0] != before[0]
            self._draws = after[1] != before[1]
        return loss

    def _together(self, group: ProcessGroup, batch: Sequence[Tensor]) -> Tensor:
        """Makes a step with this process's rows of a global batch, and returns their loss.

        Processes first tell each other their rows, and how each would make the step. A graph is
        made, or runs, if all of them can do so. Plain and recorded steps have the same messages.
        """
        averages = not by_ddp(self.model)
        if not batch[0].is_cuda:
            with group.together(group.given, averages=averages):
                return self._plainly(batch)
        if not averages and self.plain_because is None:
            self._be_plain(BY_DDP)
        counts = group.counts(batch[:-1], {})
        with group.together(counts, averages=averages):
            key = self._key(batch)
            if key is not None:
                key = (key, counts)
            graph = None if key is None else self._recorded(key)
            wants = graph is None and key is not None and self._may_record(key)
            state = _RECORDED if graph is not None else _RECORDS if wants else _PLAIN
            states = group.states(_NEVER if self.plain_because is not None else state)
            if _NEVER in states and self.plain_because is None:
                self._be_plain("another process does not record its steps; its warning says why")
            if min(states) <= _PLAIN:
                return self._plainly(batch)
            if wants:
                graph = self._record(key, batch)
            if _RECORDS in states and not all(group.states(graph is not None)):
                if graph is not None:
                    self._be_plain("another process cannot record its step; its warning says why")
                return self._plainly(batch)
            assert graph is not None  # noqa: S101 - what all have said
            group.receive()
            loss = self._run(graph, batch)
            group.stepped()
            return loss

    def _run(self, graph: RecordedStep, batch: Sequence[Tensor]) -> Tensor:
        """Makes a recorded step, and returns the loss."""
        self._since_record += 1
        return graph.run(self.optimizer, batch)

    def _recorded(self, key: object) -> RecordedStep | None:
        """Returns the graph for a step, if there is one that fits."""
        graph = self._graphs.get(key)
        if graph is not None and graph.constants != self._circumstances():
            graph = None
            del self._graphs[key]
            self._seen[key] = _EAGER_STEPS - 1  # some obstacles show only in a plain step
        return graph if graph is not None and graph.rates == self._rates() else None

    def _may_record(self, key: object) -> bool:
        """Counts a step that has no graph, and returns whether it may be recorded now."""
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen <= _EAGER_STEPS or (self._digital_too and not has_begun(self.optimizer)):
            return False
        if key in self._graphs and self._since_record < _RATES_CHANGE_OFTEN:
            # The learning rates of digital parameters are constants of a graph.
            self._digital_too = False
        reason = self._obstacle(key)
        if reason is not None:
            self._be_plain(reason)
        return reason is None

    def _record(self, key: object, batch: Sequence[Tensor]) -> RecordedStep | None:
        """Records a step, which does not run; None if that fails."""
        try:
            graph = RecordedStep(
                self.optimizer,
                self.loss,
                batch,
                amp=self._amp,
                model=self.model,
                arrays=self._arrays(),
                constants=self._circumstances(),
                rates=self._rates(),
                digital_too=self._digital_too,
                draws=self._draws_on_gpu,
            )
        except (RuntimeError, ValueError) as error:
            cause = error.__context__ or error  # ending a failed capture raises too
            reason = str(cause).split("\n", 1)[0]
            for each in (error, cause):  # the frames hold recorded tensors
                traceback.clear_frames(each.__traceback__)
            self._amp.forget()
            self._be_plain(reason)
            return None
        self._graphs[key] = graph
        self._since_record = 0
        return graph

    def _be_plain(self, reason: str) -> None:
        """Makes all further steps by the plain loop, with a warning."""
        self.plain_because = reason
        self._graphs.clear()
        self.optimizer.zero_grad()
        warnings.warn(
            f"TrainingStep runs as a plain loop, because {reason}", RuntimeWarning, stacklevel=4
        )

    def _arrays(self) -> Iterator[TileArray]:
        """Yields the tiles of all analog layers in the model or the optimiser."""
        in_groups = (each for group in self.optimizer.param_groups for each in group["params"])
        found = {
            id(each.array): each.array
            for each in (*self.model.parameters(), *in_groups)
            if isinstance(each, AnalogParameter)
        }
        carriers = followed_layers(self.model) + layers_with_held_weights(self.model)
        return iter((found | {id(each.held.array): each.held.array for each in carriers}).values())

    def _obstacle(self, key: object) -> str | None:
        """Returns why a step cannot be recorded, if that is known before recording."""
        hooked = [name for name, module in self.model.named_modules() if hooks(module)]
        arrays = list(self._arrays())
        is_new = key not in self._graphs
        if (group := process_group(self.model)) and (reason := group.not_recorded_because):
            return reason
        obstacles = {
            f"batches have more than {_MOST_SHAPES} shapes": is_new
            and len(self._graphs) == _MOST_SHAPES,
            f"torch {torch.__version__} keeps its graphs to itself (2.8 shows them)": not hasattr(
                torch.cuda.CUDAGraph, "raw_cuda_graph"
            ),
            f"modules have hooks, which would not run: {hooked}": bool(hooked),
            "the optimiser has hooks, which would not run": hooks_of_step(self.optimizer) > 0,
            "parameters have hooks, which would not run": any(
                map(hooks_of_parameter, self.model.parameters())
            ),
            "a GradScaler and several processes are not recorded together": (
                group is not None and self._amp.scaler is not None
            ),
            "the model draws random numbers of torch, NumPy or Python on the host": self._draws,
            "'auto' transfers and re-inits that are 'orthogonal' or 'svd' wait for the GPU": any(
                each.facts.waits_for_host for each in arrays
            ),
            "tiles are on several devices": len({each.device for each in arrays}) > 1,
        }
        return next((reason for reason, stands in obstacles.items() if stands), None)

    def _rates(self) -> list[Any]:
        """Returns the learning rates that are constants of a graph.

        None stands for a rate in GPU memory, and for one of pulses alone.
        """
        return [
            None if in_gpu_memory(group) or not has_digital(group) else learning_rate(group)
            for group in (self.optimizer.param_groups if self._digital_too else ())
        ]

    def _circumstances(self) -> _Circumstances:
        """Returns everything else that is constant in a graph."""
        groups = self.optimizer.param_groups
        constants = [name for name in groups[0] if name not in {"params", "lr"}]
        modules = [(module.training, hooks(module)) for module in self.model.modules()]
        return (
            tuple(group.get(name) for group in groups for name in constants),
            modules,
            [array.grid for array in self._arrays()],
            [each.held.constants(each.carrier) for each in layers_with_held_weights(self.model)],
            [
                0 if isinstance(each, AnalogParameter) else each.data_ptr()
                for each in self.model.parameters()
            ],
            [each.requires_grad for each in self.model.parameters()],
            [each.data_ptr() for each in self._buffers()],
            [hooks_of_parameter(each) for each in self.model.parameters()],
            hooks_of_step(self.optimizer),
            self.loss_fn,
            self.before_step,
            self._amp.constants,
            torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        )

    def _buffers(self) -> Iterator[Tensor]:
        """Yields buffers, and the tensors of a loss that is a module."""
        yield from self.model.buffers()
        if isinstance(self.loss_fn, nn.Module):
            yield from self.loss_fn.buffers()
            yield from self.loss_fn.parameters()


def _recordable(batch: Sequence[object]) -> bool:
    return len(batch) > 0 and all(
        isinstance(each, torch.Tensor) and each.is_cuda and not each.requires_grad for each in batch
    )
