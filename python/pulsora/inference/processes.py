"""Results of processes that work on parts of the same data."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["of_all"]

_T = TypeVar("_T")


def of_all(group: dist.ProcessGroup | None, make: Callable[[], _T]) -> list[_T]:
    """Returns what each process of a group makes, in the order of the processes.

    Args:
        group: The processes, which all call this function; None for this one alone.
        make: Makes the part of this process. An error here is raised in all processes.

    Raises:
        TypeError: For what is no group.
        ValueError: In a process that the group does not have.
        RuntimeError: If another process failed.
    """
    if group is None:
        return [make()]
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"group = {group!r}: give a process group, such as torch.distributed.group.WORLD"
        )
    if dist.get_rank(group) < 0:
        raise ValueError("this process is none of the group; call in processes of the group alone")
    part: _T | None = None
    failure: Exception | None = None
    try:
        part = make()
    except Exception as error:  # noqa: BLE001 - raised below, once the other processes know
        failure = error
    found: list[tuple[_T, str]] = [None] * dist.get_world_size(group)  # type: ignore[list-item]
    dist.all_gather_object(found, (part, repr(failure) if failure else ""), group=group)
    if failure is not None:
        raise failure
    for process, (_, said) in enumerate(found):
        if said:
            raise RuntimeError(f"process {process} of the group failed: {said}")
    return [each for each, _ in found]
