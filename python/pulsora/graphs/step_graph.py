"""Mini-batches of tiles on a GPU as CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora import _core
from pulsora.graphs.one_gpu import one_gpu

if TYPE_CHECKING:
    from types import TracebackType

    from pulsora.tile import Tile

__all__ = ["StepGraph"]


class StepGraph:
    """Runs the work of tiles for one mini-batch as one CUDA graph, which saves host time.

        graph = pulsora.StepGraph(tile)
        with torch.cuda.stream(torch.cuda.Stream()):
            for x, d in batches:
                with graph:
                    tile.forward(x, out=y)
                    tile.backward(d, out=dx)
                    tile.update(x, d, lr)

    Every mini-batch is recorded anew and updates an executable graph of the same shape, because
    sample numbers and the schedule of transfers change. Results have the same bits as the same
    calls without the graph. Inside the block, only tiles should compute: torch's work is recorded
    too, but memory that torch allocates there is not safe. Reading weights, state, statistics or
    explanations waits for the GPU and fails inside the block.

    Args:
        tiles: The tiles that are called inside, all on one GPU.
        stream: The stream of the work, a `cudaStream_t` as an integer; torch's current stream by
            default. It must not be the default stream.

    Raises:
        ValueError: Without tiles, or for tiles on several devices.
        ConfigError: On entering, if the stream is the default stream.
        DeviceError: If the tiles are not on a GPU.
    """

    def __init__(self, *tiles: Tile, stream: int | None = None) -> None:
        self._device = one_gpu("StepGraph", "tiles", [tile.device for tile in tiles])
        self._tiles = tiles
        self._stream = stream
        self._graphs: dict[int, _core.StepGraph] = {}
        self._current: _core.StepGraph  # graph of the open block

    @property
    def shapes(self) -> int:
        """Number of executable graphs: one per shape of a mini-batch, such as with a transfer."""
        return sum(graph.shapes for graph in self._graphs.values())

    def __enter__(self) -> None:
        stream = _torch_stream(self._device) if self._stream is None else self._stream
        if stream not in self._graphs:
            self._graphs[stream] = _core.make_step_graph(self._device, stream)
        for tile in self._tiles:
            tile._core.stream = stream  # noqa: SLF001 - Tile is of this package
            tile._core.in_step_graph = True  # noqa: SLF001
        graph = self._graphs[stream]
        graph.begin()
        self._current = graph

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tile in self._tiles:
            tile._core.in_step_graph = False  # noqa: SLF001 - Tile is of this package
        if kind is None:
            self._current.end()
        else:
            self._current.abandon()


def _torch_stream(device: int) -> int:
    import torch  # noqa: PLC0415 - only if the caller gives no stream

    return int(torch.cuda.current_stream(device).cuda_stream)
