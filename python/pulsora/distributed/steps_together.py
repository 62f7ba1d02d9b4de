"""Agreement of processes about forward passes and steps that they make together."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from pulsora.distributed.agreement import STEPS_TOGETHER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsora.distributed.agreement import Agreement

__all__ = [
    "EVALUATION",
    "GATHERING",
    "RECORD",
    "SAVING",
    "agree_on_step",
    "announce",
    "rows_of_ranks",
]

DIMENSIONS = 8
"""Numbers of a message; also the largest number of dimensions in the comparison of inputs."""
_STEP, RECORD, EVALUATION, GATHERING, SAVING = -2, -3, -4, -5, -6
_KINDS = {
    _STEP: "a step of the optimiser",
    RECORD: "a TrainingStep",
    EVALUATION: "a forward pass without gradients",
    GATHERING: "gathered(model)",
    SAVING: "the end of pulsora.save",
}
"""What a rank does, by the first number of its message, where rows of a forward pass are."""
_BITS = 62  # layers in a number of such a message


def announce(agreement: Agreement, kind: int, number: int = 0) -> list[list[int]]:
    """Returns the messages of all ranks; RuntimeError if some do not what this kind says."""
    found = agreement.all([kind, number, *[0] * (DIMENSIONS - 2)])
    agreement.require_same_kind(found, _KINDS)
    return found


def rows_of_ranks(agreement: Agreement, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the numbers of rows of a forward pass on each rank.

    Args:
        agreement: The processes.
        shape: The shape of this process's first input, with the dimension of its rows first.

    Raises:
        ValueError: if rows have other shapes on other ranks.
    """
    mine = list(shape)[:DIMENSIONS]
    padded = mine + [-1] * (DIMENSIONS - len(mine))
    found = agreement.all(padded)
    agreement.require_same_kind(found, _KINDS)
    for rank, theirs in enumerate(found):
        if theirs[1:] != padded[1:]:
            raise ValueError(
                f"rows of the model's input have shape {mine[1:]} on rank {agreement.rank}, but "
                f"{[size for size in theirs[1:] if size >= 0]} on rank {rank}; give all ranks "
                "rows of one shape, padded where they differ"
            )
    return tuple(theirs[0] for theirs in found)


def agree_on_step(
    agreement: Agreement, arrays: Mapping[str, object], updated: Sequence[object]
) -> None:
    """Raises RuntimeError on all ranks unless all are about to update the same layers.

    Args:
        agreement: The processes.
        arrays: The arrays of all layers, by name.
        updated: The arrays that this process is about to update.
    """
    chosen = {id(array) for array in updated}
    flags = sum((id(array) in chosen) << i for i, array in enumerate(arrays.values()))
    # As many numbers as in a message about rows, so that each understands the other. Of more
    # layers than fit, a checksum is compared.
    words = [flags >> (_BITS * i) & ((1 << _BITS) - 1) for i in range(DIMENSIONS - 3)]
    checksum = zlib.crc32(f"{flags}".encode())
    found = agreement.all([_STEP, agreement.steps, checksum, *words])
    agreement.require_same_kind(found, _KINDS)
    for rank, theirs in enumerate(found):
        if theirs == found[0]:
            continue
        if theirs[1] != found[0][1]:
            how = f"rank {rank} has made {theirs[1]} steps, and rank 0 {found[0][1]}"
        else:
            how = _other_gradients(list(arrays), rank, theirs[3:], found[0][3:])
        agreement.disagree(f"in a step of the optimiser, {how}", STEPS_TOGETHER)


def _other_gradients(
    names: Sequence[str], rank: int, theirs: Sequence[int], first: Sequence[int]
) -> str:
    """Describes the first layer that has a gradient on one of two ranks alone."""
    for i, name in enumerate(names[: _BITS * len(theirs)]):
        word, bit = divmod(i, _BITS)
        has_one, has_first = theirs[word] >> bit & 1, first[word] >> bit & 1
        if has_one != has_first:
            ranks = (rank, 0) if has_one else (0, rank)
            return f"layer '{name}' has a gradient on rank {ranks[0]}, and none on {ranks[1]}"
    return f"rank {rank} has gradients of other layers than rank 0"
