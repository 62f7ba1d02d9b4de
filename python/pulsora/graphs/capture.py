"""Capture of torch's work in CUDA graphs, which leaves torch unchanged if it fails."""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["captured"]


@contextlib.contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Captures like `torch.cuda.graph`, for a block that may fail. Data loading may continue.

    Garbage collection is off in the block: CUDA forbids a capturing thread to destroy graphs, and
    any reference cycle of a program may hold some.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        # torch leaves its capturing stream current if the end of a capture raises.
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(graph, capture_error_mode="thread_local"),
        ):
            yield
    except BaseException:
        _free_generators()
        raise
    finally:
        if collects:
            gc.enable()


def _free_generators() -> None:
    """Resets torch's CUDA generators after a failed graph capture.

    Without a reset, the generators raise on the next draw.
    """
    empty = torch.cuda.CUDAGraph()
    with (
        warnings.catch_warnings(),
        contextlib.suppress(RuntimeError),  # then the generators are not reset
        torch.cuda.stream(torch.cuda.Stream()),  # type: ignore[no-untyped-call]
    ):
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        empty.capture_begin(capture_error_mode="thread_local")
        empty.capture_end()
