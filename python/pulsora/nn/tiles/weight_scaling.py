"""Digital scales between the weights of a layer and the weights in its cells."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import torch

from pulsora import _core
from pulsora.state import StateError

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig
    from pulsora.devices import Device

__all__ = ["WeightScaling", "reach", "require_finite_weights", "require_scales", "written_to"]


_DEVIATIONS = 3.0  # of weight_scaling = "sigma"


class WeightScaling(NamedTuple):
    """How weights [out_features, in_features] are divided before they are written to cells.

    Attributes:
        omega: Size of the largest weight after scaling, in units of the cells.
        per: Whether there is one scale for the 'layer', or one for each 'output', a row.
        by_width: Whether sqrt(3 / in_features) becomes omega instead, whatever the weights are.
        deviations: If not 0, so many standard deviations of the weights become omega instead of the
            largest weight.
    """

    omega: float
    per: str
    by_width: bool = False
    deviations: float = 0.0

    @staticmethod
    def of(
        weight_scaling: str | float | None, scaling_per: str, config: TileConfig
    ) -> WeightScaling | None:
        """Makes the scaling from the arguments of a layer; None for no scaling.

        Raises:
            ValueError: for an unknown scaling or `scaling_per`, and for tiles whose updates
                reuse reads, because their scales would differ.
        """
        if scaling_per not in {"layer", "output"}:
            raise ValueError(f"scaling_per = {scaling_per!r}: write 'layer' or 'output'")
        if weight_scaling is None:
            return None
        if config.facts.reuses_reads:
            raise ValueError(
                "weight_scaling does not go with projection = 'reuse', where an update reuses what "
                "a read has made of scaled gradients; choose projection = 'analog' or 'exact'"
            )
        if weight_scaling == "abs_max":
            return WeightScaling(reach_of(config), scaling_per)
        if weight_scaling == "sigma":
            omega = reach_of(config)
            return WeightScaling(omega, scaling_per, deviations=_DEVIATIONS)
        if weight_scaling == "width":
            return WeightScaling(reach_of(config), scaling_per, by_width=True)
        if not _is_positive(weight_scaling):
            raise ValueError(
                f"weight_scaling = {weight_scaling!r}: write None, 'abs_max', 'sigma', 'width', or "
                "what the largest weight shall become in the cells, a number above 0"
            )
        return WeightScaling(float(weight_scaling), scaling_per)

    def scales(self, weights: Tensor) -> Tensor:
        """Returns the scales [out_features] or [1] of weights; 1 where all weights are zero."""
        if self.by_width:
            # Three standard deviations of torch's initial weights, which are uniform within
            # +-1 / sqrt(in_features): room to grow by a factor of sqrt(3).
            rows, columns = weights.shape
            size = math.sqrt(3.0 / columns) / self.omega
            return torch.full((rows if self.per == "output" else 1,), size, dtype=torch.float32)
        if self.deviations > 0.0:
            weights = weights.cpu()  # whose sums have one order
            lines = weights if self.per == "output" else weights.reshape(1, -1)
            sizes = self.deviations * lines.std(dim=1, correction=0)
            return torch.where(sizes > 0.0, sizes / self.omega, torch.ones_like(sizes)).float()
        sizes = weights.abs().amax(1) if self.per == "output" else weights.abs().amax()[None]
        return torch.where(sizes > 0.0, sizes / self.omega, torch.ones_like(sizes)).float()


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0.0 < float(value) < math.inf


def require_scales(scales: Tensor, rows: int) -> Tensor:
    """Returns the scales of a saved state; StateError if they are invalid."""
    if (
        scales.dtype != torch.float32
        or tuple(scales.shape) not in {(1,), (rows,)}
        or not bool((scales.isfinite() & (scales > 0.0)).all())
    ):
        raise StateError(
            f"'scales' of a layer with {rows} outputs has to be one number above 0, or one for "
            "each output, in single precision"
        )
    return scales


def written_to(config: TileConfig) -> Device | None:
    """Returns the device of the array to which weights are written; None without cells."""
    name = config.facts.written
    return config.named_devices()[name] if name else None


def reach_of(config: TileConfig) -> float:
    """Returns `reach` of the array to which weights are written, or of pairs of one-sided cells."""
    values = config.to_dict()
    in_pairs = config.kind == "one_sided" or values.get("cells") == "one_sided"
    return reach(written_to(config), ("w_max",) if in_pairs else ("w_max", "w_min"))


def reach(device: Device | None, bounds: tuple[str, ...] = ("w_max", "w_min")) -> float:
    """Returns a size that nearly all cells reach on both sides of 0; 1 without cells.

    It is the mean bound minus twice its spread. `bounds` is ("w_max",) for pairs of cells, of which
    the second one makes negative weights.
    """
    if device is None:
        return 1.0
    bound = min(
        (1.0 if name == "w_max" else -1.0)
        * float(getattr(device, name, 0.0))
        * (1.0 - 2.0 * getattr(device, f"{name}_dtod", 0.0))
        for name in bounds
    )
    if bound <= 0.0:
        raise ValueError(
            f"weight_scaling = 'abs_max', 'sigma' or 'width': cells of {device.model} have bounds "
            "w_max and w_min that are not on both sides of 0, or spread too far; write what the "
            "largest weight shall become in the cells, a number above 0. (Loaded adapters need "
            "cells with both bounds.)"
        )
    return bound


def require_finite_weights(weights: Tensor, remedy: str) -> None:
    """Raises InputError for weights that are not finite."""
    if math.isfinite(float(weights.sum())):
        return  # a sum with one number that is not finite is none
    bad = (~weights.isfinite()).nonzero()
    if len(bad):
        row, col = bad[0].tolist()
        raise _core.InputError(f"weights[{row}, {col}] is {weights[row, col].item()}; {remedy}")
