"""A noise model from a table of measured numbers over the conductance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.noise_models import models

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["from_table"]

_MOST = 64


def from_table(
    g: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    nu_mean: ArrayLike | None = None,
    nu_std: ArrayLike | None = None,
    read_noise: ArrayLike | None = None,
    g_max: float | None = None,
    **parameters: Any,
) -> models.PowerLaw:
    """The `PowerLaw` whose numbers were measured at some conductances.

    Numbers are linear between the conductances and constant beyond them; those that are left out
    are 0. CPU and GPU interpolate to the same bits.

    Args:
        g: Conductances of the table in uS, >= 0, increasing, [1 to 64].
        sigma: Standard deviation of the programming error in uS at each, >= 0.
        nu_mean: Mean of the drift exponent at each: G(t) = G ((t + t_0) / t_0)^-nu.
        nu_std: Standard deviation of the drift exponent between devices, >= 0.
        read_noise: Strength Q of the 1/f noise relative to the conductance, >= 0.
        g_max: Largest conductance of the device in uS; by default the last of `g`.
        **parameters: Other parameters of PowerLaw: `g_min`, `t_0`, `t_read`, and so on.

    Raises:
        ValueError: For tables that are no such numbers, naming the first bad one.
        ConfigError: For a bad parameter.
    """
    nodes = _numbers("g", g)
    if not 1 <= len(nodes) <= _MOST:
        raise ValueError(f"g has {len(nodes)} numbers; give 1 to {_MOST} conductances")
    if (np.diff(nodes) <= 0.0).any():
        at = int(np.argmax(np.diff(nodes) <= 0.0)) + 1
        raise ValueError(
            f"g[{at}] is {nodes[at]:g}, not above g[{at - 1}] = {nodes[at - 1]:g}; sort the table"
        )
    largest = float(nodes[-1]) if g_max is None else g_max
    if not (largest > 0.0 and nodes[0] >= 0.0 and nodes[-1] <= largest):
        raise ValueError(
            f"g reaches from {nodes[0]:g} to {nodes[-1]:g} uS, and g_max is {largest:g} uS; "
            "conductances must lie in [0, g_max], and g_max above 0"
        )
    tables = {"sigma": sigma, "nu_mean": nu_mean, "nu_std": nu_std, "read_noise": read_noise}
    filled: dict[str, Any] = {
        name: [0.0] * len(nodes) if values is None else _table(name, values, len(nodes))
        for name, values in tables.items()
    }
    return models.PowerLaw(
        g_max=largest, g=np.minimum(nodes / largest, 1.0).tolist(), **filled, **parameters
    )


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of numbers (got {values!r})") from error
    if numbers.ndim != 1:
        raise ValueError(f"{name} must be a list of numbers (got shape {list(numbers.shape)})")
    if not np.isfinite(numbers).all():
        at = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"{name}[{at}] is {numbers[at]}; leave such conductances out")
    return numbers


def _table(name: str, values: ArrayLike, count: int) -> list[float]:
    numbers = _numbers(name, values)
    if len(numbers) != count:
        raise ValueError(
            f"{name} has {len(numbers)} numbers, and g has {count}; give one for each conductance"
        )
    if name != "nu_mean" and (numbers < 0.0).any():
        at = int(np.argmax(numbers < 0.0))
        raise ValueError(f"{name}[{at}] is {numbers[at]:g}; give a deviation >= 0")
    table: list[float] = numbers.tolist()
    return table
