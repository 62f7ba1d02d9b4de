"""Work of torch and of tiles that is captured once, and repeated with new random numbers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from pulsora import _core
from pulsora.graphs.capture import captured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["GraphPart"]


class GraphPart:
    """A CUDA graph of torch's work, in which calls to tiles are made anew at each run.

    Args:
        device: The GPU.
        layers: The cores of the tiles that are called, for each layer.
    """

    def __init__(self, device: torch.device, layers: Sequence[Sequence[_core.Tile]]) -> None:
        self.tiles = _core.TrainingGraph(device.index, layers)
        self.device = device
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Captures the work of a block."""
        self.tiles.begin()
        try:
            with captured(self._graph, self.device):
                yield
        finally:
            self.tiles.end()
        self.tiles.finish(self._graph.raw_cuda_graph())

    def run(self, rates: Sequence[float], *, draws: bool) -> None:
        """Enqueues the work in torch's current stream.

        Args:
            rates: The learning rates, by the numbers of `use_rate`.
            draws: Whether the block draws random numbers of torch.
        """
        if draws:
            # The graph is empty since `finish`: this sets what random numbers begin with, and
            # advances torch's generator by those of a run.
            self._graph.replay()
        self.tiles.run(torch.cuda.current_stream(self.device).cuda_stream, rates)
