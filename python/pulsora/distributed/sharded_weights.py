"""Sharded weights: each process stores those of the tiles that it pulses."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from torch import distributed as dist

    from pulsora.distributed.agreement import Agreement
    from pulsora.distributed.sharded_update import ShardedUpdate

    _Message: TypeAlias = tuple[Callable[[], object], Callable[[], None]]  # to wait, to put in
    _Read: TypeAlias = tuple[int, bool]  # id of an array, and whether the read is backward

__all__ = ["ShardedWeights"]


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
        self._gathered = 0  # blocks of `gathered`, one in another

    def __contains__(self, array: object) -> bool:
        return id(array) in self._updates

    def __bool__(self) -> bool:
        return bool(self._updates)

    @property
    def are_gathered(self) -> bool:
        """Whether all processes have all weights, in a block of `gathered`."""
        return self._gathered > 0

    @contextlib.contextmanager
    def read(self, array: object, *, backward: bool, trains: bool) -> Iterator[None]:
        """Has the weights of a layer whole for a read in the block.

        `trains` tells whether a backward pass may follow a forward read.
        """
        key = id(array)
        if self._gathered or key not in self._updates:
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
    def gathered(self) -> Iterator[None]:
        """Has all weights whole in the block; all processes have to enter it."""
        if not self._gathered:
            self.forget()
        self._gathered += 1
        try:
            for key in self._updates:
                self._hold(key)
            yield
        finally:
            self._gathered -= 1
            if not self._gathered:
                self.forget()

    def replaced(self, array: object) -> None:
        """Frees what an array has beyond this process's share, after its tiles were made anew."""
        update = self._updates.get(id(array))
        if update is None:
            return
        if not self._gathered:
            update.release_other_weights()

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
