"""What every analog layer shares: tiles, gradients, bias, and an exact state."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from pulsora.config import SingleConfig
from pulsora.nn.tile_array import AnalogParameter, TileArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from pulsora.config import TileConfig
__all__ = ["AnalogModule"]


class _AnalogProduct(torch.autograd.Function):
    """y = W x on tiles. Its backward pass reads W^T d and leaves (x, d) for the optimiser."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        weight: AnalogParameter,
        reads_back: bool,
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.array = weight.array
        ctx.reads_back = reads_back
        y: Tensor = ctx.array.forward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, None, None]:  # noqa: ANN401
        (x,) = ctx.saved_tensors
        dx = ctx.array.backward(d) if ctx.needs_input_grad[0] or ctx.reads_back else None
        if ctx.needs_input_grad[1]:
            ctx.array.remember(x, d)
        return dx, None, None


class AnalogModule(nn.Module):
    """A layer whose weight matrix [out_features, in_features] is on tiles.

    Reads are noisy in `eval()` as in `train()`: the periphery of a chip does not know the
    difference. Gradients of the weights are never formed; a backward pass keeps its pairs (x, d),
    and an optimiser of `pulsora.optim` turns them into pulses.

    `state_dict()` holds the complete state of every tile as tensors, `tiles.<row>_<column>.<name>`
    (weights, sampled cells, counters), so that a resumed run equals an uninterrupted one to the
    bit. It can be saved by safetensors, and by `torch.save` for `weights_only=True`.

    Args:
        rows: Number of outputs of the matrix.
        columns: Number of its inputs, without the bias.
        bias: Whether a bias is added.
        config: Configuration of the tiles; a single array of ConstantStep devices by default.
        seed: Seed of the tiles and of the initial weights; by default drawn from torch's
            generator, so that `torch.manual_seed` settles everything.
        tile_id: Number of the first tile, for layers that share a seed.
        digital_bias: Whether the bias is a torch parameter, or else one more column of cells that
            is driven with 1.
        max_input_size: Larger layers are split over tiles; 0 is no limit.
        max_output_size: The same for outputs.
        device: 'cpu' or 'cuda'. Tiles stay where they were made.
        threads: Threads of the CPU backend.
    """

    analog_weight: AnalogParameter
    bias: nn.Parameter | None

    def __init__(
        self,
        rows: int,
        columns: int,
        bias: bool = True,
        config: TileConfig | None = None,
        *,
        seed: int | None = None,
        tile_id: int = 0,
        digital_bias: bool = True,
        max_input_size: int = 512,
        max_output_size: int = 512,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        super().__init__()
        if seed is None:
            seed = int(torch.randint(2**62, ()).item())
        self.analog_bias = bias and not digital_bias
        array = TileArray(
            rows,
            columns + self.analog_bias,
            SingleConfig() if config is None else config,
            seed=seed,
            tile_id=tile_id,
            max_input_size=max_input_size,
            max_output_size=max_output_size,
            device=device,
            threads=threads,
        )
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(rows)) if bias and digital_bias else None
        )
        self.register_parameter("analog_weight", AnalogParameter(array))
        self._initialise(seed * 1_000_003 + tile_id)

    def _initialise(self, seed: int) -> None:
        """Weights and bias uniform within +-1/sqrt(inputs), as torch's own layers have them."""
        rows, columns = self.tiles.shape
        bound = 1.0 / math.sqrt(columns - self.analog_bias)
        generator = torch.Generator().manual_seed(seed % 2**63)
        uniform = torch.rand(rows, columns + (self.bias is not None), generator=generator)
        uniform = bound * (2.0 * uniform - 1.0)
        self.tiles.set_weights(uniform[:, :columns])
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(uniform[:, columns])

    @property
    def tiles(self) -> TileArray:
        """The tiles; iterate over them to look at a `pulsora.Tile`."""
        return self.analog_weight.array

    @property
    def config(self) -> TileConfig:
        """The configuration of the tiles."""
        return self.tiles.config

    @property
    def weight(self) -> Tensor:
        """A copy of the weights that a perfect read would see, adapter included."""
        return self.get_weights()[0]

    def get_weights(self) -> tuple[Tensor, Tensor | None]:
        """Copies of the weights [out_features, in_features] and of the bias [out_features] or None."""
        weights = self.tiles.get_weights()
        if self.analog_bias:
            return weights[:, :-1].contiguous(), weights[:, -1].contiguous()
        return weights, None if self.bias is None else self.bias.detach().clone()

    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Writes weights [out_features, in_features], and the bias where the layer has one.

        Cells confine what is written to their bounds; a warning says so if more than 1 % did.

        Raises:
            ValueError: for a wrong shape, or a bias that is missing or not wanted.
        """
        has_bias = self.analog_bias or self.bias is not None
        if has_bias != (bias is not None):
            raise ValueError("this layer has a bias: give one" if has_bias else "no bias here")
        if bias is not None and bias.shape != (self.tiles.shape[0],):
            raise ValueError(f"bias has shape {list(bias.shape)}, not [{self.tiles.shape[0]}]")
        wanted = weight.detach().float().cpu()
        if self.analog_bias and bias is not None:
            wanted = torch.cat([wanted, bias.detach().float().cpu()[:, None]], dim=1)
        self.tiles.set_weights(wanted)
        if self.bias is not None and bias is not None:
            with torch.no_grad():
                self.bias.copy_(bias)
        _warn_of_clipping(self.config, wanted, self.tiles.get_weights())

    def product(self, x: Tensor) -> Tensor:
        """y = W x + bias through the tiles, differentiable.

        Takes x [..., in_features] and gives y [..., out_features].
        """
        rows, columns = self.tiles.shape
        flat = x.reshape(-1, x.shape[-1]).float()
        if self.analog_bias:
            flat = nn.functional.pad(flat, (0, 1), value=1.0)
        if flat.shape[1] != columns:
            raise ValueError(
                f"x has shape {list(x.shape)}: this layer takes "
                f"{columns - self.analog_bias} features in the last dimension"
            )
        y: Tensor = _AnalogProduct.apply(flat, self.analog_weight, self.config.reads_back)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype).reshape(*x.shape[:-1], rows)

    def statistics(self) -> list[dict[str, Any]]:
        """What each tile has counted so far: pulses, transfers and their fidelity."""
        return [tile.statistics() for tile in self.tiles]

    def _describe(self) -> str:
        shape = f"{len(self.tiles.rows)}x{len(self.tiles.cols)}"
        bias = "analog" if self.analog_bias else str(self.bias is not None)
        return f"bias={bias}, config={self.config.summary()}, tiles={shape}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AnalogModule:
        # A meta tensor cannot be moved or converted; the tiles it stands for stay as they are.
        weight = self._parameters.pop("analog_weight")
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._parameters["analog_weight"] = weight
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[f"{prefix}analog_weight"]
        for name, tensor in self.tiles.state_tensors().items():
            destination[f"{prefix}tiles.{name}"] = tensor

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        ours = {name: value for name, value in state_dict.items() if name.startswith(prefix)}
        start = f"{prefix}tiles."
        tiles = {n.removeprefix(start): ours.pop(n) for n in list(ours) if n.startswith(start)}
        missing: list[str] = []
        super()._load_from_state_dict(
            ours, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs
        )
        missing_keys += [name for name in missing if name != f"{prefix}analog_weight"]
        if not tiles:
            missing_keys.append(f"{start}*")
            return
        try:
            self.tiles.load_state_tensors(tiles)
        except (ValueError, RuntimeError) as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")


def _warn_of_clipping(config: TileConfig, wanted: Tensor, written: Tensor) -> None:
    written_to = next(iter(config.devices().values()), None)
    if written_to is not None and written_to.write_noise_std > 0.0:
        return  # what is read differs from what was written anyway
    count = int(((written - wanted).abs() > 1e-3 * wanted.abs()).sum())
    # Where bounds spread, a few cells have narrow ones; that is how the device is.
    if count > 0.01 * wanted.numel():
        warnings.warn(
            f"{count} of {wanted.numel()} weights (up to {float(wanted.abs().max()):.3g}) lie "
            "outside the bounds of their cells and were confined to them; choose a device with a "
            "larger w_max or scale the layer's weights down",
            stacklevel=3,
        )
