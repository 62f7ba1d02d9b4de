"""CUDA graphs of torch's work, captured so that torch is as before if it fails."""

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
    """`torch.cuda.graph` for a block that may fail. Threads that load data may go on meanwhile.

    No garbage is collected in it: CUDA forbids a thread that captures to destroy graphs, and cycles
    that hold some are anywhere in a program.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        # torch leaves its capturing stream current where the end of a capture raises.
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

    Otherwise they raise on the next draw.
    """
    empty = torch.cuda.CUDAGraph()
    with (
        warnings.catch_warnings(),
        contextlib.suppress(RuntimeError),  # then they stay as torch left them
        torch.cuda.stream(torch.cuda.Stream()),  # type: ignore[no-untyped-call]
    ):
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        empty.capture_begin(capture_error_mode="thread_local")
        empty.capture_end()
