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
def captured(graph: torch.cuda.CUDAGraph, device: torch.device) -> Iterator[None]:
    """Captures a GPU's work like `torch.cuda.graph`, for a block that may fail.

    The GPU need not be the current one. Data loading may continue.

    Garbage collection is off in the block: CUDA forbids a capturing thread to destroy graphs, and
    any reference cycle of a program may hold some.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        # torch leaves its capturing stream current if the end of a capture raises.
        with (
            torch.cuda.device(device),
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(graph, stream=_stream(device), capture_error_mode="thread_local"),
        ):
            yield
    except BaseException:
        with torch.cuda.device(device):
            _free_generators()
        raise
    finally:
        if collects:
            gc.enable()


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the stream in which a GPU's work is captured; torch has one for all GPUs."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]


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
