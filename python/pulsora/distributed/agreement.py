"""Messages of whole numbers between processes, by which they find out where they differ."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

__all__ = ["STEPS_TOGETHER", "Agreement", "timeout_of"]

STEPS_TOGETHER = (
    "a step is made, or left out, by all ranks together; if ranks decide by their own rows, let "
    "them agree first, as by torch.distributed.all_reduce"
)


class Agreement:
    """Exchanges whole numbers with the other processes.

    Where the group can send only what is on a GPU (NCCL), a second group of the same processes
    (gloo) sends numbers, so that no process waits for its GPU.

    Args:
        group: The processes; None for this process alone. All of them make an Agreement.
        device: The device of the tiles.

    Attributes:
        by_host: Whether messages leave the GPU alone.
        size: Number of processes.
        rank: The number of this process.
        steps: Number of steps that this process has made.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self.size = 1 if group is None else dist.get_world_size(group)
        self.rank = 0 if group is None else dist.get_rank(group)
        self.steps = 0
        self.by_host = group is None or "gloo" in dist.get_backend_config(group)
        if group is not None and not self.by_host and dist.is_gloo_available():
            ranks = dist.get_process_group_ranks(group)
            group = dist.new_group(ranks, backend="gloo", timeout=timeout_of(group, device))
            self.by_host = True
        self._group = group
        self._device = torch.device("cpu") if self.by_host else device

    def all(self, numbers: list[Any]) -> list[Any]:
        """Returns the whole numbers of each rank, in lists of equal form."""
        if self.size == 1:
            return [numbers]
        mine = torch.tensor(numbers, device=self._device)
        everyone = mine.new_empty(self.size, *mine.shape)
        with self.others():
            dist.all_gather(list(everyone), mine, group=self._group)
        found: list[Any] = everyone.tolist()
        return found

    def require_equal(self, digests: Mapping[str, str], what: str, remedy: str = "") -> None:
        """Raises RuntimeError on all ranks unless all have the same texts under the same names."""
        if self.size == 1:
            return
        names = "\n".join(digests)
        rows = [_digest(names), *(_digest(text) for text in digests.values())]
        sizes = self.all([len(rows), *rows[0]])
        for rank, size in enumerate(sizes):
            if size != sizes[0]:
                self.disagree(f"the model of rank {rank} has other layers than that of rank 0")
        found = self.all(rows)
        for rank, theirs in enumerate(found):
            different = [
                name
                for name, one, other in zip(digests, theirs[1:], found[0][1:], strict=True)
                if one != other
            ]
            if different:
                self.disagree(
                    f"{what} of {different[0]!r} on rank {rank} is not that on rank 0", remedy
                )

    def require_same_kind(self, found: Sequence[Sequence[int]], kinds: Mapping[int, str]) -> None:
        """Raises RuntimeError if the first numbers of messages are of several kinds.

        Args:
            found: The numbers of each rank.
            kinds: What a rank does whose first number is this; other numbers are rows of a forward
                pass.
        """
        doing = [kinds.get(numbers[0], "the next forward pass of the model") for numbers in found]
        first = next((i for i, each in enumerate(doing) if each != doing[0]), None)
        if first is not None:
            one, other = (
                [i for i, what in enumerate(doing) if what == doing[k]] for k in (0, first)
            )
            self.disagree(
                f"ranks {one} are in {doing[0]}, and ranks {other} in {doing[first]}",
                STEPS_TOGETHER,
            )

    def disagree(self, how: str, remedy: str = "") -> NoReturn:
        """Raises the RuntimeError that says how the ranks differ."""
        raise RuntimeError(f"the ranks do not agree: {how}" + (f"; {remedy}" if remedy else ""))

    @contextlib.contextmanager
    def others(self) -> Iterator[None]:
        """Says which step this rank is in when a message to the other ranks fails."""
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {self.rank} gets no answer in step {self.steps + 1}: another rank failed, "
                f"waits or made fewer steps; all have to make equally many ({error})"
            ) from error


def timeout_of(group: dist.ProcessGroup, device: torch.device) -> timedelta | None:
    """Returns the timeout of a group, which new groups of torch do not take over."""
    options = getattr(group._get_backend(device), "options", None)  # noqa: SLF001 - nothing public
    timeout: timedelta | None = getattr(options, "_timeout", None)
    return timeout


def _digest(text: str) -> list[int]:
    return list(hashlib.sha256(text.encode()).digest())
