"""PEFT's LoRA layer on an analog layer. Needs peft, so only `register` imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from peft.tuners.lora.layer import Linear
from peft.tuners.tuners_utils import check_adapters_to_merge

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["AnalogLora"]


class AnalogLora(Linear):  # type: ignore[misc] # peft has no types here
    """A digital LoRA of PEFT on an `AnalogLinear`, with frozen tiles that are read with noise.

    `merge` writes the weights of the tiles anew, within the bounds of their cells.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fan_in_fan_out = False  # tiles are [outputs, inputs], also in place of a Conv1D

    @property
    def lora_variants(self) -> dict[tuple[str, ...], Any]:
        """Plain LoRA only: PEFT refuses variants that need the weight's numbers (such as DoRA)."""
        return {(): None}

    def _get_in_out_features(self, module: nn.Module) -> tuple[int, int]:
        analog: Any = module
        return analog.in_features, analog.out_features

    def get_delta_weight(self, adapter: str) -> Tensor:
        """Returns the change scaling lora_B lora_A of the weight [out_features, in_features]."""
        delta: Tensor = super().get_delta_weight(adapter)
        return delta

    def merge(
        self,
        safe_merge: bool = False,  # noqa: ARG002
        adapter_names: list[str] | None = None,
    ) -> None:
        """Adds the adapters to the weights of the tiles, which are written anew.

        `safe_merge` makes no difference: tiles never take weights that are not finite.
        """
        for name in check_adapters_to_merge(self, adapter_names):
            if name in self.lora_A:
                self._add(self.get_delta_weight(name))
                self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Subtracts the merged adapters again; weights that were clipped by cells stay so."""
        while self.merged_adapters:
            self._add(-self.get_delta_weight(self.merged_adapters.pop()))

    @torch.no_grad()
    def _add(self, delta: Tensor) -> None:
        base = self.get_base_layer()
        weight, bias = base.get_weights()
        base.set_weights(weight + delta.detach().float(), bias)
