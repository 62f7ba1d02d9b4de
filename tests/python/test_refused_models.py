"""Models, configurations and inputs of layers that are none: each has its message."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTINGS = pl.SingleConfig()
TAKE_MODELS: dict[str, Callable[[Any], object]] = {
    "convert_to_analog": lambda m: pl.convert_to_analog(m, SETTINGS),
    "convert_to_digital": pl.convert_to_digital,
    "conversion_report": pl.conversion_report,
    "model_memory": lambda m: pl.model_memory(m, SETTINGS),
    "merge": pl.merge,
    "program": pl.program,
    "drift": lambda m: pl.drift(m, 1.0),
    "unprogram": pl.inference.unprogram,
    "evaluate": lambda m: pl.inference.evaluate(m, []),
    "calibrate": lambda m: pl.inference.calibrate(m, []),
    "calibrate_outputs": lambda m: pl.inference.calibrate_outputs(m, []),
    "fit_affine": lambda m: pl.inference.fit_affine(m, []),
    "sweep": lambda m: pl.inference.sweep(m, [], {"clip": ["none"]}),
    "reseed": lambda m: pl.reseed(m, 1),
    "with_io": pl.with_io,
}


@pytest.mark.parametrize("call", TAKE_MODELS.values(), ids=TAKE_MODELS)
@pytest.mark.parametrize("model", [None, 5, [torch.nn.Linear(2, 2)]], ids=["None", "5", "a list"])
def test_what_is_no_model_is_refused(call: Callable[[Any], object], model: object) -> None:
    kind = type(model).__name__
    with pytest.raises(TypeError, match=rf"^model is of type {kind}: give a torch\.nn\.Module$"):
        call(model)


def test_what_is_no_model_is_not_saved(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    given: Any = {"weight": torch.ones(2)}
    with pytest.raises(TypeError, match="model is of type dict"):
        pl.save(given, folder)
    assert not folder.exists()


def test_a_training_step_refuses_what_it_cannot_call() -> None:
    model = torch.nn.Sequential(pl.nn.AnalogLinear(3, 2, seed=1))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    step: Any = partial(pl.training_step.TrainingStep, optimizer=optimizer, loss_fn=torch.mean)
    with pytest.raises(TypeError, match="model is of type int"):
        step(5)
    with pytest.raises(TypeError, match="before_step = 5: give a function, or None"):
        step(model, before_step=5)


NO_CONFIGS: dict[str, tuple[object, str]] = {
    "a device": (
        pl.devices.EcRam(),
        "of type LinearStep; pass a SingleConfig or .* of this device",
    ),
    "a class": (pl.LRTTConfig, r"the class LRTTConfig; pass a .*; write LRTTConfig\(\)$"),
    "a number": (5, "of type int; pass a SingleConfig or .* or InferenceConfig$"),
    "a dict": ({"rank": 2}, "of type dict; pass a SingleConfig or"),
}


@pytest.mark.parametrize(("given", "message"), NO_CONFIGS.values(), ids=NO_CONFIGS)
def test_what_is_no_configuration_is_refused(
    given: Any,  # noqa: ANN401 - of every type
    message: str,
) -> None:
    message = f"config is {message}"
    for inplace in (False, True):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2))
        with pytest.raises(TypeError, match=f"^{message}"):
            pl.convert_to_analog(model, given, inplace=inplace)
        assert type(model[0]) is torch.nn.Linear
    with pytest.raises(TypeError, match=f"^{message}"):
        pl.nn.AnalogLSTM(3, 2, config=given)
    with pytest.raises(TypeError, match=f"^{message}"):
        pl.Tile(3, 2, given)
    with pytest.raises(TypeError, match=f"^layer '0': {message}"):
        pl.convert_to_analog(model, lambda *_: given)


@pytest.mark.parametrize("argument", ["exclude", "untie"])
@pytest.mark.parametrize("given", [5, None, "0"])
def test_names_of_layers_are_lists(argument: str, given: object) -> None:
    options: dict[str, Any] = {argument: given}
    message = rf"{argument} = '?{given}'?: give a list of names, such as \['layer'\]"
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    for call in (pl.convert_to_analog, pl.model_memory):
        with pytest.raises(TypeError, match=message):
            call(model, SETTINGS, **options)


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: pl.nn.AnalogLinear(3, 2, seed=1), (4, 3)),
    "convolution": (lambda: pl.nn.AnalogConv2d(3, 2, 2, seed=1), (1, 3, 4, 4)),
    "recurrent": (lambda: pl.nn.AnalogLSTM(3, 2, seed=1), (5, 1, 3)),
}


@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_inputs_of_layers_are_tensors_of_numbers(
    make: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    layer = make()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    refused: dict[str, tuple[Any, str]] = {
        "array": (np.ones(shape, np.float32), r"x is of type ndarray: .*torch\.from_numpy\(x\)"),
        "list": ([1.0], "x is of type list: give a tensor of torch"),
        "None": (None, "x is of type NoneType: give a tensor of torch"),
        "text": ("x", "x is of type str: give a tensor of torch"),
        "whole numbers": (torch.ones(shape, dtype=torch.int32), "x has type torch.int32"),
        "double": (torch.ones(shape, dtype=torch.float64), "x has type torch.float64"),
    }
    for given, message in refused.values():
        with pytest.raises(TypeError, match=message):
            layer(given)
    after = layer.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("kind", [pl.SingleConfig, pl.InferenceConfig])
def test_weights_that_are_written_are_tensors_of_real_numbers(kind: type[Any]) -> None:
    layer: Any = pl.nn.AnalogLinear(3, 2, config=kind(), seed=1)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    weight, bias = torch.full((2, 3), 0.1), torch.ones(2)
    refused: list[tuple[Any, Any, str]] = [
        (weight.numpy(), bias, "weight is of type ndarray: give a tensor of torch"),
        (None, bias, "weight is of type NoneType"),
        (weight * 1j, bias, r"weight has type torch.complex64: .*; give weight\.real"),
        (weight, bias.numpy(), "bias is of type ndarray"),
        (weight, bias * 1j, "bias has type torch.complex64"),
        (weight.to("meta"), bias, "weight is on the meta device"),
    ]
    for weights, biases, message in refused:
        with pytest.raises((TypeError, ValueError), match=message):
            layer.set_weights(weights, biases)
    after = layer.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("device", [None, 0, torch.device("cpu")])
def test_the_device_of_a_tile_is_a_text(device: Any) -> None:  # noqa: ANN401 - of wrong types
    with pytest.raises(TypeError, match=r"^device = .*: write 'cpu', 'cuda' or 'cuda:<number>'$"):
        pl.Tile(3, 2, device=device)
