"""The processes of torch.distributed that train one model."""

from __future__ import annotations

import contextlib
import math
import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import distributed as dist
from torch.utils._pytree import tree_leaves

from pulsora.distributed.agreement import STEPS_TOGETHER, Agreement
from pulsora.distributed.messages import average_gradients, gather_equal
from pulsora.distributed.recorded_exchange import RecordedExchange
from pulsora.distributed.sharded_update import ShardedUpdate, shares
from pulsora.nn.tiles.batch_shard import BatchShard, SingleProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from pulsora.distributed.sharded_update import LeastRows
    from pulsora.nn.tiles.patches import Patches
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["ProcessGroup"]

_DIMENSIONS = 8  # largest number of dimensions in the comparison of inputs' shapes
_STEP, _RECORD = -2, -3  # first numbers of messages, where rows of a forward pass are
_KINDS = {_STEP: "a step of the optimiser", _RECORD: "a TrainingStep"}
_BITS = 62  # layers in a number of such a message


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
        shared: Least numbers of rows for which ranks share the pulses of an array, by its name;
            every rank makes all pulses of other arrays.
        shards_cells: Whether each rank stores the cells of the tiles that it pulses alone.
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
        shared: Mapping[str, LeastRows],
        shards_cells: bool,
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
        self._arrays = list(arrays.values())
        self._names = list(arrays)
        self._digital = digital
        self._batch_dim = batch_dim
        self._check_every = check_every
        self._digests = digests
        some = {name: arrays[name] for name in shared if self.size > 1}
        parts = zip(some.items(), shares(list(some.values()), self.size), strict=True)
        self.updates = {
            id(array): ShardedUpdate(array, tiles, self.rank, shared[name])
            for (name, array), tiles in parts
        }
        self._awaited: list[Callable[[], None]] = []  # states of tiles that other ranks pulsed
        self._passes: list[BatchShard | None] = []  # open forward passes; None: an evaluation

    # Forward passes of the model, opened and closed by its hooks

    def open(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Opens a forward pass, with the number of rows of each rank."""
        if module is not self._model:
            return  # a copy of the model, which trains alone
        self.receive()
        if not torch.is_grad_enabled():
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
        mine = list(x.shape)
        mine = [mine.pop(self._batch_dim), *mine][:_DIMENSIONS]
        padded = mine + [-1] * (_DIMENSIONS - len(mine))
        found = self.agreement.all(padded)
        self.agreement.require_same_kind(found, _KINDS)
        for rank, shape in enumerate(found):
            if shape[1:] != padded[1:]:
                raise ValueError(
                    f"rows of the model's input have shape {mine[1:]} on rank {self.rank}, but "
                    f"{[size for size in shape[1:] if size >= 0]} on rank {rank}; give all ranks "
                    "rows of one shape, padded where they differ"
                )
        return tuple(shape[0] for shape in found)

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
        found = self.agreement.all([_RECORD, state, *[0] * (_DIMENSIONS - 2)])
        self.agreement.require_same_kind(found, _KINDS)
        return [numbers[1] for numbers in found]

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
        elif torch.is_grad_enabled():
            raise RuntimeError(
                "an analog layer of a prepared model is read outside a forward pass of that model, "
                "so that its rows have no place in a global batch; call the module that was given "
                "to pulsora.distributed.prepare, or read under torch.no_grad()"
            )
        else:
            whole = None
        if whole is None:
            return None
        rows, samples = whole.rows, math.prod(shape)
        # Every row has the same number of samples, in the dimensions after the batch.
        each = math.prod(shape[1:]) if rows == 0 else samples // (rows * steps)
        fits = rows == 0 or (shape[0] if shape else 1) % (rows * steps) == 0
        if not fits or samples != each * rows * steps:
            raise ValueError(
                f"an analog layer reads x of shape {[*shape, '...']} where this rank has {rows} "
                "rows of the global batch; the rows have to be the first dimension of what layers "
                "read (batch_first), and of what is given to the model, or its batch_dim"
            )
        if self.size == 1:
            return BatchShard((samples,))
        return BatchShard(tuple(count * each for count in whole.counts), self.rank, steps)

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
            received = gather_equal(tensors, self.size, self.group)
            return lambda: self._received(received)
        widths = [each.shape[1] for each in present]
        most = max(shard.counts) * shard.steps
        # One message for a whole layer, padded on ranks with fewer rows. Its last element is the
        # number of the layer.
        message = present[0].new_zeros(most * sum(widths) + 1)
        message[-1] = next(i for i, each in enumerate(self._arrays) if each is array)
        begins = [most * sum(widths[:i]) for i in range(len(widths))]
        for begin, each in zip(begins, present, strict=True):
            message[begin : begin + each.numel()] = each.detach().reshape(-1)
        everyone = message.new_empty(self.size, len(message))
        work = dist.all_gather(list(everyone), message, group=self.group, async_op=True)

        def wait() -> Sequence[Any]:
            with self.agreement.others():
                work.wait()
            if everyone.device.type == "cpu":
                self._require_same_layer(everyone[:, -1])
            whole = iter(
                shard.concatenated(
                    [
                        row[begin : begin + count * shard.steps * width].view(-1, width)
                        for row, count in zip(everyone, shard.counts, strict=True)
                    ]
                )
                for begin, width in zip(begins, widths, strict=True)
            )
            return [None if each is None else next(whole) for each in tensors]

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
        theirs = [self._names[int(number)] for number in numbers.tolist()]
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

    def pulsed_here(self, array: object, rows: int) -> list[int] | None:
        """Returns this rank's tiles if ranks share the pulses of so many rows; else None."""
        update = self.updates.get(id(array))
        if update is None:
            return None
        least = update.least.recorded if self._records() else update.least.plain
        return None if least is None or rows < least else update.tiles[self.rank]

    def exchange(self, array: object) -> None:
        """Begins to send and receive changes of tiles, unless a step is recorded; `stepped` waits."""
        if not self._records():
            self._awaited.append(self.updates[id(array)].exchange(self.group))

    def recorded_exchange(self, arrays: Sequence[object]) -> RecordedExchange:
        """Records the exchange of changes."""
        updates = [self.updates[id(array)] for array in arrays]
        return RecordedExchange(updates, self.group, self.agreement, self._arrays[0].device)

    def _records(self) -> bool:
        return self._by_nccl and torch.cuda.is_current_stream_capturing()

    def receive(self) -> None:
        """Waits for the changes that other ranks have sent."""
        awaited, self._awaited = self._awaited, []
        for receive in awaited:
            receive()

    # Agreement

    def agree_on_step(self, updated: Sequence[object]) -> None:
        """Raises RuntimeError on all ranks unless all are about to update the same layers.

        Nothing is compared if ranks would wait for their GPUs.
        """
        if self.size == 1 or not self.agreement.by_host:
            return
        chosen = {id(array) for array in updated}
        flags = sum((id(array) in chosen) << i for i, array in enumerate(self._arrays))
        # As many numbers as in a message about rows, so that each understands the other. Of more
        # layers than fit, a checksum is compared.
        words = [flags >> (_BITS * i) & ((1 << _BITS) - 1) for i in range(_DIMENSIONS - 3)]
        checksum = zlib.crc32(f"{flags}".encode())
        found = self.agreement.all([_STEP, self.agreement.steps, checksum, *words])
        self.agreement.require_same_kind(found, _KINDS)
        for rank, theirs in enumerate(found):
            if theirs == found[0]:
                continue
            if theirs[1] != found[0][1]:
                how = f"rank {rank} has made {theirs[1]} steps, and rank 0 {found[0][1]}"
            else:
                how = self._other_gradients(rank, theirs[3:], found[0][3:])
            self.agreement.disagree(f"in a step of the optimiser, {how}", STEPS_TOGETHER)

    def _other_gradients(self, rank: int, theirs: Sequence[int], first: Sequence[int]) -> str:
        """Describes the first layer that has a gradient on one of two ranks alone."""
        for i, name in enumerate(self._names[: _BITS * len(theirs)]):
            word, bit = divmod(i, _BITS)
            has_one, has_first = theirs[word] >> bit & 1, first[word] >> bit & 1
            if has_one != has_first:
                ranks = (rank, 0) if has_one else (0, rank)
                return f"layer '{name}' has a gradient on rank {ranks[0]}, and none on {ranks[1]}"
        return f"rank {rank} has gradients of other layers than rank 0"

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
