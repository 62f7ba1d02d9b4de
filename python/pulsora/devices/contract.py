"""Contract of device models, as checks that anyone can run on a model of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pulsora import _core
from pulsora.devices.models import Device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    _Matrix: TypeAlias = NDArray[np.float32]


__all__ = ["ContractError", "check"]

_ROWS, _COLS, _SAMPLES = 67, 130, 13  # no multiples of the blocks of cells that kernels process
_PULSE_TYPES = (
    "stochastic_compressed", "stochastic", "mean_count", "deterministic_implicit", "none",
    "none_with_device",
)  # fmt: skip
_TRAINS = (1, 3, 8, 31, 40)
_SIGMAS = 5.0
_STILL = {"lifetime": 0.0, "diffusion": 0.0}


class ContractError(AssertionError):
    """A device model breaks its contract; the message names each broken promise and an example."""


def check(device: type[Device] | Device, *, on: str = "cpu") -> tuple[str, ...]:
    """Checks that a device model keeps the contract of all device models.

    Weights stay within the bounds of their cells. No pulse changes nothing. A pulse makes the step
    of `describe_cells()`, with the sign of its direction. An update of learning rate lr moves
    weights at 0 by lr, on the mean of both directions. Cells without spread are equal and nominal,
    and spreads have their mean and standard deviation. Results depend neither on how a batch is
    split, nor on threads, nor on where the tile is; from a saved state they go on to the bit.

    Args:
        device: A class, which is checked with its defaults, or an object of one with its own
            parameters.
        on: Place of its tiles: "cpu", "cuda" or "cuda:<number>".

    Returns:
        The names of the promises, all of which were kept.

    Raises:
        ContractError: If a promise is broken.
        TypeError: If `device` is no device.
        DeviceError: If there is no such GPU.
    """
    if isinstance(device, type) and device is not Device:
        device = device()
    if not isinstance(device, Device):
        raise TypeError(
            f"device is {device!r}; pass a class of pulsora.devices, or an object of one"
        )
    suite = _Suite(device, on)
    broken = []
    for name, promise in _PROMISES.items():
        found = [f"{name}: {problem}" for problem in promise(suite)]
        broken += found[:1]  # one example per promise
    if broken:
        raise ContractError(f"{device.model} breaks its contract. " + "; ".join(broken))
    return tuple(_PROMISES)


@dataclass(frozen=True)
class _Suite:
    """Tiles of a device, made by the core: Python's classes of tiles stand above the devices."""

    device: Device
    on: str

    def tile(
        self,
        update: Mapping[str, Any] | None = None,
        *,
        shape: tuple[int, int] = (_ROWS, _COLS),
        threads: int = 1,
        changes: Mapping[str, Any] | None = None,
    ) -> _core.Tile:
        # Without write noise, pulses act on the weights that are read.
        device = self.device.replace(**{"write_noise_std": 0.0, **(changes or {})})
        settings = {"kind": "single", "device": device.to_dict(), "update": dict(update or {})}
        return _core.make_tile(*shape, settings, 7, 0, self.on, threads)

    def update(self, tile: _core.Tile, x: _Matrix, d: _Matrix, lr: float) -> None:
        """Updates by a part of a mini-batch."""
        if self.on == "cpu":
            tile.update(x, d, lr)
        else:
            tile.update(_core.upload(x, self.on), _core.upload(d, self.on), lr)

    def learn(self, tile: _core.Tile, x: _Matrix, d: _Matrix, lr: float) -> None:
        """Updates by a mini-batch, or by the end of one."""
        self.update(tile, x, d, lr)
        tile.end_batch(lr)

    def updates(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Pulse types and lengths of pulse trains, by name."""
        for pulses in _PULSE_TYPES:
            for length in _TRAINS if pulses.startswith("stochastic") else (31,):
                yield f"{pulses}, desired_bl={length}", {"pulse_type": pulses, "desired_bl": length}

    def without_spread(self) -> dict[str, Any]:
        names = [name for name in self.device.to_dict() if name.endswith("_dtod")]
        return dict.fromkeys([*names, "corrupt_devices_prob"], 0.0)


def _batch(seed: int = 3) -> tuple[_Matrix, _Matrix]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(_SAMPLES, _COLS)).astype(np.float32)
    d = 0.2 * rng.normal(size=(_SAMPLES, _ROWS)).astype(np.float32)
    return x, d


def _differ(first: Any, second: Any) -> bool:  # noqa: ANN401
    return bool(np.asarray(first).tobytes() != np.asarray(second).tobytes())


def _bounds(suite: _Suite) -> Iterator[str]:
    for name, update in suite.updates():
        if update["pulse_type"] == "none":
            continue  # without pulses there are no bounds
        tile = suite.tile(update, changes={"diffusion": 0.1, "lifetime": 20.0})
        for step in range(10):
            suite.learn(tile, *_batch(step), 3.0)
            cells, weights = tile.describe_cells("visible"), tile.get_weights()
            outside = (weights < cells["w_min"]) | (weights > cells["w_max"])
            if outside.any():
                yield f"{outside.sum()} weights beyond the bounds of their cells ({name})"


def _no_pulses(suite: _Suite) -> Iterator[str]:
    for name, update in suite.updates():
        tile = suite.tile(update, changes=_STILL)
        before = tile.get_weights()
        x, d = _batch()
        suite.learn(tile, np.zeros_like(x), d, 1.0)
        if _differ(before, tile.get_weights()):
            yield f"an update by x = 0 changes weights ({name})"


def _signs(suite: _Suite) -> Iterator[str]:
    one = {"desired_bl": 1, "update_management": False, "update_bl_management": False}
    changes = {"dw_min_std": 0.0, **_STILL}
    for up in (True, False):
        tile = suite.tile(one, changes=changes)
        cells, before = tile.describe_cells("visible"), tile.get_weights()
        step = cells["step_up" if up else "step_down"]
        d = np.full(_ROWS, -1.0 if up else 1.0, np.float32)
        suite.update(tile, np.ones(_COLS, np.float32), d, 1e15)  # one pulse, at any step
        direction = "up" if up else "down"
        if (step * (1 if up else -1) < 0).any():
            yield f"a pulse {direction} moves the mean of a cell the other way"
        expected = np.clip(before + step, cells["w_min"], cells["w_max"])
        if not np.allclose(tile.get_weights(), expected, rtol=0.0, atol=1e-6):
            yield (
                f"a pulse {direction} without noise makes another step than describe_cells() tells"
            )


def _learning_rate(suite: _Suite) -> Iterator[str]:
    tile = suite.tile(changes=suite.without_spread())
    tile.set_weights(np.zeros((_ROWS, _COLS), np.float32))
    if tile.get_weights()[0, 0] != 0.0:
        return  # no cell holds the weight 0
    cell = {name: float(plane[0, 0]) for name, plane in tile.describe_cells("visible").items()}
    ways = {"step_up": cell["w_max"], "step_down": cell["w_min"]}
    steps = [abs(cell[step]) for step, bound in ways.items() if bound != 0.0]
    if not any(steps):
        return  # no pulse moves a weight at 0
    x, d = np.ones((1, _COLS), np.float32), np.ones((1, _ROWS), np.float32)
    told = (
        tile.explain(x, d, 1.0)
        if suite.on == "cpu"
        else tile.explain(_core.upload(x, suite.on), _core.upload(d, suite.on), 1.0)
    )
    moved = told["mean_pulses_of_largest"] * float(np.mean(steps))
    if abs(moved - 1.0) > 1e-4:
        yield (
            f"an update of learning rate lr moves weights at 0 by {moved:.4g} lr, on the mean of "
            f"both directions; let granularity() return stepAtZero<{suite.device.model}>(p)"
        )


def _equal_cells(suite: _Suite) -> Iterator[str]:
    device = suite.device.to_dict()
    cells = suite.tile(changes=suite.without_spread()).describe_cells("visible")
    for name in ("w_max", "w_min", "step_up", "step_down"):
        first = cells[name].flat[0]
        if (cells[name][:, :-1] != first).any():  # the last column may be a noise-free bias
            yield f"{name} differs between cells without spread"
        if name in device and first != np.float32(device[name]):
            yield f"{name} of cells without spread is {first}, not {device[name]}"


def _statistics(suite: _Suite) -> Iterator[str]:
    spreads = {"w_max_dtod": 0.1, "w_min_dtod": 0.2, "dw_min_dtod": 0.15, "up_down_dtod": 0.05}
    changes = {**suite.without_spread(), **spreads, "up_down": 0.0, "perfect_bias": False}
    changes |= {"dw_min_dtod_log_normal": False}
    device = suite.device.to_dict()
    if not device.get("table_w"):  # whose nodes must lie within the bounds
        changes |= {"w_max": 0.6, "w_min": -0.6}
    device |= changes
    # Cells are neither made consistent nor swapped.
    changes |= {"enforce_consistency": False, "adjust_bounds_with_up_down": False}
    tile = suite.tile(shape=(200, 250), changes=changes)
    planes = next(
        plane for name, plane in tile.state()[0].items() if name.endswith("cells")
    ).astype(np.float64)
    gain = float(np.hypot(0.15, 0.05))
    names = ("gain_up", "gain_down", "bound_max", "bound_min")
    bounds = {"bound_max": device["w_max"], "bound_min": device["w_min"]}
    for name, plane, sd in zip(names, planes, (gain, gain, 0.1, 0.2), strict=False):
        if bounds.get(name) == 0.0:
            continue  # spreads leave a bound at 0
        count = plane.size
        if abs(plane.mean() - 1.0) > _SIGMAS * sd / np.sqrt(count):
            yield f"the mean of {name} is {plane.mean():.4f} instead of 1"
        if abs(plane.std() - sd) > _SIGMAS * sd / np.sqrt(2 * count):
            yield f"the standard deviation of {name} is {plane.std():.4f} instead of {sd:.4f}"


def _splits(suite: _Suite) -> Iterator[str]:
    if suite.device.to_dict()["noise_merge"] == "batch":
        return  # splits of a batch change the draws by definition
    x, d = _batch()
    for name, update in suite.updates():
        whole = suite.tile(update)
        suite.learn(whole, x, d, 0.5)
        for cut in (1, 5, 12):
            parts = suite.tile(update)
            suite.update(parts, x[:cut], d[:cut], 0.5)
            suite.learn(parts, x[cut:], d[cut:], 0.5)
            if _differ(whole.get_weights(), parts.get_weights()):
                yield f"a batch cut at {cut} gives other weights ({name})"


def _threads(suite: _Suite) -> Iterator[str]:
    x, d = _batch()
    for name, update in suite.updates():
        weights = []
        for threads in (1, 2, 3):
            tile = suite.tile(update, threads=threads)
            suite.learn(tile, x, d, 0.5)
            weights.append(tile.get_weights())
        if _differ(weights[0], weights[1]) or _differ(weights[0], weights[2]):
            yield f"weights depend on the number of threads ({name})"


def _state(suite: _Suite) -> Iterator[str]:
    tile = suite.tile(changes={"lifetime": 50.0, "diffusion": 1e-3})
    suite.learn(tile, *_batch(0), 0.5)
    tensors, values = tile.state()
    again = _core.tile_from_state(tensors, values, suite.on, 1)
    for each in (tile, again):
        suite.learn(each, *_batch(1), 0.5)
    if _differ(tile.get_weights(), again.get_weights()):
        yield "a tile in a saved state goes on otherwise"
    for name, values in tile.describe_cells("visible").items():
        if _differ(values, again.describe_cells("visible")[name]):
            yield f"{name} of a tile in a saved state is another"


def _places(suite: _Suite) -> Iterator[str]:
    if suite.on == "cpu":
        return
    x, d = _batch()
    host = replace(suite, on="cpu")
    for name, update in suite.updates():
        weights = []
        for each in (suite, host):
            tile = each.tile(update)
            each.learn(tile, x, d, 0.5)
            weights.append(tile.get_weights())
        if _differ(*weights):
            yield f"weights on {suite.on} are not those of the CPU ({name})"


_PROMISES: dict[str, Callable[[_Suite], Iterator[str]]] = {
    "weights stay within bounds": _bounds,
    "no pulses, no change": _no_pulses,
    "steps and their signs": _signs,
    "updates by the learning rate": _learning_rate,
    "cells without spread are equal": _equal_cells,
    "spreads have their mean and standard deviation": _statistics,
    "splits change nothing": _splits,
    "threads change nothing": _threads,
    "a saved state goes on to the bit": _state,
    "every place gives the CPU's bits": _places,
}
