"""Analog layers behave as modules of torch, or say that they cannot."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora.nn import AnalogConv2d, AnalogLinear, replayed_reads
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDEAL = pl.IdealConfig(
    forward=pl.IOParameters(is_perfect=True), backward=pl.IOParameters(is_perfect=True)
)

NOISY = pl.SingleConfig(device=pl.devices.ConstantStep(w_max=1.0, w_min=-1.0))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


# The weights are in the tiles, and a copy is not taken for them


WRITES: dict[str, Callable[[AnalogLinear], object]] = {
    "xavier_uniform_": lambda layer: nn.init.xavier_uniform_(layer.weight),
    "kaiming_normal_": lambda layer: nn.init.kaiming_normal_(layer.weight),
    "zeros_": lambda layer: nn.init.zeros_(layer.weight),
    "data.fill_": lambda layer: layer.weight.data.fill_(1.0),
    "copy_": lambda layer: layer.weight.copy_(torch.ones(3, 4)),
    "view": lambda layer: layer.weight.view(-1).mul_(2.0),
    "item": lambda layer: layer.weight.__setitem__((0, 0), 1.0),
    "+=": lambda layer: layer.weight.__iadd__(1.0),
    "out": lambda layer: torch.add(torch.ones(3, 4), 1.0, out=layer.weight),
    "data": lambda layer: setattr(layer.weight, "data", torch.ones(3, 4)),
    "freeze": lambda layer: setattr(layer.weight, "requires_grad", False),
    "of the parameter": lambda layer: nn.init.xavier_uniform_(layer.analog_weight),
    "data of the parameter": lambda layer: layer.analog_weight.data.fill_(1.0),
    "data = of the parameter": lambda layer: setattr(layer.analog_weight, "data", torch.ones(3, 4)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_would_not_reach_the_tiles_is_refused(write: Callable[[AnalogLinear], object]) -> None:
    layer = AnalogLinear(4, 3, seed=1)
    before = layer.get_weights()[0]
    with pytest.raises(RuntimeError, match=r"layer\.set_weights\("):
        write(layer)
    assert torch.equal(layer.get_weights()[0], before)


def test_a_model_s_own_initialisation_does_not_pass_over_tiles() -> None:
    def initialise(layer: nn.Module) -> None:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)

    with pytest.raises(RuntimeError, match="does not reach the tiles"):
        nn.Sequential(AnalogLinear(4, 3)).apply(initialise)


def test_the_remedy_of_the_message_works() -> None:
    layer = AnalogLinear(4, 3, config=IDEAL)
    wanted = nn.init.ones_(layer.weight.clone())
    layer.set_weights(wanted, torch.zeros(3))
    assert torch.equal(layer.weight, wanted)


def test_a_copy_reads_as_any_tensor() -> None:
    layer = AnalogLinear(4, 3, config=IDEAL, bias=False, seed=1)
    plain, x = layer.get_weights()[0], random(2, 4)
    assert type(plain) is torch.Tensor
    assert type(layer.weight * 2.0) is torch.Tensor
    assert torch.equal(x @ layer.weight.T, x @ plain.T)
    assert np.array_equal(layer.weight.numpy(), plain.numpy())
    assert not layer.weight.numpy().flags.writeable
    assert torch.equal(copy.deepcopy(layer.weight), plain)
    file = io.BytesIO()
    torch.save(layer.weight, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True), plain)


def test_weights_are_not_assigned_and_tiles_can_be_shared() -> None:
    one, other = AnalogLinear(4, 4, config=IDEAL, seed=1), AnalogLinear(4, 4, config=IDEAL, seed=2)
    with pytest.raises(AttributeError, match=r"one\.analog_weight = other\.analog_weight"):
        one.weight = other.weight
    with pytest.raises(AttributeError, match="set_weights"):
        one.weight = nn.Parameter(torch.zeros(4, 4))
    one.analog_weight = other.analog_weight
    model = nn.Sequential(one, other)
    assert sum(p.numel() for p in model.parameters()) == 4 + 4 + 16
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    before = one.get_weights()[0]
    model(random(2, 4)).sum().backward()
    optimizer.step()
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, before)


def test_a_function_given_the_copy_is_refused() -> None:
    layer = AnalogLinear(4, 3)
    with pytest.raises(RuntimeError, match="call the layer itself"):
        nn.functional.linear(random(2, 4), layer.weight, layer.bias)


# Types and devices


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_inputs_that_are_no_floating_point_numbers_are_refused(kind: torch.dtype) -> None:
    with pytest.raises(TypeError, match="give floating-point values"):
        AnalogLinear(4, 3)(torch.ones(2, 4).to(kind))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast_gives_its_type_of_a_product_in_single_precision(kind: torch.dtype) -> None:
    layer = AnalogLinear(4, 3, config=IDEAL, seed=1)
    digital = pl.convert_to_digital(layer)
    x = random(5, 4)
    with torch.autocast("cpu", dtype=kind):
        y, reference = layer(x), digital(x)
        y.sum().backward()
        assert layer(x.to(kind)).dtype == digital(x.to(kind)).dtype
        assert layer(x.double()).dtype == torch.float64
    assert y.dtype == reference.dtype == kind
    assert torch.equal(y, layer(x).to(kind))
    assert layer.analog_weight.grad.dense().dtype == torch.float32


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_layers_of_other_types_have_tiles_of_their_own(kind: torch.dtype) -> None:
    layer = AnalogLinear(4, 3, seed=1)
    before = layer.weight
    layer.to(kind)
    assert layer.bias.dtype == kind
    assert torch.equal(layer.weight, before)
    y = layer(random(2, 4).to(kind))
    assert y.dtype == kind
    y.sum().backward()
    assert layer.bias.grad.dtype == kind


def test_meta_and_shared_memory_are_refused() -> None:
    layer = AnalogLinear(4, 3)
    with pytest.raises(ValueError, match="cannot be on the meta device"):
        layer.to("meta")
    with pytest.raises(ValueError, match="cannot be on the meta device"), torch.device("meta"):
        AnalogLinear(4, 3)
    with pytest.raises(RuntimeError, match="cannot be shared between processes"):
        layer.share_memory()
    assert layer.bias.device.type == "cpu"


def test_a_layer_is_where_torch_puts_layers() -> None:
    with torch.device("cpu"):
        layer = AnalogLinear(4, 3, seed=1)
    assert {p.device for p in layer.parameters()} == {torch.device("cpu")}
    assert layer.weight.device == torch.device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(pl.DeviceError):
            AnalogLinear(4, 3, device="cuda")


# Gradient checkpointing


# Pulsed weights, and two kinds that are parameters of torch.
TRAINED = {
    "pulsed": pl.SingleConfig(),
    "hardware-aware": pl.InferenceConfig(modifier="add_normal", modifier_std=0.1),
    "mixed precision": pl.MixedPrecisionConfig(),
}


def block(config: pl.config.TileConfig = TRAINED["pulsed"]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        AnalogLinear(4, 6, config=config, seed=1, max_input_size=2),
        nn.Dropout(0.3),
        AnalogLinear(6, 4, config=config, seed=2),
    )


def trained(
    run: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    config: pl.config.TileConfig = TRAINED["pulsed"],
) -> list[Any]:
    """Losses, weights and counters of some training."""
    model = block(config)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    seen: list[Any] = []
    torch.manual_seed(1)
    for step in range(3):
        optimizer.zero_grad()
        x = random(5, 4, seed=step).requires_grad_()
        loss = run(model, run(model, x)).square().sum()
        loss.backward()
        optimizer.step()
        seen += [loss.item(), x.grad.tolist()]
    for layer in (model[0], model[2]):
        seen += [layer.weight.tolist(), [tile.counters for tile in layer.tiles]]
    return seen


def checkpointed(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = checkpoint(model, x, use_reentrant=False, context_fn=replayed_reads)
    return y


@pytest.mark.parametrize("config", TRAINED.values(), ids=TRAINED)
def test_a_checkpointed_part_reads_again_what_it_read(config: pl.config.TileConfig) -> None:
    plain = trained(lambda model, x: model(x), config)
    assert trained(checkpointed, config) == plain


def test_checkpoints_may_be_nested() -> None:
    def nested(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        def part(z: torch.Tensor) -> torch.Tensor:
            z = checkpointed(model[0], z)
            return checkpointed(model[1:], z)  # type: ignore[index]

        return checkpoint(part, x, use_reentrant=False, context_fn=replayed_reads)

    assert trained(nested) == trained(lambda model, x: model(x))


@pytest.mark.parametrize("config", TRAINED.values(), ids=TRAINED)
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.filterwarnings("ignore:a layer of InferenceConfig is evaluated")
def test_checkpoints_that_would_read_other_noise_are_refused(
    use_reentrant: bool, config: pl.config.TileConfig
) -> None:
    model = block(config)
    loss = checkpoint(model, random(5, 4).requires_grad_(), use_reentrant=use_reentrant).sum()
    with pytest.raises(RuntimeError, match=r"context_fn=pulsora\.nn\.replayed_reads"):
        loss.backward()


def test_reads_that_depend_on_earlier_ones_are_not_repeated() -> None:
    periphery = pl.IOParameters(noise_management="average_abs_max")
    layer = AnalogLinear(4, 3, config=pl.SingleConfig(forward=periphery))
    loss = checkpointed(layer, random(5, 4).requires_grad_()).sum()
    with pytest.raises(pl.ConfigError, match="average_abs_max"):
        loss.backward()


# Tracing, copies, averages, data-parallel training


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_models_train_to_the_bit() -> None:
    def result(*, compiled: bool) -> list[torch.Tensor]:
        model = nn.Sequential(AnalogLinear(4, 3, seed=1), nn.Tanh(), AnalogLinear(3, 2, seed=2))
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        run = torch.compile(model, backend="eager") if compiled else model
        for step in range(3):
            optimizer.zero_grad()
            run(random(5, 4, seed=step)).square().sum().backward()
            optimizer.step()
        return [model[0].weight, model[2].weight, run(random(5, 4))]

    torch._dynamo.reset()
    for ours, reference in zip(result(compiled=True), result(compiled=False), strict=True):
        assert torch.equal(ours, reference)


def test_tracers_that_would_note_one_read_are_refused() -> None:
    torch._dynamo.reset()
    model, x = nn.Sequential(AnalogLinear(4, 3), nn.ReLU()), random(2, 4)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="an analog layer cannot be traced"):
        torch.compile(model, backend="eager", fullgraph=True)(x)
    with pytest.raises(RuntimeError, match="an analog layer cannot be traced"):
        torch.export.export(model, (x,))
    with pytest.raises(RuntimeError, match=r"torch.func .* is not available for an analog layer"):
        torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(
            dict(model.named_parameters())
        )


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torch_jit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="an analog layer cannot be traced"):
        torch.jit.trace(AnalogLinear(4, 3), random(2, 4))


def test_copies_of_a_model_have_gradients_and_tiles_of_their_own(tmp_path: Path) -> None:
    model = block().eval()
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    model(random(5, 4)).sum().backward()
    torch.save(model, tmp_path / "model.pt")
    twins = [copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)]
    optimizer.step()
    for twin in twins:
        assert twin[0].analog_weight.grad is None
        assert not torch.equal(twin[0].weight, model[0].weight)
        twin(random(5, 4)).sum().backward()
        AnalogSGD(twin.parameters(), lr=0.1).step()
    assert torch.equal(twins[0][0].weight, twins[1][0].weight)


def test_averages_are_refused_and_their_remedy_works() -> None:
    model = nn.Sequential(AnalogLinear(4, 3, config=IDEAL, seed=1))
    averaged = AveragedModel(model)
    with pytest.raises(RuntimeError, match=r"average those of pulsora\.convert_to_digital"):
        averaged.update_parameters(model)
    averaged = AveragedModel(pl.convert_to_digital(model))
    sums = torch.zeros(3, 4)
    for value in (1.0, 2.0):
        model[0].set_weights(torch.full((3, 4), value), torch.zeros(3))
        averaged.update_parameters(pl.convert_to_digital(model))
        sums += model[0].weight
    torch.testing.assert_close(averaged.module[0].weight.detach(), sums / 2.0)


def test_distributed_data_parallel_takes_prepared_models_alone(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        with pytest.raises(
            RuntimeError,
            match=r"DistributedDataParallel takes models that pulsora\.distributed\.prepare",
        ):
            nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), AnalogLinear(4, 3)))
    finally:
        torch.distributed.destroy_process_group()


# Arguments, messages


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: AnalogLinear(4, 3, rpu_config=IDEAL), TypeError,
         "'rpu_config'; it is called config"),
        (lambda: AnalogLinear(4, 3, dtype=torch.half), TypeError, "'dtype'; tiles are in single"),
        (lambda: AnalogConv2d(4, 3, 1, seeds=1), TypeError, "AnalogConv2d .*did you mean 'seed'"),
        (lambda: AnalogConv2d(4, 4, 1, 1, 0, 1, 2),  # type: ignore[arg-type]
         TypeError, "bias = 2: write True or False"),
        (lambda: AnalogLinear(4, 4, groups=2), TypeError, "multiple values for argument 'groups'"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_exist_are_explained(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_kernels_may_be_given_in_the_shape_of_torch() -> None:
    digital = nn.Conv2d(3, 4, (3, 2))
    layer = AnalogConv2d(3, 4, (3, 2), config=IDEAL)
    layer.set_weights(digital.weight, digital.bias)
    x = random(2, 3, 6, 6)
    torch.testing.assert_close(layer(x), digital(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"\[4, 3, 2, 3\]; expected \[4, 18\]"):
        layer.set_weights(torch.zeros(4, 3, 2, 3), digital.bias)


@pytest.mark.parametrize("strict", [True, False])
def test_a_state_of_digital_layers_is_refused_with_a_hint(strict: bool) -> None:
    model = nn.Sequential(AnalogLinear(4, 3, seed=1))
    before = model[0].weight
    with pytest.raises(RuntimeError, match=r"0\.weight is of a digital layer.*convert_to_analog"):
        model.load_state_dict(nn.Sequential(nn.Linear(4, 3)).state_dict(), strict=strict)
    assert torch.equal(model[0].weight, before)
