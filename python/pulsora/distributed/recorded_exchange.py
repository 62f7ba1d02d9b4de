"""The exchange of tiles' changes between processes in a recorded step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from pulsora.distributed.agreement import Agreement
    from pulsora.distributed.sharded_update import ShardedUpdate

    _Message: TypeAlias = list[tuple[ShardedUpdate, int, int]]  # layers, and begin and end of each

__all__ = ["RecordedExchange", "exchange_numbers"]

_MOST_FLOATS = 1 << 24
"""Largest message of one process, unless a layer needs a larger one: 64 MiB."""


class RecordedExchange:
    """Sends the changes of this process's tiles to the others, in a step recorded as one graph.

    It is made while the step is captured. The graph sends tensors. The numbers that the host
    keeps go from host to host, by `exchange_numbers` after each run.

    Args:
        updates: The layers whose pulses processes share.
        group: The processes, by NCCL.
        agreement: Sends numbers between their hosts.
        device: The GPU of this process.
    """

    def __init__(
        self,
        updates: Sequence[ShardedUpdate],
        group: dist.ProcessGroup | None,
        agreement: Agreement,
        device: torch.device,
    ) -> None:
        self._updates = updates
        self._agreement = agreement
        size, rank = agreement.size, agreement.rank
        parts = _parts(updates, size)
        longest = max(max(map(_length, part)) for part in parts)
        # The parts follow each other in one stream, so they may use the same memory.
        message = torch.empty(longest, device=device)
        everyone = torch.empty(size * longest, device=device)
        for part in parts:
            length = max(map(_length, part))
            for update, begin, end in part[rank]:
                update.pack(message[begin:end])
            whole = everyone[: size * length]
            dist.all_gather_into_tensor(whole, message[:length], group=group)
            for process, theirs in enumerate(whole.view(size, length)):
                for update, begin, end in part[process]:
                    update.unpack(process, theirs[begin:end])
        self._memory = message, everyone
        for update in updates:
            update.free_messages()

    def exchange_numbers(self) -> None:
        """Makes the numbers on all hosts those of the processes that made the pulses."""
        exchange_numbers(self._updates, self._agreement)


def exchange_numbers(updates: Sequence[ShardedUpdate], agreement: Agreement) -> None:
    """Makes the numbers of layers on all hosts those of the processes that made the pulses."""
    mine = [update.numbers() for update in updates]
    lengths = agreement.all([len(numbers) for numbers in mine])
    most = max(map(sum, lengths))
    flat = [number for numbers in mine for number in numbers]
    with agreement.others():
        found = agreement.all(flat + [0] * (most - len(flat)))
    for process, (theirs, sizes) in enumerate(zip(found, lengths, strict=True)):
        if process == agreement.rank:
            continue
        begin = 0
        for update, size in zip(updates, sizes, strict=True):
            update.restore(process, theirs[begin : begin + size])
            begin += size


def _parts(updates: Sequence[ShardedUpdate], size: int) -> list[list[_Message]]:
    """Divides what each process sends into messages, and returns those that go at a time."""
    messages: list[list[_Message]] = []
    for process in range(size):
        own: list[_Message] = [[]]
        for update in updates:
            floats = update.sizes[process]
            if own[-1] and _length(own[-1]) + floats > _MOST_FLOATS:
                own.append([])
            begin = _length(own[-1])
            if floats > 0:
                own[-1].append((update, begin, begin + floats))
        messages.append(own)
    most = max(map(len, messages))
    return [[own[i] if i < len(own) else [] for own in messages] for i in range(most)]


def _length(message: _Message) -> int:
    return message[-1][2] if message else 0
