"""The one GPU on which the work of a graph runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["one_gpu"]


def one_gpu(graph: str, what: str, devices: Sequence[str]) -> int:
    """Returns the number of the GPU on which all parts of a graph are.

    Args:
        graph: The kind of the graph, for messages.
        what: What the parts are, for messages.
        devices: The device of each part, such as "cuda:0".

    Raises:
        ValueError: Without parts, or for parts on several devices.
        DeviceError: For parts on the CPU.
    """
    if len(set(devices)) != 1:
        raise ValueError(
            f"a {graph} needs {what} on one device; got {len(devices)} {what} on "
            f"{sorted(set(devices))}"
        )
    if devices[0] == "cpu":
        raise _core.DeviceError(f"a {graph} needs {what} on a GPU; these are on the CPU")
    return int(devices[0].removeprefix("cuda:"))
