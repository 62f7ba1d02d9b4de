"""Functions of torch that analog layers refuse, in a sentence, and come through unharmed."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.parametrize import register_parametrization

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig()


def linear() -> pl.nn.AnalogLinear:
    torch.manual_seed(0)
    return pl.nn.AnalogLinear(6, 4, config=IDEAL)


def penalty(layer: nn.Module, x: torch.Tensor) -> None:
    (slope,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
    slope.pow(2).sum().backward()


def forward_mode(layer: nn.Module, x: torch.Tensor) -> None:
    with forward_ad.dual_level():
        layer(forward_ad.make_dual(x.detach(), torch.ones_like(x)))


REFUSED: dict[str, tuple[Callable[[Any, torch.Tensor], object], str]] = {
    "vmap": (lambda layer, x: torch.func.vmap(layer)(x), "torch.func .* not available"),
    "jvp": (lambda layer, x: torch.func.jvp(layer, (x,), (x,)), "torch.func .* not available"),
    "jacrev": (lambda layer, x: torch.func.jacrev(layer)(x), "torch.func .* not available"),
    "grad": (
        lambda layer, x: torch.func.grad(lambda z: layer(z).sum())(x),
        "torch.func .* not available",
    ),
    "weight in grad": (
        lambda layer, x: torch.func.grad(lambda z: (layer.weight * z.sum()).sum())(x),
        "torch.func .* not available",
    ),
    "gradient penalty": (penalty, r"layer AnalogLinear \[4, 6\] cannot be differentiated again"),
    "hessian": (
        lambda layer, x: torch.autograd.functional.hessian(lambda z: layer(z).pow(2).sum(), x),
        r"layer AnalogLinear \[4, 6\] cannot be differentiated again",
    ),
    "0-d": (lambda layer, _: layer(torch.tensor(1.0)), "6 features in the last dimension"),
    "sparse": (lambda layer, x: layer(x.detach().to_sparse()), "x is sparse"),
    "float64": (lambda layer, x: layer(x.double()), "x has type torch.float64, and this layer"),
    "half": (lambda layer, x: copy.deepcopy(layer).half()(x), "and this layer torch.float16"),
    "script": (lambda layer, _: torch.jit.script(layer), "cannot be traced"),
    "prune": (lambda layer, _: prune.l1_unstructured(layer, "weight", 0.5), "cannot be pruned"),
    "prune tiles": (
        lambda layer, _: prune.l1_unstructured(layer, "analog_weight", 0.5),
        "cannot be pruned",
    ),
    "prune rows": (
        lambda layer, _: prune.ln_structured(layer, "weight", 0.5, 2, 0),
        "cannot be pruned",
    ),
    "prune all": (
        lambda layer, _: prune.global_unstructured(
            [(layer, "weight")], prune.L1Unstructured, amount=0.5
        ),
        "cannot be pruned",
    ),
    "old weight norm": (lambda layer, _: nn.utils.weight_norm(layer), "cannot be pruned or repara"),
    "old spectral norm": (
        lambda layer, _: nn.utils.spectral_norm(layer),
        r"weights of layer AnalogLinear \[4, 6\] are in tiles, which cannot be pruned or repara",
    ),
    "reparametrize": (
        lambda layer, _: register_parametrization(layer, "analog_weight", nn.Identity()),
        r"layer AnalogLinear \[4, 6\] are in tiles",
    ),
    **{
        name: (
            lambda layer, _, function=function: function(layer),  # type: ignore[misc]
            r"layer AnalogLinear \[4, 6\] are in tiles.*parametrizations\); write pruned",
        )
        for name, function in {
            "parametrize": lambda layer: register_parametrization(layer, "weight", nn.Identity()),
            "weight norm": parametrizations.weight_norm,
            "spectral norm": parametrizations.spectral_norm,
            "orthogonal": parametrizations.orthogonal,
        }.items()
    },
    "forward mode": (forward_mode, r"weights of layer AnalogLinear \[4, 6\] are in tiles"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_what_is_refused_says_so_and_leaves_the_layer_whole(name: str) -> None:
    call, message = REFUSED[name]
    layer = linear()
    x = torch.ones(3, 6, requires_grad=True)
    before = layer(x).detach()
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message):
        call(layer, x)
    assert torch.equal(layer(x), before)
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)
    pl.convert_to_digital(nn.Sequential(layer))


@pytest.mark.parametrize("name", ["float64", "half"])
def test_recurrent_layers_refuse_other_types_too(name: str) -> None:
    lstm: Any = pl.nn.AnalogLSTM(6, 4, config=IDEAL)
    lstm = lstm.half() if name == "half" else lstm
    x = torch.ones(2, 1, 6, dtype=torch.float64 if name == "float64" else torch.float32)
    with pytest.raises(TypeError, match="and this layer"):
        lstm(x)
    with torch.autocast("cpu"):
        lstm(torch.ones(2, 1, 6))


def test_jacobian_of_autograd_works() -> None:
    layer = linear()
    x = torch.ones(6)
    found = torch.autograd.functional.jacobian(layer, x)
    torch.testing.assert_close(found, layer.get_weights()[0])


@pytest.mark.parametrize("kind", ["linear", "lstm"])
def test_weights_are_written_to_a_pruned_bias(kind: str) -> None:
    model: Any = linear() if kind == "linear" else pl.nn.AnalogLSTM(6, 4, config=IDEAL)
    name = "bias" if kind == "linear" else "bias_ih_l0"
    prune.l1_unstructured(model, name, amount=0.5)
    mask = getattr(model, f"{name}_mask")
    if kind == "linear":
        model.set_weights(torch.zeros(4, 6), torch.ones(4))
        assert torch.equal(model(torch.zeros(1, 6))[0], mask)
        assert torch.equal(model.get_weights()[1], mask)
    else:
        weights = model.get_weights()
        model.set_weights(weights | {name: torch.ones(16)})
        twin = nn.LSTM(6, 4)
        twin.load_state_dict(model.get_weights())
        assert torch.equal(model.get_weights()[name], mask)
        x = torch.ones(3, 2, 6)
        torch.testing.assert_close(model(x)[0], twin(x)[0])
    assert torch.equal(getattr(model, f"{name}_orig"), torch.ones(len(mask)))


def test_errors_of_recurrent_layers_name_their_own_attributes() -> None:
    lstm = pl.nn.AnalogLSTM(6, 4, config=IDEAL)
    with pytest.raises(RuntimeError) as caught:
        lstm.weight_hh_l0.mul_(2.0)
    message = str(caught.value)
    assert "layer.hh_l0.analog_weight.requires_grad_(False)" in message
    w = torch.zeros(16, 4)
    lstm.set_weights(lstm.get_weights() | {"weight_hh_l0": w})  # as the message says
    assert not lstm.weight_hh_l0.any()
    with pytest.raises(RuntimeError, match=r"x @ layer.weight_hh_l0.T"):
        nn.functional.linear(torch.ones(1, 4), lstm.weight_hh_l0)
    with pytest.raises(TypeError, match="AnalogLSTM has no argument 'rpu_config'"):
        pl.nn.AnalogLSTM(6, 4, rpu_config=IDEAL)
    with pytest.raises(TypeError, match="AnalogRNN was given AnalogLSTM in the place"):
        pl.nn.AnalogRNN(pl.nn.AnalogLSTM, 10, 64)


@pytest.mark.parametrize("name", ["AnalogLinear", "AnalogConv2d", "AnalogLSTM", "AnalogRNN"])
def test_signatures_show_all_options(name: str) -> None:
    kind = getattr(pl.nn, name)
    shown = inspect.signature(kind).parameters
    assert {"seed", "weight_scaling", "threads", "digital_bias", "device"} <= set(shown)
    assert not {"options", "args", "unknown"} & set(shown)
    first: list[Any] = {"AnalogLinear": [6, 4], "AnalogConv2d": [2, 3, 2]}.get(name, [6, 4])
    given = {p.name: p.default for p in shown.values() if p.default is not p.empty}
    kind(*first, **given)


def test_reset_parameters_draws_anew_in_the_same_cells() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(
        pl.nn.AnalogLinear(100, 80, learn_out_scaling=True, weight_scaling=0.2),
        pl.nn.AnalogConv2d(2, 3, 3, config=IDEAL),
        pl.nn.AnalogLSTM(30, 20, config=IDEAL, digital_bias=False),
        pl.nn.GatedAdapter(nn.Linear(6, 4), rank=2, config=IDEAL),
    )
    with torch.no_grad():
        model[0].out_scaling.fill_(3.0)
    cells = model[0].tiles.grid[0][0].describe_cells()["w_max"]
    factors = model[3].factors()
    before = copy.deepcopy(model)
    for seed in (1, 1):
        torch.manual_seed(seed)
        for each in model.modules():
            if each is not model[3] and hasattr(each, "reset_parameters"):
                each.reset_parameters()
        again = copy.deepcopy(model)
    assert model[0].out_scaling.item() == 1.0
    assert np.array_equal(model[0].tiles.grid[0][0].describe_cells()["w_max"], cells)
    for layer, old, same, bound in (
        (model[0], before[0], again[0], 100**-0.5),
        (model[1], before[1], again[1], 18**-0.5),
        (model[2].ih_l0, before[2].ih_l0, again[2].ih_l0, 20**-0.5),
    ):
        weight, bias = layer.get_weights()
        assert not torch.allclose(weight, old.get_weights()[0])
        assert torch.equal(weight, same.get_weights()[0])
        assert 0.8 * bound < weight.abs().max() <= bound * 1.0001
        # Uniform numbers have the deviation bound / sqrt(3).
        spread = float(weight.std()) / (bound / 3**0.5)
        assert abs(spread - 1.0) < 5.0 / weight.numel() ** 0.5
        assert bias.abs().max() <= bound * 1.0001
    for factor, old in zip(model[3].factors(), factors, strict=True):
        assert torch.equal(factor, old)


@pytest.mark.parametrize(
    "given",
    [
        np.full((8, 8), 1),
        [[0.25] * 8] * 8,
        np.full((8, 8), 0.25),
        torch.full((8, 8), 0.25),
        torch.full((8, 8), 0.25, dtype=torch.float64),
        torch.full((8, 8), 0.25).requires_grad_(),
        np.full((8, 8), True),  # noqa: FBT003 - of bool
    ],
)
def test_a_tile_converts_numbers_as_numpy_does(given: Any) -> None:  # noqa: ANN401 - of any kind
    tile = pl.Tile(8, 8, IDEAL)
    tile.weights = given
    plain = given.detach().numpy() if isinstance(given, torch.Tensor) else given
    assert np.array_equal(tile.weights, np.asarray(plain, np.float32))


def test_lists_that_are_no_matrix_are_refused() -> None:
    tile = pl.Tile(2, 3, IDEAL)
    itself: list[Any] = []
    itself.append(itself)
    for given in (itself, [[0.5, 0.5, 0.5], [0.5]], ([1.0], [[1.0]])):
        with pytest.raises(pl.InputError, match=r"weights is a .* that is no array of numbers"):
            tile.weights = given
    assert (tile.weights == 0.0).all()
    with pytest.raises(ValueError, match="up has 4 dimensions; give"):
        pl.fit.device(up=itself, down=itself)


class Once:
    """An owner of memory that hands it out once."""

    def __init__(self, values: np.ndarray) -> None:
        self._values: np.ndarray | None = values

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401
        values, self._values = self._values, None
        if values is None:
            raise RuntimeError("asked twice")
        return values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_an_owner_of_weights_is_asked_once() -> None:
    tile = pl.Tile(2, 3, IDEAL)
    tile.weights = Once(np.full((2, 3), 0.5, np.float32))
    assert (tile.weights == 0.5).all()


@pytest.mark.parametrize("kind", ["tile", "linear", "lstm"])
def test_a_warning_that_is_an_error_comes_before_the_write(kind: str) -> None:
    config = pl.SingleConfig()
    if kind == "tile":
        tile = pl.Tile(8, 8, config)
        before = tile.weights
        with pytest.raises(UserWarning, match="outside the bounds"):  # warnings are errors here
            tile.weights = np.full((8, 8), 9.0)
        assert np.array_equal(tile.weights, before)
        return
    layer: Any = (pl.nn.AnalogLinear if kind == "linear" else pl.nn.AnalogLSTM)(8, 8, config=config)
    saved = {name: each.clone() for name, each in layer.state_dict().items()}
    given: tuple[Any, ...] = (torch.full((8, 8), 9.0), torch.zeros(8))
    if kind == "lstm":
        weights = {name: torch.zeros_like(w) for name, w in layer.get_weights().items()}
        given = (weights | {"weight_hh_l0": torch.full((32, 8), 9.0)},)
    with pytest.raises(UserWarning, match="outside the bounds"):
        layer.set_weights(*given)
    assert all(torch.equal(each, saved[name]) for name, each in layer.state_dict().items())


def test_the_write_noise_of_an_adapter_is_not_told_as_clipping() -> None:
    torch.manual_seed(0)
    tile = pl.Tile(50, 50, pl.LRTTConfig(rank=2, fast=pl.devices.EcRam(write_noise_std=0.02)))
    tile.weights = 0.001 * torch.randn(50, 50)  # a warning would fail the test


def test_small_layers_are_converted_without_a_word() -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        pl.convert_to_analog(nn.Sequential(nn.Linear(16, 16)), pl.SingleConfig(), seed=seed)
    layer = pl.nn.AnalogLinear(16, 16)
    with pytest.warns(UserWarning, match="outside the bounds"):
        layer.set_weights(torch.randn(16, 16), torch.zeros(16))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda layer, name: prune.l1_unstructured(layer, name, 0.5),
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
    ],
)
def test_weights_that_are_elsewhere_say_where(function: Callable[..., object]) -> None:
    lstm = pl.nn.AnalogLSTM(6, 4, config=IDEAL)
    with pytest.raises(RuntimeError, match=r"weights of AnalogLSTM are in tiles.*set_weights"):
        function(lstm, "weight_ih_l0")
    for base in (nn.Linear(6, 4), linear()):
        adapter = pl.nn.GatedAdapter(base, rank=2)
        before = adapter(torch.ones(3, 6))
        told = r"weight of its base.*with adapter.base|given the weight of the base of an adapted"
        with pytest.raises(RuntimeError, match=told):
            function(adapter, "weight")
        assert torch.equal(adapter(torch.ones(3, 6)), before)
        assert set(adapter.state_dict()) == set(copy.deepcopy(adapter).state_dict())
    adapter = pl.nn.GatedAdapter(nn.Linear(6, 4), rank=2)
    function(adapter.base, "weight")
    adapter(torch.ones(3, 6)).sum().backward()
    with pytest.raises(KeyError, match="other"):
        del lstm._parameters["other"]


@pytest.mark.parametrize("base", [nn.Linear(6, 4), pl.nn.AnalogLinear(6, 4, config=IDEAL)])
def test_adapted_layers_refuse_a_single_number(base: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"x has shape \[\]: this layer takes 6 features"):
        pl.nn.GatedAdapter(base, rank=2)(torch.tensor(1.0))


def test_parents_that_use_a_weight_are_told_to_keep_it_digital() -> None:
    """The ways out that the errors name are right."""

    class Mamba(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1d = nn.Conv1d(4, 4, 3, groups=4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.conv1d.weight.reshape(4, 1, 3)
            return nn.functional.conv1d(x, weight, groups=4)

    model, x = Mamba(), torch.ones(1, 4, 5)
    with pytest.raises(RuntimeError, match=r"conv1d was given a copy.*exclude=\[its name\]"):
        pl.convert_to_analog(model, IDEAL)(x)
    assert torch.equal(pl.convert_to_analog(model, IDEAL, exclude=["conv1d"])(x), model(x))
