"""Sharded weights: each process stores those of the tiles that it pulses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pulsora.nn.tiles.layer_names import described
from pulsora.state import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from torch import distributed as dist

    from pulsora.distributed.agreement import Agreement
    from pulsora.distributed.sharded_update import ShardedUpdate
    from pulsora.nn.tiles.tile_array import TileArray

    _Message: TypeAlias = tuple[Callable[[], object], Callable[[], None]]  # to wait, to put in
    _Read: TypeAlias = tuple[int, bool]  # id of an array, and whether the read is backward

__all__ = ["READ_ALONE", "STEP_WHILE_GATHERED", "ShardedWeights"]

READ_ALONE = (
    "an analog layer with weights = 'sharded' is read outside a forward pass of its model, where "
    "ranks do not wait for each other; call the module that was given to "
    "pulsora.distributed.prepare, on all ranks, or read under torch.no_grad() in a block 'with "
    "pulsora.distributed.gathered(model):'"
)
STEP_WHILE_GATHERED = (
    "a step of the optimiser in a block of pulsora.distributed.gathered(model), whose copies of "
    "weights it would not change; leave the block before the step"
)


class ShardedWeights:
    """Gathers the weights of a layer for its reads, and frees those of other processes after them.

    Processes read layers in one order, in which all of them send messages. A read also begins to
    gather the layer that was read after it last time.

    Args:
        updates: The layers whose weights are sharded, by the ids of their arrays.
        group: The processes.
        agreement: Their messages of numbers.
        reshards: Whether weights are freed between a layer's forward and backward reads.
    """

    def __init__(
        self,
        updates: Mapping[int, ShardedUpdate],
        group: dist.ProcessGroup | None,
        agreement: Agreement,
        *,
        reshards: bool,
    ) -> None:
        self._updates = updates
        self._group = group
        self._agreement = agreement
        self._reshards = reshards
        self._begun: dict[int, _Message] = {}  # under way
        self._kept: set[int] = set()  # whole beyond a read
        self._next: dict[_Read, _Read] = {}  # the read after a read, last time
        self._last: _Read | None = None
        self._open: set[int] = set()  # arrays in a block of `gathered`

    def __contains__(self, array: object) -> bool:
        return id(array) in self._updates

    def __bool__(self) -> bool:
        return bool(self._updates)

    @property
    def are_apart(self) -> bool:
        """Whether weights are sharded, and this process is in no block of `gathered`."""
        return bool(self._updates) and not self._open

    @property
    def are_gathered(self) -> bool:
        """Whether this process is in a block of `gathered`."""
        return bool(self._open)

    def are_here(self, array: object) -> bool:
        """Whether this process has the weights of an array, unless within a read alone."""
        return id(array) not in self._updates or id(array) in self._open

    def require_here(self, array: TileArray) -> None:
        """Raises StateError unless this process has the weights of an array (`are_here`)."""
        if not self.are_here(array):
            raise StateError(
                f"{described(array)} has weights = 'sharded', of which this rank stores a part; "
                "read, write and save them in a block 'with pulsora.distributed.gathered(model):', "
                "which all ranks enter"
            )

    @contextlib.contextmanager
    def read(self, array: object, *, backward: bool, trains: bool) -> Iterator[None]:
        """Has the weights of a layer whole for a read in the block.

        `trains` tells whether a backward pass may follow a forward read.
        """
        key = id(array)
        if self.are_here(array):
            yield
            return
        self._hold(key)
        following = self._follow((key, backward))
        try:
            yield
        finally:
            stays = trains and not backward and not self._reshards
            if not stays and (following is None or following[0] != key):
                self._free(key)

    @contextlib.contextmanager
    def gathered(self, arrays: Sequence[object] = ()) -> Iterator[None]:
        """Has the weights of some arrays whole in the block, or of all.

        All processes have to enter it. A block in another one gathers what is missing.
        """
        keys = [id(array) for array in arrays] or list(self._updates)
        some = {key for key in keys if key in self._updates} - self._open
        if not self._open:
            self.forget()
        try:
            for key in [key for key in keys if key in some]:
                self._hold(key)
            self._open |= some
            yield
        finally:
            self._open -= some
            for key in some & self._kept:
                self._free(key)

    def replaced(self, array: object) -> None:
        """Frees what an array has beyond this process's share, after its tiles were made anew."""
        if id(array) in self._updates and not self.are_here(array):
            self._free(id(array))

    def forget(self) -> None:
        """Frees the weights of other processes, and what is on the way: weights have changed."""
        for key in list(self._begun):
            wait, _ = self._begun.pop(key)
            self._wait(wait)
        for key in list(self._kept):
            self._free(key)
        self._last = None

    def _hold(self, key: int) -> None:
        if key in self._kept:
            return
        begun = key in self._begun
        wait, put = self._begun.pop(key) if begun else self._updates[key].gather(self._group)
        self._wait(wait)
        put()
        self._kept.add(key)

    def _wait(self, wait: Callable[[], object]) -> None:
        with self._agreement.others():
            wait()

    def _free(self, key: int) -> None:
        self._updates[key].release_other_weights()
        self._kept.discard(key)

    def _follow(self, read: _Read) -> _Read | None:
        """Notes a read, and begins to gather for the one after it, which is returned."""
        if self._last is not None:
            self._next[self._last] = read
        self._last = read
        following = self._next.get(read)
        if following is not None and following[0] not in {*self._kept, *self._begun}:
            self._begun[following[0]] = self._updates[following[0]].gather(self._group)
        return following
