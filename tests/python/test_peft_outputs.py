"""Merged and saved adapters compute what the model computes, or are refused."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import pulsora as pl
from conftest import PERFECT
from peft_files import ARRAYS, LRTT, MODES, Net, inputs, write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPANS: dict[str, dict[str, Any]] = {
    "digital_base": {"config": pl.IdealConfig()},
    "analog_base": {"config": LRTT},
    "analog_base, layer": {"config": LRTT.replace(adapter_span="layer")},
    "analog_base, beside": {"adapter_span": "layer", "config": ARRAYS, "base_config": ARRAYS},
    "analog_base_digital_adapter": {"base_config": ARRAYS},
}


def lrtt_layer(**options: Any) -> Any:  # noqa: ANN401 - its tiles are used
    """A layer with an adapter in its tile that has learned."""
    torch.manual_seed(0)
    layer = pl.nn.AnalogLinear(
        16, 8, config=LRTT, weight_scaling="abs_max", seed=1, threads=1, **options
    )
    for tile in layer.tiles:
        assert tile.adapter is not None
        tile.adapter.a = (0.4 * torch.randn(tile.adapter.a.shape)).numpy()
        tile.adapter.b = (0.4 * torch.randn(tile.adapter.b.shape)).numpy()
    return layer


def distance(made: nn.Module, model: nn.Module, x: torch.Tensor) -> float:
    """|made(x) - model(x)| / |model(x)|."""
    with torch.no_grad():
        return float((made(x) - model(x)).norm() / model(x).norm())


@pytest.mark.parametrize("gate", [None, -1.0, 0.0, 0.5])
@pytest.mark.parametrize("digital_bias", [True, False])
@pytest.mark.parametrize("cut", [{}, {"max_input_size": 5, "max_output_size": 3}])
def test_learned_scales_gates_and_biases_in_cells_are_merged_and_saved(
    gate: float | None, digital_bias: bool, cut: dict[str, int], tmp_path: Path
) -> None:
    layer = lrtt_layer(learn_out_scaling=True, digital_bias=digital_bias, **cut)
    wrapped = layer if gate is None else pl.nn.GatedAdapter(layer, gate=gate)
    model, x = nn.Sequential(wrapped), torch.randn(6, 16)
    # The model whose weights are what the array holds without the adapter.
    plain = nn.Sequential(nn.Linear(16, 8))
    bare = copy.deepcopy(layer)
    for tile in bare.tiles:
        tile.adapter.a = 0.0 * tile.adapter.a
    weight, bias = bare.get_weights()
    plain.load_state_dict({"0.weight": weight, "0.bias": bias})
    report = pl.peft.save_adapter(model, tmp_path, rank=8 if cut else None)
    assert report.error < 1e-6
    loaded = pl.peft.load_adapter(plain, tmp_path, config=pl.IdealConfig()).model
    assert distance(loaded, model, x) < 1e-5
    layer.out_scaling.data.fill_(1.5)
    assert distance(pl.peft.merge_adapters(model), model, x) < 1e-6
    with pytest.raises(ValueError, match=r"layer '0' has learned its out_scaling"):
        pl.peft.save_adapter(model, tmp_path)
    report = pl.peft.save_adapter(model, tmp_path, base=plain, rank=8)
    assert report.error < 1e-6
    loaded = pl.peft.load_adapter(plain, tmp_path, config=pl.IdealConfig()).model
    assert distance(loaded, model, x) < 1e-5


def test_factors_are_loaded_below_a_learned_scale(tmp_path: Path) -> None:
    deltas = write_file(tmp_path)
    torch.manual_seed(0)
    model: Any = pl.convert_to_analog(
        Net(), lambda n, _: LRTT.replace(rank=3 if "mix" in n else 2, ab_lr_scale="alpha",
        rank_scaling="none", lora_alpha=5.0) if "block" in n else None,
        weight_scaling="abs_max", learn_out_scaling=True, seed=1,
    )  # fmt: skip
    layer = model.block["q_proj"]
    layer.out_scaling.data.fill_(2.0)
    before = layer.get_weights()[0]
    with pytest.raises(ValueError, match=r"layer 'block.\w+' is analog already, with an alpha of"):
        pl.peft.load_adapter(model, tmp_path, "analog_base", config=LRTT)
    # With the alpha that the file needs, the error is that of the whole change.
    layers = pl.peft.load._for_tiles
    plan = pl.peft.attach.Plan.of("analog_base", LRTT, None, "tile")
    wanted = pl.peft.files.read_adapter(tmp_path).factors["block.q_proj"]
    scaled = layers(model, "block.q_proj", wanted, plan, {})
    (tile,) = layer.tiles
    fitting = scaled._replace(a=scaled.a * (scaled.alpha / 5.0), alpha=5.0)
    row = pl.peft.load._write("block.q_proj", layer, fitting, wanted)
    change = layer.get_weights()[0] - before + pl.peft.changes.change_of_tiles(layer) * 0.0
    assert row.error < 1e-5
    torch.testing.assert_close(change, deltas["block.q_proj"], rtol=1e-4, atol=1e-4)
    assert tile.adapter is not None


HOOKS: dict[str, Callable[[nn.Module], object]] = {
    "forward": lambda layer: layer.register_forward_hook(lambda _l, _x, y: 2.0 * y + 1.0),
    "named": lambda layer: layer.register_forward_hook(
        lambda _l, _x, _named, y: 2.0 * y, with_kwargs=True
    ),
    "before": lambda layer: layer.register_forward_pre_hook(lambda _l, x: (0.5 * x[0],)),
}


@pytest.mark.parametrize("mode", SPANS)
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_mean_the_same_in_every_mode_and_stay(hook: str, mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 8))
    x = torch.randn(4, 16)
    first = pl.peft.add_adapters(net, rank=2, config=pl.IdealConfig())
    first[0].set_factors(torch.randn(8, 2), torch.randn(2, 16))  # type: ignore[index]
    pl.peft.save_adapter(first, tmp_path)
    HOOKS[hook](net[0])
    digital = pl.peft.load_adapter(net, tmp_path, config=pl.IdealConfig()).model
    made = pl.peft.load_adapter(net, tmp_path, mode.partition(",")[0], seed=1, **SPANS[mode]).model
    assert distance(made, digital, x) < 1e-5
    HOOKS[hook](made[0])  # type: ignore[index] # one more, on the adapted layer
    assert distance(pl.peft.merge_adapters(made), made, x) < 1e-6
    if "digital" in mode:
        assert distance(pl.convert_to_digital(made), made, x) < 1e-6
    with pytest.warns(UserWarning, match=r"no place for hooks of '0' that change outputs"):
        report = pl.peft.save_adapter(made, tmp_path)
    assert report.missing == ("hooks of '0' that change outputs",)
    assert "not in the file" in str(report)


def test_a_hook_on_the_base_that_changes_outputs_is_refused(tmp_path: Path) -> None:
    made: Any = pl.peft.add_adapters(nn.Sequential(nn.Linear(16, 8)), rank=2, config=ARRAYS)
    made[0].set_factors(torch.randn(8, 2), torch.randn(2, 16))
    seen = []
    made[0].base.register_forward_hook(lambda *given: seen.append(given[0]))
    x = torch.randn(4, 16)
    merged: Any = pl.peft.merge_adapters(made)  # a hook that looks on
    assert distance(merged, made, x) < 1e-6
    assert seen[-1] is made[0].base
    pl.peft.save_adapter(made, tmp_path)
    made[0].base.register_forward_hook(lambda _l, _x, y: 2.0 * y)
    with pytest.raises(ValueError, match=r"layer '0': on random inputs, its outputs would change"):
        pl.peft.merge_adapters(made)
    with pytest.raises(ValueError, match=r"layer '0': hooks on its base change outputs"):
        pl.peft.save_adapter(made, tmp_path)


class Half(nn.Linear):
    """A layer that computes something else with its weight than x W^T + bias."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


class Quantised(nn.Module):
    """A layer with whole numbers as weights, and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.in_features, self.out_features = 16, 8
        own = torch.randint(-9, 9, (8, 16), dtype=torch.int8)
        self.weight = nn.Parameter(own, requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(0.01))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.scale * self.weight).T


BASES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "own forward": (lambda: Half(16, 8), "would change by 0.5 of .* a Half"),
    "whole numbers": (Quantised, "has type torch.int8"),
    "weight_norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)),
        "a ParametrizedLinear, is computed",
    ),
    "quantised": (lambda: torch.ao.nn.quantized.dynamic.Linear(16, 8), "Linear, is computed"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", [None, ARRAYS])
@pytest.mark.parametrize("kind", BASES)
def test_bases_that_compute_something_else_are_not_merged_but_saved(
    kind: str, config: pl.TileConfig | None, tmp_path: Path
) -> None:
    build, message = BASES[kind]
    adapter = pl.nn.GatedAdapter(build(), rank=2, config=config, seed=1)
    a, b = torch.randn(8, 2), torch.randn(2, 16)
    adapter.set_factors(a, b)
    model = nn.Sequential(adapter)
    with pytest.raises(ValueError, match=rf"layer '0'.*{message}"):
        pl.peft.merge_adapters(model)
    report = pl.peft.save_adapter(model, tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    change = report[0].alpha * (
        saved["base_model.model.0.lora_B.weight"] @ saved["base_model.model.0.lora_A.weight"]
    )
    torch.testing.assert_close(change, adapter.alpha * a @ b, rtol=1e-4, atol=1e-4)


def test_gates_of_other_classes_are_compared(tmp_path: Path) -> None:
    class Squared(pl.nn.ConstantGate):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weights + x.square().mean(-1, keepdim=True)

    adapter = pl.nn.GatedAdapter(nn.Linear(16, 8), rank=2, gate=Squared(1.0))
    adapter.set_factors(torch.randn(8, 2), torch.randn(2, 16))
    model = nn.Sequential(adapter)
    for way in (pl.peft.merge_adapters, lambda m: pl.peft.save_adapter(m, tmp_path)):
        with pytest.raises(ValueError, match=r"layer '0': on random inputs, its outputs would"):
            way(model)
    assert not list(tmp_path.iterdir())


def test_factors_that_have_no_part_are_not_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    write_file(tmp_path)
    with pytest.raises(ValueError, match=r"layer 'block.q_proj': on random inputs, its outputs"):
        pl.peft.load_adapter(
            Net(), tmp_path, "analog_base", config=LRTT.replace(forward_inject=False)
        )


def test_layers_with_another_forward_have_no_array() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    own: Any = net[1]
    own.forward = lambda x: 2.0 * nn.functional.linear(x, own.weight, own.bias)
    x = inputs()
    with pytest.warns(UserWarning, match=r"1 \(Linear: its forward was replaced by another"):
        analog = pl.convert_to_analog(net, pl.IdealConfig(), seed=1)
    assert distance(analog, net, x) < 1e-5
    for mode in ("analog_base", "analog_base_digital_adapter"):
        with pytest.raises(ValueError, match=r"layer '1' cannot be in an array: its forward was"):
            pl.peft.add_adapters(net, mode, rank=2)
    adapted = pl.peft.add_adapters(net, rank=2, config=pl.IdealConfig())
    assert distance(adapted, net, x) < 1e-6


def test_adapters_in_adapters_and_shared_bases() -> None:
    inner = pl.nn.GatedAdapter(nn.Linear(16, 8), rank=2)
    nested = nn.Sequential(pl.nn.GatedAdapter(inner, rank=2))
    for way in (pl.peft.merge_adapters, lambda m: pl.peft.save_adapter(m, "unused")):
        with pytest.raises(ValueError, match=r"layer '0' has an adapter in the base of its"):
            way(nested)
    base = nn.Linear(8, 8)
    model: Any = nn.Sequential(pl.nn.GatedAdapter(base, 2), pl.nn.GatedAdapter(base, 2))
    for each in model:
        each.set_factors(torch.randn(8, 2), torch.randn(2, 8))
    assert distance(pl.peft.merge_adapters(model), model, torch.randn(3, 8)) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_an_alpha_of_zero_stays_zero(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8))
    made = pl.peft.add_adapters(net, rank=2, config=pl.IdealConfig())
    made[0].set_factors(torch.randn(8, 2), torch.randn(2, 6))  # type: ignore[index]
    pl.peft.save_adapter(made, tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lora_alpha": 0}))
    model, report = pl.peft.load_adapter(net, tmp_path, mode, seed=1, threads=1, **MODES[mode])
    assert report[0].alpha == 0.0
    assert report.error < 1e-6
    assert distance(model, net, inputs()) < 1e-5
    optimizer = pl.optim.AnalogSGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        model(inputs()).square().sum().backward()
        optimizer.step()
    assert distance(model, net, inputs()) < 1e-5
    pl.peft.save_adapter(model, tmp_path)
    assert json.loads(path.read_text())["lora_alpha"] == 0


def test_checks_leave_no_trace(tmp_path: Path) -> None:
    """Noise of later reads, modes and gates are those of a model that was not saved."""
    noisy = pl.LRTTConfig(rank=2, transfer_every=0)
    models = [
        nn.Sequential(
            pl.nn.GatedAdapter(
                pl.nn.AnalogLinear(6, 8, config=noisy, seed=1, threads=1), gate=pl.nn.TaskGate(1)
            )
        )
        for _ in range(2)
    ]
    state = torch.get_rng_state()
    pl.peft.save_adapter(models[1], tmp_path, adapter=0)
    assert torch.equal(state, torch.get_rng_state())
    pl.peft.merge_adapters(models[1], adapter=0)
    assert isinstance(models[1][0].gate, pl.nn.TaskGate)
    assert models[1].training
    x = torch.randn(4, 6)
    assert torch.equal(models[0](x), models[1](x))


def test_low_precision_is_not_taken_for_a_fault(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 64)).to(dtype)
        for mode, given in SPANS.items():
            if "beside" in mode or "layer" in mode:
                continue
            made: Any = pl.peft.add_adapters(net, mode, rank=2, seed=1, threads=1, **given)
            if isinstance(made[0], pl.nn.GatedAdapter):
                made[0].set_factors(torch.randn(64, 2), torch.randn(2, 64))
            merged = pl.peft.merge_adapters(made)
            assert merged[0].weight.dtype == dtype  # type: ignore[index, union-attr]
            pl.peft.save_adapter(made, tmp_path)


def test_noisy_reads_are_not_taken_for_a_fault(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 8))
    for mode in MODES:
        made: Any = pl.peft.add_adapters(net, mode, rank=2, seed=1, threads=1)
        pl.peft.merge_adapters(made)
        assert pl.peft.save_adapter(made, tmp_path).error == 0.0
    assert PERFECT
