"""A CUDA graph of a user's own work, in which tiles draw new random numbers at each run."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from pulsora import _core
from pulsora._internal.modules import require_module
from pulsora.graphs.graph_part import GraphPart
from pulsora.graphs.one_gpu import one_gpu
from pulsora.nn.autograd.analog_parameter import analog_arrays
from pulsora.nn.tiles.batch_shard import SINGLE_PROCESS
from pulsora.nn.tiles.followed_weights import followed_layers
from pulsora.nn.tiles.held_weights import layers_with_held_weights

if TYPE_CHECKING:
    import contextlib
    from types import TracebackType

    from torch import nn

__all__ = ["CapturedGraph"]


class CapturedGraph:
    """Captures a block of work of torch and of tiles, as `torch.cuda.graph` does for torch alone.

        graph = CapturedGraph(model)
        with graph:
            loss = loss_fn(model(x), target)
            loss.backward()
            optimizer.step()
        for batch in batches:
            x.copy_(batch[0])
            target.copy_(batch[1])
            graph.replay()

    Each replay has the bits of the block run plainly: torch's work is repeated, and the calls to
    tiles are made anew, so that samples have new random numbers, and transfers happen on schedule.
    The rules of `torch.cuda.graph` hold: run the block a few times before its capture, in which
    nothing computes; put inputs into the captured tensors, and read results from them; nothing in
    the block may wait for the GPU; Python code beside tensors is not repeated, and so learning
    rates are constants. `TrainingStep` watches over such things, and is simpler for a whole step.

    Args:
        *modules: The modules with analog layers that the block calls, on one GPU. Layers whose
            weight is a parameter of torch (`InferenceConfig`, `MixedPrecisionConfig`) are taken by
            `TrainingStep` alone.

    Raises:
        TypeError: For what is no module.
        ValueError: Without an analog layer, for layers on several devices, that several processes
            train, or whose weight is a parameter of torch.
        DeviceError: If the layers are not on a GPU.
    """

    def __init__(self, *modules: nn.Module) -> None:
        found = {}
        for module in modules:
            require_module(module)
            if followed_layers(module) or layers_with_held_weights(module):
                raise ValueError(
                    "modules have layers whose weight is a parameter of torch (InferenceConfig, "
                    "MixedPrecisionConfig), which are written to tiles between steps; use "
                    "pulsora.training_step.TrainingStep"
                )
            found.update({id(array): array for _, array in analog_arrays(module)})
        arrays = list(found.values())
        if any(each.process_group is not SINGLE_PROCESS for each in arrays):
            raise ValueError(
                "modules are trained by several processes, whose messages a CapturedGraph does not "
                "send; use pulsora.training_step.TrainingStep"
            )
        number = one_gpu("CapturedGraph", "analog layers", [str(each.device) for each in arrays])
        self._layers = [[tile._core for tile in array] for array in arrays]  # noqa: SLF001
        self._part = GraphPart(torch.device("cuda", number), self._layers)
        self._block: contextlib.AbstractContextManager[None] | None = None
        self._is_captured = False

    def __enter__(self) -> None:
        """Begins the capture.

        Raises:
            StateError: If a block has been captured already.
        """
        if self._is_captured:
            raise _core.StateError(
                "this CapturedGraph has its block already; make another one, or call replay()"
            )
        self._block = self._part.captured()
        self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the capture. After an error nothing has computed, and the block can be captured."""
        block, self._block = self._block, None
        assert block is not None  # noqa: S101 - __enter__ has set it
        try:
            with warnings.catch_warnings():
                if kind is not None:  # torch warns of a block that ends before any work
                    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
                block.__exit__(kind, error, trace)
            self._is_captured = kind is None
        finally:
            if not self._is_captured:
                self._part = GraphPart(self._part.device, self._layers)

    @property
    def shapes(self) -> int:
        """Number of executable graphs: one for each shape of a run, such as with a transfer."""
        return self._part.tiles.shapes

    def replay(self) -> None:
        """Runs the block's work in torch's current stream.

        Raises:
            StateError: Before a block has been captured.
        """
        if not self._is_captured:
            raise _core.StateError(
                "this CapturedGraph has no block yet; capture one by `with graph:` first"
            )
        self._part.run((), draws=True)
