"""A device from a table of measured steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.devices import models

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["from_table"]

_MOST = 64
_NO_SPREAD = {
    f"{name}_dtod": 0.0 for name in ("dw_min", "up_down", "w_max", "w_min", "lifetime", "reset")
}


def from_table(
    w: ArrayLike,
    dw_up: ArrayLike,
    dw_down: ArrayLike,
    *,
    std_up: ArrayLike | None = None,
    std_down: ArrayLike | None = None,
    curve: str = "cubic",
    **parameters: Any,
) -> models.TableStep:
    """The `TableStep` whose mean steps, and their cycle noise, were measured at some weights.

    Nothing is added to the table: cells are equal, and noise is 0 unless it is given.

    Args:
        w: Weights of the nodes, increasing, [2 to 64].
        dw_up: Mean change of the weight by an up pulse at each node, >= 0, [nodes].
        dw_down: Mean change by a down pulse, as a magnitude, >= 0, [nodes].
        std_up: Standard deviation of the change by one up pulse, in weight, >= 0, [nodes]; 0 by
            default.
        std_down: Standard deviation of the change by one down pulse, likewise.
        curve: "cubic" (monotone between nodes) or "linear".
        **parameters: Any parameter of TableStep that is no table: `w_min` and `w_max` (by default
            the first and the last node), `dw_min_dtod`, `dw_min_std` instead of `std_up` and
            `std_down` (relative to the step), and so on.

    Raises:
        ValueError: for tables that are no such numbers, naming the first bad one; or if 0 does not
            lie between w_min and w_max.
        ConfigError: for a bad parameter.
    """
    nodes = _numbers("w", w)
    if not 2 <= len(nodes) <= _MOST:
        raise ValueError(f"w has {len(nodes)} numbers; give 2 to {_MOST} nodes")
    steps = np.diff(nodes)
    if (steps <= 0.0).any():
        at = int(np.argmax(steps <= 0.0)) + 1
        raise ValueError(
            f"w[{at}] is {nodes[at]:g}, not above w[{at - 1}] = {nodes[at - 1]:g}; sort the nodes"
        )
    up, down = (
        _table(name, values, nodes) for name, values in (("dw_up", dw_up), ("dw_down", dw_down))
    )
    noisy = std_up is not None or std_down is not None
    if noisy and "dw_min_std" in parameters:
        raise ValueError("dw_min_std and std_up or std_down are given; give one of them")
    if not (up + down > 0.0).any():
        raise ValueError("dw_up and dw_down are 0 at every node; no pulse would move a weight")

    # dw_min is the mean step at weight 0, or over all nodes if the steps are 0 there.
    middle = 0.5 * float(np.interp(0.0, nodes, up) + np.interp(0.0, nodes, down))
    dw_min = middle if middle > 0.0 else 0.5 * float(np.mean(up + down))
    settings: dict[str, Any] = {
        "w_min": float(nodes[0]),
        "w_max": float(nodes[-1]),
        "dw_min": dw_min,
        "dw_min_std": 0.0,
        "table_w": nodes.astype(np.float32).tolist(),
        "table_up": (up / dw_min).tolist(),
        "table_down": (down / dw_min).tolist(),
        "table_curve": curve,
        **_NO_SPREAD,
    }
    if noisy:
        zero = np.zeros(len(nodes))
        spreads = [
            zero if values is None else _table(name, values, nodes) / dw_min
            for name, values in (("std_up", std_up), ("std_down", std_down))
        ]
        scale = float(np.mean(spreads)) or 1.0
        settings |= {
            "dw_min_std": scale,
            "table_std_up": (spreads[0] / scale).tolist(),
            "table_std_down": (spreads[1] / scale).tolist(),
            "table_spread": "absolute",
        }
    settings |= parameters
    if not settings["w_min"] <= 0.0 <= settings["w_max"]:
        raise ValueError(
            f"w_min = {settings['w_min']:g} and w_max = {settings['w_max']:g} do not enclose 0; "
            "shift the weights, or give w_min and w_max"
        )
    # After rounding to the core's float32, the bounds must still enclose the nodes.
    settings["w_min"] = float(np.float32(settings["w_min"]))
    settings["w_max"] = float(np.float32(settings["w_max"]))
    return models.TableStep(**settings)


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of numbers (got {values!r})") from error
    if numbers.ndim != 1:
        raise ValueError(f"{name} must be a list of numbers (got shape {list(numbers.shape)})")
    if not np.isfinite(numbers).all():
        at = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"{name}[{at}] is {numbers[at]}; leave such nodes out")
    return numbers


def _table(name: str, values: ArrayLike, nodes: NDArray[np.float64]) -> NDArray[np.float64]:
    numbers = _numbers(name, values)
    if len(numbers) != len(nodes):
        raise ValueError(
            f"{name} has {len(numbers)} numbers, and w has {len(nodes)}; give one for each node"
        )
    if (numbers < 0.0).any():
        at = int(np.argmax(numbers < 0.0))
        raise ValueError(f"{name}[{at}] is {numbers[at]:g}; give magnitudes, >= 0")
    return numbers
