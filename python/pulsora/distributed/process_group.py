"""The processes of torch.distributed that train one model."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import distributed as dist
from torch.utils._pytree import tree_leaves

from pulsora.distributed.agreement import Agreement
from pulsora.distributed.messages import average_gradients, gather_equal, gather_padded
from pulsora.distributed.recorded_exchange import RecordedExchange, exchange_numbers
from pulsora.distributed.sharded_update import ShardedUpdate, shares
from pulsora.distributed.sharded_weights import (
    READ_ALONE,
    STEP_WHILE_GATHERED,
    ShardedWeights,
)
from pulsora.distributed.steps_together import (
    EVALUATION,
    GATHERING,
    RECORD,
    SAVING,
    agree_on_step,
    announce,
    rows_of_ranks,
)
from pulsora.nn.tiles.batch_shard import BatchShard, SingleProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from pulsora.nn.tiles.patches import Patches
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["ProcessGroup"]


class ProcessGroup(SingleProcess):
    """The processes that train one model, each with its rows of a global batch.

    Args:
        model: The trained model; each of its forward passes reads a global batch.
        arrays: The tiles of its analog layers, by name.
        digital: Parameters whose gradients DistributedDataParallel averages.
        group: Processes; None for this process alone.
        loss: 'mean' or 'sum', which combines the losses of the ranks to the loss of the global
            batch.
        batch_dim: The dimension of the rows in the model's first input.
        check_every: Number of steps between comparisons of states; 0 for never.
        shared: Names of arrays whose pulses ranks share; every rank makes all pulses of others.
        shards_cells: Whether each rank stores the cells of the tiles that it pulses alone.
        shards_weights: Whether each rank stores the weights of the tiles that it pulses alone.
        reshards: Whether sharded weights are freed between forward and backward reads.
        digests: Returns texts that have to be equal on all ranks, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        arrays: Mapping[str, TileArray],
        digital: Sequence[nn.Parameter],
        *,
        group: dist.ProcessGroup | None,
        loss: str,
        batch_dim: int,
        check_every: int,
        shared: Sequence[str],
        shards_cells: bool,
        shards_weights: bool,
        reshards: bool,
        digests: Callable[[], dict[str, str]],
    ) -> None:
        self.group = group
        device = next(iter(arrays.values())).device
        self.agreement = Agreement(group, device)
        self.size, self.rank = self.agreement.size, self.agreement.rank
        self._by_nccl = group is not None and "nccl" in dist.get_backend_config(group)
        self.gathers = self.size > 1
        self._averages = loss == "mean" and self.size > 1
        self.given: tuple[int, ...] | None = None
        """Rows of each rank in the next forward passes, if `batch` has set them."""
        self.last: BatchShard | None = None
        """The rows of the last forward pass."""
        self.shards_cells = shards_cells
        self.averages = False
        """Whether `average_gradients` does the work of DistributedDataParallel."""
        self._model = model
        self._arrays = arrays
        self._digital = digital
        self._batch_dim = batch_dim
        self._check_every = check_every
        self._digests = digests
        some = {name: arrays[name] for name in shared if self.size > 1}
        self.updates = {
            id(some[name]): ShardedUpdate(some[name], tiles, self.rank)
            for name, tiles in zip(some, shares(list(some.values()), self.size), strict=True)
        }
        self.weights = ShardedWeights(
            self.updates if shards_weights else {}, group, self.agreement, reshards=reshards
        )
        self._pulsed: list[ShardedUpdate] = []  # of sharded weights, since the last `receive`
        self._awaited: list[Callable[[], None]] = []  # states of tiles that other ranks pulsed
        self._passes: list[BatchShard | None] = []  # open forward passes; None: an evaluation

    # Forward passes of the model, opened and closed by its hooks

    def open(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Opens a forward pass, with the number of rows of each rank."""
        if module is not self._model:
            return  # a copy of the model, which trains alone
        self.receive()
        if not torch.is_grad_enabled():
            if self.weights.are_apart:
                announce(self.agreement, EVALUATION)
            self._passes.append(None)
            return
        self._require_averaged()
        counts = self.counts(args, kwargs)
        self.last = BatchShard(counts, self.rank)
        self._passes.append(self.last)

    def close(self, module: nn.Module, _args: object, outputs: object) -> None:
        """Closes a forward pass: weights gradients of outputs by this rank's share of the rows."""
        if module is not self._model or not self._passes:
            return
        shard = self._passes.pop()
        if shard is None or not self._averages:
            return
        # DistributedDataParallel averages over ranks without regard to their numbers of rows.
        weight = shard.rows * self.size / max(shard.of, 1)
        if weight == 1.0:
            return
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(  # type: ignore[no-untyped-call]
                    lambda gradient: gradient * weight
                )

    def _require_averaged(self) -> None:
        """Raises RuntimeError if gradients of digital parameters would not be averaged."""
        active = torch.nn.parallel.DistributedDataParallel._active_ddp_module  # noqa: SLF001
        if self.size == 1 or self.averages or active is not None:
            return
        if any(each.requires_grad for each in self._digital):
            raise RuntimeError(
                "this model has digital parameters besides the biases of its analog layers, whose "
                "gradients have to be averaged over the ranks: call model = "
                "torch.nn.parallel.DistributedDataParallel(pulsora.distributed.prepare(model)), "
                "and train that"
            )

    def counts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the rows of each rank, from the first tensor that is given to the model."""
        if self.given is not None:
            return self.given
        tensors = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
        x = next((each for each in tensors if each.ndim > self._batch_dim), None)
        if x is None:
            raise ValueError(
                f"no input of the model has a dimension {self._batch_dim} (batch_dim) that could "
                "tell how many rows this rank has; tell them by pulsora.distributed.batch(model, "
                "counts)"
            )
        shape = list(x.shape)
        return rows_of_ranks(self.agreement, [shape.pop(self._batch_dim), *shape])

    # Recorded steps

    @property
    def trains(self) -> nn.Module:
        """The model whose forward passes read the rows of a global batch."""
        return self._model

    @property
    def not_recorded_because(self) -> str | None:
        """Reason why no step of these processes can be recorded; None if it can."""
        if not self._by_nccl:
            return "messages by gloo wait for the GPU; use NCCL, with a GPU for each process"
        if not self.agreement.by_host:
            return "torch was built without gloo, by which processes agree on a recorded step"
        if self.weights:
            return "weights = 'sharded' moves weights at every read; leave weights = 'all'"
        return None

    @contextlib.contextmanager
    def together(self, counts: tuple[int, ...] | None, *, averages: bool) -> Iterator[None]:
        """Makes forward passes in the block take these rows of each rank; None to exchange them.

        With `averages`, gradients are averaged by `average_gradients`.
        """
        before = self.given, self.averages
        self.given, self.averages = counts, averages
        try:
            yield
        finally:
            self.given, self.averages = before

    def states(self, state: int) -> list[int]:
        """Returns the numbers that ranks give, by rank, to decide how a step is made."""
        return [numbers[1] for numbers in announce(self.agreement, RECORD, state)]

    def average_gradients(self) -> None:
        """Averages the gradients of digital parameters, as DistributedDataParallel does."""
        with self.agreement.others():
            average_gradients(self._digital, self.size, self.group)

    # Interface to the tiles

    def to_global(self, d: Tensor) -> Tensor:
        """Divides by the world size, because each rank's loss is the mean over its own rows."""
        return d / self.size if self._averages else d

    def to_local(self, dx: Tensor) -> Tensor:
        """Multiplies by the world size, the inverse of `to_global`."""
        return dx * self.size if self._averages else dx

    def shard(self, shape: Sequence[int], steps: int) -> BatchShard | None:
        """Returns the shard of this rank in the model's forward pass.

        Raises:
            RuntimeError: outside a forward pass of the model, with gradients.
            ValueError: if the rows are not in the first dimension.
        """
        if self._passes:
            whole = self._passes[-1]
        elif self.weights.are_apart:
            raise RuntimeError(READ_ALONE)
        elif torch.is_grad_enabled():
            raise RuntimeError(
                "an analog layer of a prepared model is read outside a forward pass of that model, "
                "so that its rows have no place in a global batch; call the module that was given "
                "to pulsora.distributed.prepare, or read under torch.no_grad()"
            )
        else:
            whole = None
        return None if whole is None else whole.of_layer(shape, steps)

    def gather(
        self, array: object, shard: BatchShard, tensors: Sequence[Tensor | Patches | None]
    ) -> Callable[[], Sequence[Any]]:
        """Begins to gather the rows of all ranks.

        Raises:
            RuntimeError: when waiting, if the ranks are in different layers.
        """
        present = [each for each in tensors if isinstance(each, torch.Tensor)]
        if self.size == 1 or not present:
            return lambda: tensors
        if self._by_nccl and shard.steps == 1 and len(set(shard.counts)) == 1:
            return functools.partial(self._received, gather_equal(tensors, self.size, self.group))
        number = next(i for i, each in enumerate(self._arrays.values()) if each is array)
        received = gather_padded(tensors, shard, number, self.group)

        def wait() -> Sequence[Any]:
            with self.agreement.others():
                whole, numbers = received()
            if numbers.device.type == "cpu":
                self._require_same_layer(numbers)
            return whole

        return wait

    def _received(self, received: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        with self.agreement.others():
            return received()

    def summed(self, array: object, gradient: Tensor) -> Tensor:
        """Adds the gradients of all ranks, each scaled to the loss of the global batch."""
        shard = BatchShard((len(gradient),) * self.size, self.rank)
        (everyone,) = self.gather(array, shard, [self.to_global(gradient)])()
        total: Tensor = everyone.reshape(self.size, *gradient.shape).sum(0)
        return total

    def _require_same_layer(self, numbers: Tensor) -> None:
        names = list(self._arrays)
        theirs = [names[int(number)] for number in numbers.tolist()]
        if len(set(theirs)) > 1:
            raise RuntimeError(
                f"the backward passes of the ranks are in different layers at a time ({theirs}, by "
                "rank); each rank has to run the same layers in the same order"
            )

    def require_padded(self) -> None:
        """Raises ValueError, because each rank would sort sequences of different lengths alone."""
        if self.size > 1 and torch.is_grad_enabled():
            raise ValueError(
                "a recurrent layer of a prepared model was given a PackedSequence, whose order of "
                "rows follows from the lengths on each rank alone; give padded sequences"
            )

    def pulsed_here(self, array: object, rows: int, *, gated: bool) -> list[int] | None:
        """Returns this rank's tiles if ranks share the pulses of so many rows; else None."""
        update = self.updates.get(id(array))
        if update is None:
            return None
        if array in self.weights:
            return update.tiles[self.rank]
        least = update.least.recorded if self._records() else update.least.plain
        return None if gated or rows < least else update.tiles[self.rank]

    def exchange(self, array: object) -> None:
        """Begins to exchange changes of tiles, unless a step is recorded; `stepped` waits."""
        if array in self.weights:
            self._pulsed.append(self.updates[id(array)])
        elif not self._records():
            self._awaited.append(self.updates[id(array)].exchange(self.group))

    def recorded_exchange(self, arrays: Sequence[object]) -> RecordedExchange:
        """Records the exchange of changes."""
        some = [self.updates[id(array)] for array in arrays]
        device = next(iter(self._arrays.values())).device
        return RecordedExchange(some, self.group, self.agreement, device)

    def _records(self) -> bool:
        return self._by_nccl and torch.cuda.is_current_stream_capturing()

    def receive(self) -> None:
        """Waits for the changes that other ranks have sent."""
        if self.weights.are_apart:
            self.weights.forget()
        if self._pulsed:
            pulsed, self._pulsed = self._pulsed, []
            exchange_numbers(pulsed, self.agreement)
        awaited, self._awaited = self._awaited, []
        for receive in awaited:
            receive()

    # Sharded weights

    def reading(self, array: object, *, backward: bool = False) -> AbstractContextManager[None]:
        """Has the weights of an array whole for a read in the block."""
        trains = bool(self._passes) and self._passes[-1] is not None
        return self.weights.read(array, backward=backward, trains=trains)

    @contextlib.contextmanager
    def gathered(self, arrays: Sequence[object] = ()) -> Iterator[None]:
        """Has the weights of these arrays, or of all, on all ranks in the block."""
        if self.weights.are_apart:
            announce(self.agreement, GATHERING)
            self.receive()
        with self.weights.gathered(arrays):
            yield

    @property
    def saves(self) -> bool:
        """Whether this rank writes files that all ranks save together."""
        return self.rank == 0 or not self.weights.are_apart

    def saved(self) -> None:
        """Waits until the files are there that all ranks have saved together."""
        if self.weights.are_apart:
            announce(self.agreement, SAVING)

    def require_gathered(self, array: TileArray) -> None:
        """Raises StateError unless all ranks have the weights of an array."""
        self.weights.require_here(array)

    def replaced(self, array: object) -> None:
        """Frees what an array with new tiles has beyond this rank's share."""
        if self.shards_cells and (update := self.updates.get(id(array))):
            update.compute_other_cells()
        self.weights.replaced(array)

    # Agreement

    def agree_on_step(self, updated: Sequence[object]) -> None:
        """Raises RuntimeError on all ranks unless all are about to update the same layers.

        Nothing is compared if ranks would wait for their GPUs.
        """
        if self.weights.are_gathered:
            raise RuntimeError(STEP_WHILE_GATHERED)
        if self.size == 1 or not self.agreement.by_host:
            return
        agree_on_step(self.agreement, self._arrays, updated)

    def stepped(self) -> None:
        """Receives changes of tiles, and compares states as often as `check_every` says."""
        self.receive()
        self.agreement.steps += 1
        steps = self.agreement.steps
        if self._check_every > 0 and steps % self._check_every == 0:
            self.agreement.require_equal(self._digests(), f"after {steps} steps, the state")

    def __deepcopy__(self, _memo: object) -> ProcessGroup:
        """Returns the group itself. Tiles of a copied model belong to a single process."""
        return self

    def __reduce__(self) -> NoReturn:
        how = "a model that was prepared for several processes cannot be pickled"
        raise TypeError(f"{how}; save model.state_dict()")
