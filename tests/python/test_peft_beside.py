"""Parameters that are trained beside an adapter, in files of PEFT and of Pulsora."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import pulsora as pl
from peft_files import ARRAYS, LRTT, MODES, Net, inputs, write_file
from transformer_models import bert

if TYPE_CHECKING:
    from pathlib import Path

peft: Any = pytest.importorskip("peft")
IDEAL: dict[str, dict[str, Any]] = MODES | {"digital_base": {"config": pl.IdealConfig()}}


class Body(nn.Module):
    """A model whose body gets adapters, with a head, a norm and a scale."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.ModuleDict({"q_proj": nn.Linear(6, 8), "norm": nn.LayerNorm(8)})
        self.mid = nn.Linear(8, 8)
        self.head = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body["norm"](self.body["q_proj"](x))
        y: torch.Tensor = self.head(self.mid(h)) * self.scale
        return y


@torch.no_grad()
def shift(model: nn.Module) -> None:
    """Changes all trainable tensors of torch."""
    torch.manual_seed(3)
    for parameter in model.parameters():
        if parameter.requires_grad and not isinstance(parameter, pl.nn.AnalogParameter):
            parameter.add_(0.3 * torch.randn_like(parameter))


SETTINGS: dict[str, dict[str, Any]] = {
    "head": {"modules_to_save": ["head"]},
    "norm": {"modules_to_save": ["norm"], "bias": "all"},
    "own biases": {"bias": "lora_only"},
    "all biases": {"bias": "all"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("settings", list(SETTINGS.values()), ids=list(SETTINGS))
def test_modules_and_biases_of_peft_are_loaded_as_peft_does(
    settings: dict[str, Any], mode: str, tmp_path: Path
) -> None:
    theirs = peft.get_peft_model(
        Body(), peft.LoraConfig(r=2, target_modules=["q_proj"], **settings)
    )
    shift(theirs)
    theirs.eval().save_pretrained(tmp_path)
    ours, report = pl.peft.load_adapter(Body(), tmp_path, mode, seed=1, **IDEAL[mode])
    torch.testing.assert_close(ours(inputs()), theirs(inputs()), rtol=1e-4, atol=1e-5)
    assert report.beside
    trained = {
        name.replace(".base.", ".") for name, p in ours.named_parameters() if p.requires_grad
    }
    assert {name for name in report.beside if not name.startswith("body.q_proj")} <= trained
    merged = pl.peft.merge_adapters(ours)
    torch.testing.assert_close(merged(inputs()), theirs(inputs()), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_classifier_of_peft_is_loaded(tmp_path: Path) -> None:
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    theirs = peft.get_peft_model(bert(), config)
    shift(theirs)
    theirs.eval().save_pretrained(tmp_path)
    ids = torch.randint(40, (3, 8), generator=torch.Generator().manual_seed(1))
    for mode, given in IDEAL.items():
        ours, report = pl.peft.load_adapter(bert(), tmp_path, mode, seed=1, threads=1, **given)
        assert sorted(report.beside) == ["classifier.bias", "classifier.weight"]
        torch.testing.assert_close(
            ours.eval()(input_ids=ids).logits, theirs(input_ids=ids).logits, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("trainable", "setting"),
    [
        (["head"], ("modules_to_save", ["head.0", "head.2"])),
        (["body.norm", "mid"], ("modules_to_save", ["body.norm", "mid"])),
        (["body.q_proj"], ("bias", "lora_only")),
    ],
)
def test_peft_reads_what_was_trained_beside_an_adapter(
    trainable: list[str], setting: tuple[str, object], mode: str, tmp_path: Path
) -> None:
    ours = pl.peft.add_adapters(
        Body(), mode, rank=2, targets=["q_proj"], trainable=trainable, seed=1, **IDEAL[mode]
    )
    shift(ours)
    layer: Any = ours.get_submodule("body.q_proj")
    if mode == "analog_base":
        (tile,) = layer.tiles
        tile.adapter.a = (0.3 * torch.randn(8, 2)).numpy()
    else:
        layer.set_factors(0.3 * torch.randn(8, 2), layer.factors()[1])
    report = pl.peft.save_adapter(ours, tmp_path)
    assert report.beside
    assert not report.missing
    settings = peft.LoraConfig.from_pretrained(tmp_path)
    assert getattr(settings, setting[0]) == (
        set(setting[1]) if isinstance(getattr(settings, setting[0]), set) else setting[1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PEFT warns of missing and unexpected names
        theirs = peft.PeftModel.from_pretrained(Body(), tmp_path).eval()
    torch.testing.assert_close(theirs(inputs()), ours(inputs()), rtol=1e-4, atol=1e-5)
    again = pl.peft.load_adapter(Body(), tmp_path, seed=2, config=pl.IdealConfig()).model
    torch.testing.assert_close(again(inputs()), ours(inputs()), rtol=1e-4, atol=1e-5)


def test_parameters_without_a_module_of_their_own_go_along(tmp_path: Path) -> None:
    ours = pl.peft.add_adapters(Body(), rank=2, targets=["q_proj"], config=pl.IdealConfig())
    ours.scale.requires_grad_()  # type: ignore[operator, union-attr]
    shift(ours)
    assert pl.peft.save_adapter(ours, tmp_path).beside == ("scale",)
    theirs = peft.PeftModel.from_pretrained(Body(), tmp_path).eval()
    torch.testing.assert_close(theirs(inputs()), ours(inputs()))
    again, report = pl.peft.load_adapter(Body(), tmp_path, config=pl.IdealConfig())
    assert report.beside == ("scale",)
    torch.testing.assert_close(again(inputs()), ours(inputs()))
    assert "scale" in str(report)


def test_with_a_base_all_that_differs_goes_along(tmp_path: Path) -> None:
    base = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    ours = pl.peft.add_adapters(base, rank=2, targets=["0"], config=pl.IdealConfig())
    ours.train()(torch.randn(9, 6))  # moves the running statistics
    assert pl.peft.save_adapter(ours, tmp_path).beside == ()
    report = pl.peft.save_adapter(ours, tmp_path, base=base)
    names = ("1.running_mean", "1.running_var", "1.num_batches_tracked")
    assert report.beside == names
    again = pl.peft.load_adapter(base, tmp_path, config=pl.IdealConfig()).model.eval()
    torch.testing.assert_close(again(inputs()), ours.eval()(inputs()))


def test_weights_that_nobody_trained_have_to_be_the_model_s(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net()
    write_file(tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    head = torch.full((3, 5), 0.5)
    save_file(load_file(path) | {"base_model.model.head.weight": head}, path)
    with pytest.raises(ValueError, match=r"'head.weight' .* differs .* load_modules = True"):
        pl.peft.load_adapter(model, tmp_path, config=ARRAYS)
    loaded = pl.peft.load_adapter(model, tmp_path, config=ARRAYS, load_modules=True)
    assert loaded.report.beside == ("head.weight",)
    assert torch.equal(loaded.model.head.weight, head)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(model.head.weight, head)


@pytest.mark.parametrize(
    ("settings", "tensors", "message"),
    [
        ({"modules_to_save": ["head"]}, {"head.bias": torch.ones(3)},
         r"'head.weight' was trained, but it is not in the file"),
        ({"bias": "all"}, {"head.bias": torch.ones(4)}, r"'head.bias' has shape \[4\]"),
        ({"bias": "all"}, {"tail.bias": torch.ones(4)}, r"more than factors .* 'tail.bias'"),
        ({"bias": "all"}, {"head.bias": torch.full((3,), torch.nan)}, "not finite"),
        ({"bias": "all"}, {"head.bias": torch.ones(3, dtype=torch.int8)}, "type torch.int8"),
        ({"bias": "some"}, {}, "bias = 'some' must be"),
        ({"modules_to_save": "head"}, {}, "modules_to_save = 'head' must be a list"),
    ],
)  # fmt: skip
def test_files_that_do_not_hold_what_they_say_are_refused(
    settings: dict[str, Any], tensors: dict[str, torch.Tensor], message: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Net()
    write_file(tmp_path, **settings)
    path = tmp_path / "adapter_model.safetensors"
    save_file(
        load_file(path) | {f"base_model.model.{name}": value for name, value in tensors.items()},
        path,
    )
    with pytest.raises(ValueError, match=message):
        pl.peft.load_adapter(model, tmp_path, config=ARRAYS)


def test_a_tied_weight_is_not_loaded_into_the_other_layer(tmp_path: Path) -> None:
    class Tied(Net):
        def __init__(self) -> None:
            super().__init__()
            self.tail = nn.Linear(5, 3)
            self.tail.weight = self.head.weight

    model = Tied()
    write_file(tmp_path, modules_to_save=["head"])
    path = tmp_path / "adapter_model.safetensors"
    own = {f"base_model.model.head.{n}": v + 1.0 for n, v in model.head.state_dict().items()}
    save_file(load_file(path) | own, path)
    with pytest.raises(ValueError, match=r"'head.weight'\], which is tied to \['tail.weight'\]"):
        pl.peft.load_adapter(model, tmp_path, config=ARRAYS)


@pytest.mark.parametrize("kind", ["convolution", "lstm"])
@pytest.mark.parametrize("options", [{}, {"digital_bias": False, "max_input_size": 2}])
def test_adapters_in_tiles_of_other_layers_go_along_frozen_or_not(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Files have no factors for convolutions and recurrent layers, but their weights."""
    torch.manual_seed(0)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            is_lstm = kind == "lstm"
            self.body: Any = nn.LSTM(4, 4) if is_lstm else nn.Conv1d(5, 5, 3, padding=1)
            self.last = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x)
            y: torch.Tensor = self.last(h[0] if isinstance(h, tuple) else h)
            return y

    plain, x = Both(), torch.randn(5, 5, 4)
    config = LRTT.replace(rank=1)
    model = pl.convert_to_analog(plain, config, seed=1, threads=1, **options)
    for layer in model.modules():
        for tile in layer.tiles if isinstance(layer, pl.nn.AnalogModule) else ():
            assert tile.adapter is not None
            tile.adapter.a = 0.3 * torch.randn(tile.adapter.a.shape).numpy()
    model.requires_grad_(requires_grad=False)
    report = pl.peft.save_adapter(model, tmp_path, rank=3)
    assert any(name.startswith("body.weight") for name in report.beside)
    loaded = pl.peft.load_adapter(plain, tmp_path, config=pl.IdealConfig()).model
    torch.testing.assert_close(loaded(x), model(x), rtol=1e-4, atol=1e-4)
