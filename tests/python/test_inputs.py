"""Arrays and objects that a caller may hand in, however they were made."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, D_SIZE, PLAIN_LRTT, X_SIZE, make_batch, make_tile
from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_CAPSULE_NEW = ctypes.pythonapi.PyCapsule_New
_CAPSULE_NEW.restype = ctypes.py_object
_CAPSULE_NEW.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Producer:
    """Gives, of an array, the capsule that it is told to."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_options: object) -> object:
        return self._capsule


def _consumed() -> object:
    capsule = np.zeros((2, X_SIZE), np.float32).__dlpack__()
    make_tile(pl.SingleConfig()).forward(_Producer(capsule))
    return capsule


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (_consumed, "'used_dltensor'"),
        (lambda: _CAPSULE_NEW(64, b"dltensor_versioned", None), "'dltensor_versioned'"),
        (lambda: _CAPSULE_NEW(64, b"something", None), "'something'"),
        (lambda: _CAPSULE_NEW(64, None, None), "''"),
        (lambda: 7, "an object of type int"),
    ],
)
def test_only_a_fresh_dlpack_capsule_is_taken(make: Callable[[], object], named: str) -> None:
    producer = _Producer(make())
    tile = make_tile(pl.SingleConfig())
    with pytest.raises(pl.InputError, match=f"x gives as __dlpack__.. .*{named}"):
        tile.forward(producer)


class _Lying(_Producer):
    """Says of its memory what it is told to."""

    def __init__(self, device: object, capsule: object = None) -> None:
        super().__init__(capsule)
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device  # type: ignore[return-value]


@pytest.mark.parametrize("device", [None, (), (1,), (1, 0, 0), ("cpu", 0), "cpu", 1])
def test_a_device_of_dlpack_is_two_integers(device: object) -> None:
    tile = make_tile(pl.SingleConfig())
    with pytest.raises(TypeError, match=r"x gives as __dlpack_device__\(\) an object of type"):
        tile.forward(_Lying(device))


@pytest.mark.parametrize("device", [(8, 0), (99, 0), (2**70, 0)])
def test_a_device_that_is_unknown_is_refused(device: object) -> None:
    with pytest.raises(pl.DeviceError, match="x lies on a device of DLPack type"):
        make_tile(pl.SingleConfig()).forward(_Lying(device))


class _Header(ctypes.Structure):
    """Start of a capsule's struct, for a batch [2, X_SIZE] of floats, without a deleter."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("rest", ctypes.c_void_p * 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "error", "named"),
    [
        ({"data": None}, pl.InputError, "x has no data behind its capsule"),
        ({"device": (2, 0)}, pl.InputError, "of type 2 by its capsule"),
        ({"ndim": -1}, pl.InputError, r"x has shape \[\]; pass a batch"),
        ({"shape": (-2, X_SIZE)}, pl.InputError, r"shape \[-2, 10\] by its capsule"),
        ({"shape": (2**62, 4)}, pl.InputError, "by its capsule, which no array has"),
        ({"dtype": (0, 32, 1, 0)}, TypeError, "x has dtype int32; convert it to float32"),
        ({"dtype": (4, 16, 1, 0)}, TypeError, "x has dtype bfloat16; convert it to float32"),
        ({"dtype": (200, 7, 0, 0)}, TypeError, "x has dtype an unknown type"),
    ],
)
def test_a_capsule_that_cannot_be_true_is_refused(
    changed: dict[str, Any], error: type[Exception], named: str
) -> None:
    numbers = np.ones((2, X_SIZE), np.float32)
    shape = (ctypes.c_int64 * 2)(*changed.pop("shape", (2, X_SIZE)))
    header = _Header(numbers.ctypes.data, (1, 0), 2, (2, 32, 1, 0), shape, None, 0, (None, None))
    tile = make_tile(pl.SingleConfig())
    for name, value in changed.items():
        setattr(header, name, value)
    with pytest.raises(error, match=named):
        tile.forward(_Producer(_CAPSULE_NEW(ctypes.addressof(header), b"dltensor", None)))


def _misaligned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    room = np.zeros(values.nbytes + 1, np.uint8)
    moved = np.ndarray(values.shape, np.float32, buffer=room.data, offset=1)
    moved[...] = values
    return moved


def _strided(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Elements nine bytes apart."""
    room = np.zeros((*values.shape, 9), np.uint8)
    strides = tuple(np.array(room.strides[:-1]))
    moved = np.ndarray(values.shape, np.float32, buffer=room.data, strides=strides)
    moved[...] = values
    return moved


@pytest.mark.parametrize(
    "change",
    [
        _misaligned,
        _strided,
        lambda values: values.astype(">f4"),
        lambda values: _misaligned(values)[:, ::-1].copy()[:, ::-1],
        lambda values: values[::-1].copy()[::-1],
        lambda values: np.repeat(values, 3, axis=1)[:, ::3],
    ],
    ids=["misaligned", "nine bytes apart", "big-endian", "reversed", "rows reversed", "strided"],
)
def test_arrays_lie_in_memory_as_they_may(
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> None:
    x, d = make_batch(5)
    plain, other = make_tile(pl.SingleConfig()), make_tile(pl.SingleConfig())
    assert plain.forward(x).tobytes() == other.forward(change(x)).tobytes()
    plain.update(x, d, 0.1)
    other.update(change(x), change(d), 0.1)
    assert plain.weights.tobytes() == other.weights.tobytes()


def test_a_misaligned_result_is_refused() -> None:
    x, _ = make_batch(5)
    out = _misaligned(np.zeros((5, D_SIZE), np.float32))
    with pytest.raises(pl.InputError, match="aligned"):
        make_tile(pl.SingleConfig()).forward(x, out)


def test_a_mask_is_not_dropped() -> None:
    x, d = make_batch(5)
    tile = make_tile(pl.SingleConfig())
    masked = np.ma.masked_array(x, mask=x > 0)
    with pytest.raises(pl.InputError, match=r"x is a masked array.*x.filled\(0\)"):
        tile.forward(masked)
    with pytest.raises(pl.InputError, match="d is a masked array"):
        tile.update(x, np.ma.masked_array(d), 0.1)
    assert tile.counters["update_samples"] == 0


@pytest.mark.parametrize("made", [_core.Tile, _core.DeviceArray, _core.StepGraph])
def test_objects_of_the_core_are_made_by_it_alone(made: type) -> None:
    for make in (made, lambda: made.__new__(made), lambda: object.__new__(made)):
        with pytest.raises(TypeError):
            make()


def test_the_core_of_a_tile_is_not_copied() -> None:
    with pytest.raises(TypeError):
        copy.copy(make_tile(pl.SingleConfig())._core)


def test_an_empty_tensor_is_copied() -> None:
    state = make_tile(pl.SingleConfig()).state()
    state.tensors["nothing"] = np.zeros((0, 3), np.float32)
    with pytest.raises(pl.StateError, match="nothing"):
        make_tile(pl.SingleConfig()).load_state(state.signed())


def test_a_configuration_is_of_some_kind() -> None:
    with pytest.raises(TypeError, match=r"make one of .*SingleConfig"):
        pl.TileConfig()
    assert isinstance(pl.TileConfig.from_dict({"kind": "lrtt"}), pl.LRTTConfig)


def test_a_model_that_is_an_array_is_a_bad_value() -> None:
    array = np.array(["ConstantStep", "SoftBounds"])
    for made in (pl.devices.models.Device, pl.devices.ConstantStep):
        with pytest.raises(pl.ConfigError, match="model is array"):
            made.from_dict({"model": array})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pl.LRTTConfig(rank=2, reinit_gain=1e-40), "reinit_gain is 9.99.*alpha"),
        (lambda: pl.LRTTConfig(rank=2, reinit_gain=3e38), r"reinit_gain is 3e\+38.*1e\+15 at most"),
        (lambda: pl.LRTTConfig(rank=2, lora_alpha=-3e38), "lora_alpha is -3e.*of either sign"),
        (
            lambda: pl.LRTTConfig(rank=2, lora_alpha=1e-15, reinit_gain=1e15),
            "learning rate of A or B too large",
        ),
        (
            lambda: pl.SingleConfig(
                forward=pl.IOParameters(r_series=1, slope_calibration=1e15, out_bound=1e5)
            ),
            "slope_calibration is .*gain",
        ),
        (lambda: pl.IOParameters(v_offset_std=1e38), "v_offset_std is 1e.*beyond single precision"),
        (
            lambda: pl.SingleConfig(forward=pl.IOParameters(ir_drop_gw_div_gmax=1e-40)),
            "ir_drop_gw_div_gmax is .*no conductance",
        ),
        (
            lambda: pl.SingleConfig(device=pl.devices.PowStep(pow_gamma=200.0)),
            "a pulse changes the weight by 0",
        ),
        (
            lambda: pl.devices.PiecewiseStep(piecewise_up=(1.0, 3e38)),
            r"piecewise_up\[1\] is 3e\+38.*beyond single precision",
        ),
        (
            lambda: pl.SingleConfig(forward=pl.IOParameters(inp_res=1e-40)),
            "inp_res is .* steps of .*1e-30 at least",
        ),
        (lambda: pl.UpdateParameters(x_res_implicit=1e-40), "x_res_implicit is .*1e-30"),
    ],
)
def test_settings_that_overflow_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        pl.Tile(4, 4, make())  # type: ignore[arg-type]


@pytest.mark.parametrize("pulse_type", ["none", "stochastic_compressed", "mean_count"])
def test_a_weight_that_is_no_number_has_a_place_in_a_measured_curve(pulse_type: str) -> None:
    device = pl.devices.PiecewiseStep(w_max=1e15, w_min=-1e15, piecewise_up=(1.0, 2.0, 0.5))
    update = pl.UpdateParameters(pulse_type=pulse_type)
    tile = pl.Tile(4, 4, pl.SingleConfig(device=device, update=update))
    huge = np.full((3, 4), 1e19, np.float32)
    for values in (np.ones((1, 4), np.float32), huge, huge):
        tile.update(values, values, 1.0)
    tile.statistics()
    tile.describe_cells()


LARGE = [1e15, -1e15, 1e16, 3e38, -3e38, float(np.finfo(np.float32).max)]


def _with_large_numbers() -> Iterator[pl.TileConfig]:
    """Tiles of every setting that may be large, one at a time."""
    made: list[tuple[type, Callable[[Any], pl.TileConfig]]] = [
        (getattr(pl.devices, model), lambda device: pl.SingleConfig(device=device))
        for model in pl.devices.MODELS
    ]
    made.append((pl.IOParameters, lambda io: pl.SingleConfig(forward=io, backward=io)))
    made.append((pl.UpdateParameters, lambda update: pl.SingleConfig(update=update)))
    made.append((lambda **values: pl.LRTTConfig(rank=2, **values), lambda config: config))
    automatic = dict.fromkeys(("lora_alpha", "transfer_lr", "a_lr", "b_lr", "reinit_gain"), 1.0)
    for make, config_of in made:
        for name, value in {
            **make().to_dict(),
            **(automatic if make is made[-1][0] else {}),
        }.items():
            for large in LARGE if isinstance(value, float) else ():
                with contextlib.suppress(pl.ConfigError):
                    yield config_of(make(**{name: large}))


@pytest.mark.filterwarnings("ignore:.*lie outside the bounds:UserWarning")
def test_large_settings_are_refused_or_lead_to_finite_numbers() -> None:
    x, d = np.ones((2, 4), np.float32), np.full((2, 4), 0.1, np.float32)
    used = 0
    for config in _with_large_numbers():
        try:
            tile = pl.Tile(4, 4, config, seed=1, threads=1)
        except pl.ConfigError:
            continue
        seen = [tile.weights, tile.forward(x), tile.backward(d)]
        tile.update(x, d, 0.05)
        if tile.adapter is not None:
            tile.adapter.transfer()
        seen += [tile.weights, tile.forward(x), tile.backward(d), *tile.describe_cells().values()]
        tile.reset_columns("visible", 0, 2)
        tile.weights = np.full((4, 4), 0.1, np.float32)
        seen.append(tile.weights)
        numbers = [v for v in tile.explain(x, d, 0.05).values() if isinstance(v, float)]
        assert all(np.isfinite(each).all() for each in [*seen, *numbers]), config
        tile.state()
        used += 1
    assert used > 200


def _tried(call: Callable[[], object]) -> tuple[object, str]:
    """Result of a call, or the message of its error."""
    try:
        return call(), ""
    except (pl.ConfigError, pl.InputError) as error:
        return None, str(error)


@pytest.mark.parametrize("name", ["ideal", "single", "lrtt", "none", "accumulated"])
def test_large_inputs_are_refused_or_lead_to_finite_numbers(name: str) -> None:
    configs = {
        "none": pl.SingleConfig(update=pl.UpdateParameters(pulse_type="none")),
        "accumulated": pl.LRTTConfig(rank=2, ab_update="accumulated", transfer_every=1),
    }
    refused = 0
    for size in (1e10, 1e15, 1e19, 1e30, 3e38, -3e38):
        for large in ("x", "d", "lr", "x d", "x d lr"):
            tile = make_tile(configs.get(name) or CONFIGS[name]())
            x, d = make_batch(3)
            x[1] = size if "x" in large else x[1]
            d[1] = size if "d" in large else d[1]
            lr = size if "lr" in large else 0.05
            for call in (
                lambda: tile.forward(x),  # noqa: B023 - at once
                lambda: tile.backward(d),  # noqa: B023
                lambda: [*tile.explain(x, d, lr).values()],  # noqa: B023
                lambda: tile.update(x, d, lr),  # noqa: B023
                lambda: tile.forward(x),  # noqa: B023
                lambda: tile.backward(d),  # noqa: B023
                lambda: tile.weights,  # noqa: B023
            ):
                before = tile.state()
                given, error = _tried(call)
                if error:
                    refused += 1
                    assert re.search("at most|beyond single precision", error)
                    assert tile.state().values == before.values
                numbers = given if isinstance(given, list) else [given]
                assert all(
                    np.isfinite(v).all() for v in numbers if isinstance(v, float | np.ndarray)
                )
    assert refused > 10


def test_none_with_device_does_not_depend_on_how_a_batch_is_split() -> None:
    config = pl.SingleConfig(
        device=pl.devices.ConstantStep(w_max=0.1, w_min=-0.1, write_noise_std=2.0),
        update=pl.UpdateParameters(pulse_type="none_with_device"),
    )
    parts = {"fast": config.device, "visible": config.device, "update": config.update}
    lrtt = pl.LRTTConfig(rank=2, **(PLAIN_LRTT | parts | {"transfer_every": 4}))
    x, d = make_batch(9)
    for kind in (config, lrtt):
        whole, split, saved = make_tile(kind), make_tile(kind), make_tile(kind)
        whole.update(x, d, 1.0)
        split.update(x[:3], d[:3], 1.0, end_of_batch=False)
        saved.load_state(split.state())
        for tile in (split, saved):
            tile.update(x[3:], d[3:], 1.0)
            assert tile.weights.tobytes() == whole.weights.tobytes()
        bounds = whole.describe_cells()
        stored = whole.state().tensors
        name = "weights" if kind is config else "visible/weights"
        assert np.all(stored[name] <= bounds["w_max"])
        assert np.any(stored[name] == bounds["w_max"])
