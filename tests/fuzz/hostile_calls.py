"""Calls on models with hostile objects, and warnings made errors: an error changes nothing."""

from __future__ import annotations

import contextlib
import copy
import math
import traceback
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import torch

import pulsora as pl
from tests.fuzz import hostile, models
from tests.fuzz.checks import Planted
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.nn import AnalogModule
    from tests.fuzz.models import Training
    from tests.fuzz.random_source import Draws

OWN = ("cpu", "detach", "float", "numpy", "to", "contiguous", "__dlpack__", "__dlpack_device__")
ALLOWED = (*models.DOCUMENTED, Planted, Warning, KeyError, AttributeError, IndexError)
"""Errors of calls with any objects at all; those of torch's own functions too."""


class Owner:
    """Owns a matrix, and hands it out by every method; its uses raise from some number on."""

    def __init__(self, matrix: torch.Tensor, uses: int) -> None:
        self._matrix, self._uses = matrix, uses

    def _use(self) -> None:
        self._uses -= 1
        if self._uses < 0:
            raise Planted("a method of the owner raises")

    @property
    def shape(self) -> torch.Size:
        self._use()
        return self._matrix.shape

    @property
    def dtype(self) -> torch.dtype:
        self._use()
        return self._matrix.dtype

    def __array__(self, *_arguments: object, **_options: object) -> object:
        self._use()
        return self._matrix.numpy()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the matrix
        if name not in OWN:
            raise AttributeError(name)
        self._use()
        return getattr(self._matrix, name)

    def __repr__(self) -> str:
        return f"Owner({list(self._matrix.shape)})"


class OwnTensor(torch.Tensor):
    """A tensor whose functions of torch raise from some number on."""

    uses: int

    @classmethod
    def __torch_function__(
        cls,
        func: Any,  # noqa: ANN401 - as torch's
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        for given in args:
            if isinstance(given, OwnTensor) and hasattr(given, "uses"):
                given.uses -= 1
                if given.uses < 0:
                    raise Planted("a function of the tensor raises")
        return super().__torch_function__(func, types, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return "OwnTensor()"


class Call(NamedTuple):
    """A call with all its arguments drawn."""

    name: str
    arguments: tuple[object, ...]
    work: Callable[[], object]


def run(draws: Draws) -> None:
    training = models.training(draws, models.model(draws))
    with contextlib.suppress(*models.DOCUMENTED):
        training.backward()
    for _ in range(draws.integer(2, 8)):
        call = draws.pick(CALLS)(draws, training)
        strict = draws.chance(0.5)
        draws.note(call.name, *call.arguments, "warnings are errors" if strict else "")
        before = models.everything(training.model, training.optimizer)
        refused = _tried(draws, call, strict=strict)
        if refused:
            after = models.everything(training.model, training.optimizer)
            models.require_equal(before, after, f"{call.name} was refused, but has changed")


def _tried(draws: Draws, call: Call, *, strict: bool) -> bool:
    """Whether a call is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore")
        try:
            call.work()
        except ALLOWED as error:
            draws.note("refused", type(error).__name__, str(error))
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            return "/torch/optim/" not in where  # torch steps parameter by parameter
    return False


def _layer(draws: Draws, training: Training) -> AnalogModule:
    return draws.pick(models.analog_layers(training.model))


def _matrix(draws: Draws, rows: int, columns: int | None) -> Any:  # noqa: ANN401 - anything
    """An argument where a tensor [rows, columns] or [rows] belongs, half of them sound."""
    shape = (rows,) if columns is None else (rows, columns)
    plain = torch.from_numpy(draws.normal(*shape, scale=draws.pick((0.1, 1.0, 10.0))))
    what = draws.integer(0, 9)
    if what <= 3:
        return plain
    if what == 4:
        return Owner(plain, draws.integer(0, 6))
    if what == 5:
        owned = plain.as_subclass(OwnTensor)
        owned.uses = draws.integer(0, 8)
        return owned
    if what == 6:
        return plain * draws.pick((float("nan"), float("inf"), 3e38))
    if what == 7:
        return torch.from_numpy(draws.normal(*shape[:-1], shape[-1] + 1))
    if what == 8:
        return plain.to(draws.pick((torch.int64, torch.bool, torch.complex64, torch.bfloat16)))
    others = [hostile.Stubborn(), plain.to_sparse(), plain.to("meta"), plain.numpy()]
    return draws.pick([*others, *plain_values(draws)])


def _set_weights(draws: Draws, training: Training) -> Call:
    layer = _layer(draws, training)
    weight, bias = layer.get_weights()
    given = _matrix(draws, *weight.shape)
    added = _matrix(draws, len(weight), None) if bias is not None or draws.chance(0.1) else None
    return Call("set_weights", (given, added), lambda: layer.set_weights(given, added))


def _recurrent_weights(draws: Draws, training: Training) -> Call:
    found = [each for each in training.model if isinstance(each, models.Recurrent)]
    if not found:
        return _set_weights(draws, training)
    layer: Any = draws.pick(found).layer
    given = dict(layer.get_weights())
    name = draws.pick(list(given))
    given[name] = _matrix(draws, *given[name].shape, *(() if given[name].dim() > 1 else (None,)))
    return Call("set_weights", (name, given[name]), lambda: layer.set_weights(given))


def _tile_weights(draws: Draws, training: Training) -> Call:
    tile = draws.pick(list(_layer(draws, training).tiles))
    given = _matrix(draws, tile.d_size, tile.x_size)
    return Call("tile.weights =", (given,), lambda: setattr(tile, "weights", given))


def _tile_array(draws: Draws, training: Training) -> Call:
    tile = draws.pick(list(_layer(draws, training).tiles))
    name = draws.pick([*tile.arrays, "none"])
    shape = tile.arrays[name].shape if name in tile.arrays else (2, 2)
    given = _matrix(draws, *shape)
    arrays: Any = tile.arrays

    def work() -> None:
        arrays[name] = given

    return Call("tile.arrays =", (name, given), work)


def _load(draws: Draws, training: Training) -> Call:
    """A state of one layer, one entry of which is hostile."""
    layer = _layer(draws, training)
    state: dict[str, Any] = copy.deepcopy(layer.state_dict())
    name = draws.pick(list(state))
    state[name] = draws.pick([
        hostile.Stubborn(), Owner(state[name], draws.integer(0, 6)), state[name].to("meta"),
        *plain_values(draws),
    ])  # fmt: skip
    tiles = {n.removeprefix("tiles."): each for n, each in state.items() if n.startswith("tiles.")}
    if draws.chance(0.5):  # torch copies digital parameters one by one
        digital = [n for n in state if not n.startswith("tiles.")]
        for each in digital:
            state[each] = layer.state_dict()[each]
        return Call("load_state_dict", (name,), lambda: layer.load_state_dict(state))
    return Call("load_state_tensors", (name,), lambda: layer.tiles.load_state_tensors(tiles))


def _add_group(draws: Draws, training: Training) -> Call:
    """Another group, with a setting that analog layers ignore, or one that torch refuses."""
    torch.manual_seed(0)
    made: list[torch.nn.Parameter] = list(
        pl.nn.AnalogLinear(models.WIDTH, 2, seed=1, threads=1).parameters()
    )
    names = [name for name in training.optimizer.defaults if name not in {"lr", "maximize"}]
    group = {
        "params": draws.pick((made, made[:1], [*made, *made], list(training.model.parameters()))),
        draws.pick(names): draws.pick((0.9, 0.1, True, None, (0.5, 0.5))),
    }
    optimizer = training.optimizer
    return Call("add_param_group", (group,), lambda: optimizer.add_param_group(group))


def _gradient(draws: Draws, training: Training) -> Call:
    parameter = _layer(draws, training).carrier
    rows, *inputs = parameter.shape
    given = _matrix(draws, rows, math.prod(inputs))
    if isinstance(given, OwnTensor):  # it would raise wherever the gradient is looked at
        given = None
    return Call("grad =", (given,), lambda: setattr(parameter, "grad", given))


def _move(draws: Draws, training: Training) -> Call:
    place: Any = draws.pick([
        "cuda:77", "meta", "cpu", torch.int8, torch.complex64, torch.float64, torch.float32,
        *plain_values(draws),
    ])  # fmt: skip
    layer = _layer(draws, training)

    def work() -> None:
        try:
            layer.to(place)
        except AssertionError as error:  # torch without CUDA
            raise RuntimeError(str(error)) from None

    return Call("to", (place,), work)


def _step(draws: Draws, training: Training) -> Call:
    """A step beside other processes, of which an unprepared model is warned."""
    apart = draws.chance(0.5)

    def work() -> None:
        with contextlib.ExitStack() as faults:
            if apart:
                for name, value in (("is_initialized", True), ("get_world_size", 2)):
                    changed = mock.patch.object(torch.distributed, name, lambda v=value: v)
                    faults.enter_context(changed)
            training.optimizer.step()

    return Call("step", ("apart" if apart else "",), work)


def _assigned(draws: Draws, training: Training) -> Call:
    layer = _layer(draws, training)
    name = draws.pick(("weight", "analog_weight", "bias", "out_scaling", "config", "tiles"))
    value = draws.pick([torch.zeros(2), hostile.Stubborn(), *plain_values(draws)])
    if name not in {"weight", "tiles"} and value is None:
        value = 1.0  # None takes a parameter away, as in torch
    if name == "config":
        return Call("config.x =", (value,), lambda: setattr(layer.config, "forward", value))
    return Call(f"{name} =", (value,), lambda: setattr(layer, name, value))


def _converted(draws: Draws, training: Training) -> Call:
    """Conversions leave the model as it is, whatever they end with."""
    config: Any = draws.pick([pl.SingleConfig(), hostile.Stubborn(), *plain_values(draws)])
    given = draws.pick((
        lambda: pl.convert_to_analog(training.model, config),
        lambda: pl.convert_to_digital(training.model),
        lambda: pl.conversion_report(training.model),
    ))  # fmt: skip

    def work() -> None:
        random = torch.get_rng_state()  # new layers draw their seeds
        try:
            given()
        finally:
            torch.set_rng_state(random)
        raise Planted("the conversion has ended")

    return Call("convert", (config,), work)


def _read(draws: Draws, training: Training) -> Call:
    """A read of one tile or a whole layer that is refused counts nothing."""
    tile = draws.pick(list(_layer(draws, training).tiles))
    given = _matrix(draws, draws.integer(1, 3), tile.x_size)
    return Call("forward", (given,), lambda: tile.forward(given))


def _layer_read(draws: Draws, training: Training) -> Call:
    layer = next((each for each in training.model if isinstance(each, pl.nn.AnalogLinear)), None)
    if layer is None:
        return _read(draws, training)
    given = _matrix(draws, draws.integer(1, 3), models.WIDTH)
    return Call("layer", (given,), lambda: layer(given))


CALLS: tuple[Callable[[Draws, Training], Call], ...] = (
    _set_weights, _recurrent_weights, _tile_weights, _tile_weights, _tile_array, _load, _add_group,
    _gradient, _move, _step, _assigned, _converted, _read, _layer_read,
)  # fmt: skip
