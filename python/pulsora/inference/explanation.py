"""The error of each layer of a model by source, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora._internal.text_tables import aligned
from pulsora._internal.times import seconds
from pulsora.config import InferenceConfig
from pulsora.inference.exact_reads import exact_reads, layers_by_name
from pulsora.inference.folding import called
from pulsora.nn.tiles.tile_read import for_tile
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from pulsora.nn.base import AnalogModule

__all__ = ["ErrorReport", "ErrorSource", "explain"]

_ROWS = 512  # inputs of a layer that are looked at
_ROUNDING = 1e-5  # errors below are those of single precision

_WIRES = ("wires", "wire_r_in", "wire_r_out", "wire_g_max", "wire_sweeps")

# Fields of IOParameters that make up a source, with its name and what would help.
_PER_OUTPUT = "scaling_per='output', "
_PERIPHERY = {
    "input converter": (
        ("inp_bound", "inp_res", "inp_sto_round", "inp_noise", "inp_asymmetry"),
        "calibrate() the ranges, or more steps (forward.inp_res)",
    ),
    "weight noise": (("w_noise", "w_noise_type"), "a smaller forward.w_noise"),
    "wires": (
        ("ir_drop", "ir_drop_gw_div_gmax", *_WIRES),
        "fewer inputs of a tile (max_input_size)",
    ),
    "line voltage": (
        ("v_offset_std", "v_offset_w_min", "r_series", "r_series_max_total"),
        "fewer inputs of a tile (max_input_size)",
    ),
    "output noise": (
        ("out_noise", "out_noise_std"),
        f"{_PER_OUTPUT}wider inputs (calibrate()), or a smaller forward.out_noise",
    ),
    "output converter": (
        ("out_bound", "out_res", "out_sto_round", "out_asymmetry", "bound_management"),
        "calibrate_outputs() the ranges, or more steps (forward.out_res)",
    ),
}
_QUIET: dict[str, Any] = {
    "inp_bound": 0.0,
    "inp_res": 0.0,
    "inp_sto_round": False,
    "inp_noise": 0.0,
    "inp_asymmetry": 0.0,
    "out_bound": 0.0,
    "out_res": 0.0,
    "out_sto_round": False,
    "out_noise": 0.0,
    "out_asymmetry": 0.0,
    "out_nonlinearity": 0.0,
    "slope_calibration": 0.0,
    "w_noise": 0.0,
    "w_read_asymmetry_dtod": 0.0,
    "ir_drop": 0.0,
    "wires": "formula",
    "wire_r_in": 0.35,
    "wire_r_out": 0.35,
    "wire_g_max": 25.0,
    "wire_sweeps": 8,
    "v_offset_std": 0.0,
    "r_series": 0.0,
    "bound_management": "none",
}
_EXACT_CELLS: dict[str, Any] = {
    "cell_bits": 0,
    "stuck_low": 0.0,
    "stuck_high": 0.0,
    "scaling_quantile": 1.0,
    "read_window": 0.0,
    "compensation_read": "exact",
}
_WRITING = ("write", "device", "write_tolerance", "write_rounds", "write_max_pulses")
_DIGITS = "digits of weights"
_PAIRS = "more devices a weight (cell='pairs'), or training with modifier='noise_model'"


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

    Every layer gets the inputs that it has in the exact model. Its outputs are compared with the
    exact ones while one source is switched on at a time, with the random numbers that it has in the
    programmed model, so that errors of several sources add up as squares do where they are
    independent. The model itself is not programmed, and does not change.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batch: A batch of inputs; of a pair (input, target) the input.
        time: Seconds since the end of programming, or a text such as "1 year".
        programming: Number of the programming.
        chip: Number of the chip.

    Returns:
        The errors, relative to the outputs of each layer; the largest first.

    Raises:
        ValueError: If the model has no layer of InferenceConfig or is in training mode.
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
    inputs: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> None:
        inputs.setdefault(name, x[:: max(1, len(x) // _ROWS)][:_ROWS].clone())

    with exact_reads(layers, keep):
        called(model, x)
    sources = []
    totals = {}
    for name, x in inputs.items():
        layer = layers[name]
        point = (programming, after, chip)
        exact = layer.held.product(x, layer.carrier.detach())  # type: ignore[union-attr]
        norm = float(exact.norm())
        plain = exact
        still = _still(layer.config)
        if still is not None:  # of digits, which all other sources have in common
            plain = _outputs(layer, x, still, point)
        for source, config, programmed, remedy in _variants(layer.config):
            y = _outputs(layer, x, config, point if programmed or still is not None else None)
            error = _relative(y - (exact if source == _DIGITS else plain), norm)
            if error > _ROUNDING:
                sources.append(ErrorSource(name, source, error, remedy))
        totals[name] = _relative(_outputs(layer, x, layer.config, point) - exact, norm)
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


def _by_model() -> dict[str, Any]:
    """Settings of programming without pulses."""
    usual = InferenceConfig()
    return {name: getattr(usual, name) for name in _WRITING}


def _variants(config: Any) -> Iterator[tuple[str, Any, bool, str]]:  # noqa: ANN401
    """Yields sources, a configuration with each alone, whether it is programmed, and the remedy."""
    model = config.noise_model
    perfect = config.forward.replace(is_perfect=True)
    scales = ("prog_noise_scale", "drift_scale", "read_noise_scale")
    exact = config.replace(forward=perfect, **_EXACT_CELLS, **_by_model())
    writing = {name: getattr(config, name) for name in _WRITING}
    still = model.replace(**dict.fromkeys(scales, 0.0))
    sliced = config.cell == "slices"
    if sliced:
        yield _DIGITS, exact.replace(noise_model=still), True, "more weight_bits"
    drift = "compensation='global'" if config.compensation == "none" else "readapt(), or " + _PAIRS
    for source, scale, remedy in zip(
        ("programming", "drift", "read noise"), scales, (_PAIRS, drift, _PAIRS), strict=True
    ):
        alone = exact.replace(noise_model=still.replace(**{scale: getattr(model, scale)}))
        if source == "programming" and config.write == "pulses":
            yield (
                source,
                alone.replace(**writing),
                True,
                "a smaller write_tolerance, or other cells",
            )
        else:
            yield source, alone, True, remedy
    cells: tuple[tuple[str, tuple[str, ...], str], ...] = (
        ("stuck devices", ("stuck_low", "stuck_high"), "readapt() on the chip, or cell='pairs'"),
        ("levels of targets", ("cell_bits",), "more cell_bits"),
        ("clipped weights", ("scaling_quantile",), "a larger scaling_quantile"),
    )
    for source, fields, remedy in cells:
        if all(getattr(config, field) == _EXACT_CELLS[field] for field in fields):
            continue
        settings = {field: getattr(config, field) for field in fields}
        yield source, exact.replace(noise_model=still, **settings), True, remedy
    if config.forward.is_perfect:
        return
    quiet = config.forward.replace(**_QUIET)
    has_per_output = config.scaling_per == "output"
    for source, (fields, advice) in _PERIPHERY.items():
        settings = {field: getattr(config.forward, field) for field in fields}
        remedy = advice.removeprefix(_PER_OUTPUT) if has_per_output else advice
        alone = exact.replace(forward=quiet.replace(**settings))
        yield source, alone.replace(noise_model=still) if sliced else alone, False, remedy


def _still(config: Any) -> Any:  # noqa: ANN401
    """Returns the configuration of slices with no error but their digits; None without slices."""
    found = (made for source, made, _, _ in _variants(config) if source == _DIGITS)
    return next(found, None)


def _relative(error: Tensor, norm: float) -> float:
    return float(error.norm()) / norm if norm > 0.0 else 0.0


def _outputs(
    layer: AnalogModule,
    x: Tensor,
    config: Any,  # noqa: ANN401
    point: tuple[int, float, int] | None,
) -> Tensor:
    """Returns a layer's outputs with another configuration of its tiles."""
    held: Any = layer.held
    array = held.array
    weight = layer.carrier.detach()
    limit = 1.0 if layer.input_range is None else float(layer.input_range.detach())
    matrix = weight.reshape(array.shape).float()
    scaled = (x / limit).contiguous()
    seen = torch.zeros(len(x), array.shape[0], dtype=x.dtype, device=x.device)
    for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True)):
        for col, tile in zip(array.cols, tiles, strict=True):
            made = Tile(
                tile.d_size,
                tile.x_size,
                config,
                seed=tile.seed,
                tile_id=tile.tile_id,
                device=tile.device,
            )
            made.weights = for_tile(matrix[row, col])
            if point is not None and made.programming is not None:
                number, time, chip = point
                made._core.program(number, chip)  # noqa: SLF001 - without a warning about zeros
                made.programming.drift(time)
            y = torch.empty(len(x), tile.d_size, device=x.device)
            lines = scaled[:, array.lines(i, col)].float()
            made.forward(for_tile(lines), for_tile(y), evaluation=True)
            seen[:, row] += limit * y
    return seen
