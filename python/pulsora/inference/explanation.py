"""The error of each layer of a model by source, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora._internal.text_tables import aligned
from pulsora._internal.times import seconds
from pulsora.inference.error_sources import variants
from pulsora.inference.exact_reads import exact_reads, layers_by_name
from pulsora.inference.folding import called
from pulsora.nn.tiles.tile_read import for_tile
from pulsora.tile import Tile

if TYPE_CHECKING:
    from torch import Tensor, nn

    from pulsora.inference.error_sources import Variant
    from pulsora.nn.base import AnalogModule

__all__ = ["ErrorReport", "ErrorSource", "explain"]

_ROWS = 512  # inputs of a layer that are looked at
_ROUNDING = 1e-5  # errors below are those of single precision


class ErrorSource(NamedTuple):
    """The error of one layer by one source alone, all others being switched off."""

    layer: str
    """Name of the layer in `named_modules()`."""
    source: str
    """What makes the error: "programming", "drift", "read noise", "input converter", ..."""
    error: float
    """Root mean square of the error of the layer's outputs, relative to that of the outputs."""
    remedy: str
    """The setting or the call that would help."""


@dataclass(frozen=True)
class ErrorReport:
    """Errors of the layers of a model by source, the largest first.

    Attributes:
        sources: One entry for each layer and source that has an error.
        totals: The error of each layer with all sources together, by its name.
        time: Seconds since the end of programming.
    """

    sources: tuple[ErrorSource, ...]
    totals: dict[str, float]
    time: float

    def of_layer(self, name: str) -> dict[str, float]:
        """Returns the errors of a layer by source, the largest first."""
        return {each.source: each.error for each in self.sources if each.layer == name}

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("layer", "source", "error", "would help")]
        rows += [
            (each.layer, each.source, f"{each.error:.2%}", each.remedy) for each in self.sources
        ]
        whole: list[tuple[str, ...]] = [
            (name, "all", f"{error:.2%}", "") for name, error in self.totals.items()
        ]
        return aligned(rows + whole)


@torch.no_grad()
def explain(
    model: nn.Module,
    batch: Any,  # noqa: ANN401 - what the model takes
    *,
    time: float | str = 0.0,
    programming: int = 0,
    chip: int = 0,
) -> ErrorReport:
    """Measures the error of each layer by its source, and names what would help.

    Every layer gets inputs that it has in the exact model, 512 of all its reads at most. Its
    outputs are compared with the exact ones while one source is switched on at a time, with the
    random numbers that it has in the programmed model, so that errors of several sources add up as
    squares do where they are independent. The model itself is not programmed, and does not change.
    Measured conductances (`load_conductances`) are the programming of their layer, whatever number
    is given. Gains of ADCs are those of the model, and its corrections (`fit_affine`) count in
    `totals` at its own point.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batch: A batch of inputs; of a pair (input, target) the input.
        time: Seconds since the end of programming, or a text such as "1 year".
        programming: Number of the programming.
        chip: Number of the chip.

    Returns:
        The errors, relative to the outputs of each layer; the largest first.

    Raises:
        ValueError: If the model has no layer of InferenceConfig or is in training mode, and if
            there are no inputs.
        ConfigError: For a time for which a noise model has no numbers.
        StateError: If weights changed after they were programmed, or a layer lacks its input range.
    """
    layers = layers_by_name(model)
    if not layers:
        raise ValueError(
            "the model has no layer of InferenceConfig, whose errors could be measured"
        )
    if model.training:
        raise ValueError("the model is in training mode; call eval()")
    x = _input_of(batch)
    after = seconds(time)
    for layer in layers.values():
        held: Any = layer.held
        held.require_time(after)
        held.require_current(layer.carrier)
        layer.require_range()
    reads_of: dict[str, list[Tensor]] = {}
    with exact_reads(layers, lambda name, x: reads_of.setdefault(name, []).append(_some(x))):
        called(model, x)
    inputs = {name: _some(torch.cat(each)) for name, each in reads_of.items()}
    sources = []
    totals = {}
    for name, x in inputs.items():
        if len(x) == 0:
            raise ValueError(f"layer '{name}' got no inputs; give a batch of samples")
        layer = layers[name]
        reads = _Reads(layer, x, programming, after, chip)
        norm = float(reads.exact.norm())
        for each in variants(layer.config):  # type: ignore[arg-type]
            error = _relative(reads.of(each) - reads.baseline(each), norm)
            if error > _ROUNDING:
                sources.append(ErrorSource(name, each.source, error, each.remedy))
        totals[name] = _relative(reads.corrected() - reads.exact, norm)
    ordered = tuple(sorted(sources, key=lambda each: -each.error))
    return ErrorReport(ordered, totals, after)


def _input_of(batch: Any) -> Any:  # noqa: ANN401
    """Returns the inputs of a batch, which may be a pair (input, target)."""
    if not isinstance(batch, tuple | list):
        return batch
    if not batch or isinstance(batch[0], tuple | list):
        given = f"a list of {len(batch)} batches" if batch else repr(batch)
        raise ValueError(f"batch is {given}; give one batch of inputs, or a pair (input, target)")
    return batch[0]


def _some(x: Tensor) -> Tensor:
    """Returns some rows of inputs, at random, so that all pixels and time steps are among them."""
    if len(x) <= _ROWS:
        return x.clone()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(len(x)))
    return x[order[:_ROWS].to(x.device)]


def _relative(error: Tensor, norm: float) -> float:
    return float(error.norm()) / norm if norm > 0.0 else 0.0


class _Reads:
    """Outputs of a layer for inputs x, with other configurations of its tiles, at a point."""

    def __init__(self, layer: AnalogModule, x: Tensor, number: int, time: float, chip: int) -> None:
        held: Any = layer.held
        self._layer, self._held, self._x = layer, held, x
        if held.is_measured:
            number, chip = held.point.number, held.point.chip
        self._point = (number, time, chip)
        self.exact: Tensor = held.product(x, layer.carrier.detach())
        self._baselines: dict[str, Tensor] = {}

    def of(self, variant: Variant) -> Tensor:
        """Returns the outputs with one source of errors."""
        measured = self._held.is_measured and variant.source == "programming"
        return self._read(variant.config, measured, is_programmed=variant.is_programmed)

    def baseline(self, variant: Variant) -> Tensor:
        """Returns the outputs from which those of a source differ."""
        if variant.baseline is None:
            return self.exact
        key = str(variant.baseline.to_dict())
        if key not in self._baselines:
            self._baselines[key] = self._read(variant.baseline, is_programmed=variant.is_programmed)
        return self._baselines[key]

    def corrected(self) -> Tensor:
        """Returns the outputs with all sources, and the correction that the layer has here."""
        y = self._read(self._layer.config, self._held.is_measured)
        point = self._held.point
        if self._held.affine is None or self._point != (point.number, point.time, point.chip):
            return y
        gain, offset = self._held.affine
        corrected: Tensor = gain * y + offset
        return corrected

    def _read(
        self,
        config: Any,  # noqa: ANN401
        measured: bool = False,
        *,
        is_programmed: bool = True,
    ) -> Tensor:
        array, x = self._held.array, self._x
        number, time, chip = self._point
        limit = self._layer.input_range
        size = 1.0 if limit is None else float(limit.detach())
        matrix = self._layer.carrier.detach().reshape(array.shape).float()
        scaled = x / size
        seen = torch.zeros(len(x), array.shape[0], dtype=x.dtype, device=x.device)
        for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True)):
            for col, tile in zip(array.cols, tiles, strict=True):
                made: Any = Tile(
                    tile.d_size,
                    tile.x_size,
                    config,
                    seed=tile.seed,
                    tile_id=tile.tile_id,
                    device=tile.device,
                )
                made.weights = for_tile(matrix[row, col])
                if not config.forward.is_perfect:
                    made.programming.adc_gains = tile.programming.adc_gains
                if measured:
                    g = tile.programming.conductances("programmed")
                    made.programming.program_measured(g, number)
                elif is_programmed:
                    made._core.program(number, chip)  # noqa: SLF001 - without a warning about zeros
                if is_programmed:
                    made.programming.drift(time)
                y = torch.empty(len(x), tile.d_size, device=x.device)
                lines = scaled[:, array.lines(i, col)].float()
                made.forward(for_tile(lines), for_tile(y), evaluation=True)
                seen[:, row] += size * y
        return seen
