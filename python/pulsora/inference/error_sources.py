"""Configurations of programmed arrays with one source of errors each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulsora.config import InferenceConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Variant", "variants"]

_WIRES = ("wires", "wire_r_in", "wire_r_out", "wire_g_max", "wire_sweeps")

# Fields of IOParameters that make up a source, with its name and what would help.
_PER_OUTPUT = "scaling_per='output', "
_PERIPHERY = {
    "input converter": (
        ("inp_bound", "inp_res", "inp_sto_round", "inp_noise", "inp_asymmetry"),
        "calibrate() the ranges, or more steps (forward.inp_res)",
    ),
    "weight noise": (("w_noise", "w_noise_type"), "a smaller forward.w_noise"),
    "read asymmetry": (("w_read_asymmetry_dtod",), "a smaller forward.w_read_asymmetry_dtod"),
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
        (
            "out_bound",
            "out_res",
            "out_sto_round",
            "out_asymmetry",
            "bound_management",
            "noise_management",
            "out_nonlinearity",
            "out_nonlinearity_std",
            "slope_calibration",
        ),
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
    "weight_bits": "auto",
}
_EXACT_CELLS: dict[str, Any] = {
    "cell_bits": 0,
    "stuck_low": 0.0,
    "stuck_high": 0.0,
    "scaling_quantile": 1.0,
    "read_window": 0.0,
    "compensation_read": "exact",
}
_SCALES = ("prog_noise_scale", "drift_scale", "read_noise_scale")
_IN_BITS = ("bit_serial", "bit_serial_analog_sum")
_LEVELS = ("mv_type", "input_slice_bits", "inp_bound", "inp_res")
_WRITING = ("write", "device", "write_tolerance", "write_rounds", "write_max_pulses")
_PAIRS = "more devices a weight (cell='pairs'), or training with modifier='noise_model'"


class Variant(NamedTuple):
    """A configuration of a layer's tiles in which one source of errors is switched on."""

    source: str
    """Name of the source."""
    config: InferenceConfig
    """The configuration."""
    remedy: str
    """The setting or the call that would help."""
    is_programmed: bool
    """Whether the array is programmed; otherwise reads see the weights."""
    baseline: InferenceConfig | None = None
    """A configuration with what other sources need, from which outputs differ; None for W x."""


def variants(config: InferenceConfig) -> Iterator[Variant]:
    """Yields each source of errors of a configuration."""
    still = _still(config)
    digits = still if config.cell == "slices" else None
    if digits is not None:
        yield Variant("digits of weights", digits, "more weight_bits", is_programmed=True)
    for each in _of_devices(config, still):
        yield each._replace(baseline=digits)
    if not config.forward.is_perfect:
        yield from _of_periphery(config, still, digits)


def _still(config: InferenceConfig) -> InferenceConfig:
    """Returns the configuration with perfect reads of cells without errors."""
    usual = InferenceConfig()
    by_model = {name: getattr(usual, name) for name in _WRITING}
    return config.replace(
        forward=config.forward.replace(is_perfect=True),
        noise_model=config.noise_model.replace(**dict.fromkeys(_SCALES, 0.0)),
        **_EXACT_CELLS,
        **by_model,
    )


def _of_devices(config: InferenceConfig, still: InferenceConfig) -> Iterator[Variant]:
    model: Any = config.noise_model
    drift = "compensation='global'" if config.compensation == "none" else "readapt(), or " + _PAIRS
    for source, scale, remedy in zip(
        ("programming", "drift", "read noise"), _SCALES, (_PAIRS, drift, _PAIRS), strict=True
    ):
        noisy = still.noise_model.replace(**{scale: getattr(model, scale)})
        alone = still.replace(noise_model=noisy)
        if source == "programming" and config.write == "pulses":
            alone = alone.replace(**{name: getattr(config, name) for name in _WRITING})
            remedy = "a smaller write_tolerance, or other cells"  # noqa: PLW2901 - of this source
        yield Variant(source, alone, remedy, is_programmed=True)
    cells: tuple[tuple[str, tuple[str, ...], str], ...] = (
        ("stuck devices", ("stuck_low", "stuck_high"), "readapt() on the chip, or cell='pairs'"),
        ("levels of targets", ("cell_bits",), "more cell_bits"),
        ("clipped weights", ("scaling_quantile",), "a larger scaling_quantile"),
    )
    for source, fields, remedy in cells:
        settings = {field: getattr(config, field) for field in fields}
        if any(settings[field] != _EXACT_CELLS[field] for field in fields):
            yield Variant(source, still.replace(**settings), remedy, is_programmed=True)


def _of_periphery(
    config: InferenceConfig, still: InferenceConfig, digits: InferenceConfig | None
) -> Iterator[Variant]:
    forward: Any = config.forward
    quiet = dict(_QUIET)
    levels: dict[str, Any] = {}
    if forward.noise_management == "abs_max_np_sum":  # of sums that the ADC limits
        quiet["noise_management"] = "abs_max"
    if forward.mv_type in _IN_BITS:  # of levels, which every read in bits has
        levels = {name: getattr(forward, name) for name in _LEVELS}
        quiet |= {"mv_type": "one_pass", "input_slice_bits": 1}
    baseline = digits
    for source, (fields, advice) in _PERIPHERY.items():
        settings = quiet | levels | {field: getattr(forward, field) for field in fields}
        remedy = advice.removeprefix(_PER_OUTPUT) if config.scaling_per == "output" else advice
        alone = still.replace(forward=forward.replace(**settings))
        yield Variant(source, alone, remedy, digits is not None, baseline)
        if levels and source == "input converter":
            baseline = still.replace(forward=forward.replace(**quiet | levels))
