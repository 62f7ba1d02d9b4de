"""Models that are converted on torch's meta device, and weights read from safetensors files."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import pulsora as pl
from conftest import CARRIERS, PERFECT, require_same_state
from pulsora.nn import AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*lie outside the bounds")
IDEAL = pl.IdealConfig(**PERFECT)


class Conv1D(nn.Module):
    """The Conv1D of transformers, by name."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf) / nx)
        self.bias = nn.Parameter(torch.rand(nf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Net(nn.Module):
    """Layers of all kinds, buffers, shared weights, a table with a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.conv = nn.Conv1d(6, 8, 3, padding=1, groups=2)
        self.wide = nn.Linear(8, 20)
        self.old = Conv1D(6, 20)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.memory = nn.LSTM(6, 6, bidirectional=True)
        self.norm = nn.BatchNorm1d(12)
        self.narrow = nn.Linear(12, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.rand(6))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.wide(self.conv(self.table(ids).transpose(1, 2)).transpose(1, 2))
        h = self.memory(self.second(self.first(self.old(h))))[0]
        y: torch.Tensor = self.head(self.narrow(self.norm(h.flatten(0, 1))) * self.scale)
        return y


IDS = torch.arange(10).reshape(2, 5)


@pytest.fixture(scope="module")
def digital() -> Net:
    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.uniform_(-0.1, 0.1)  # within the bounds of cells
    return model


def on_meta() -> Net:
    with torch.device("meta"):
        return Net().eval()


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state of a model without shared tensors, as files hold it."""
    found, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            found[name] = tensor.contiguous()
        seen.add(tensor.data_ptr())
    return found


def saved(model: nn.Module, folder: Path) -> Path:
    path = folder / "model.safetensors"
    save_file(tensors_of(model), path)
    return path


@pytest.mark.parametrize("config", CARRIERS, ids=lambda each: type(each).__name__)
def test_a_loaded_model_has_the_bits_of_a_converted_one(
    config: pl.TileConfig, digital: Net, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"seed": 5, "max_input_size": 7, "untie": ["head"]}
    converted = pl.convert_to_analog(digital, config, **options)
    model = pl.convert_to_analog(on_meta(), config, **options)
    assert all(
        layer.tiles.awaits_weights for layer in model.modules() if isinstance(layer, AnalogModule)
    )
    told = pl.load_weights(model, saved(digital, tmp_path))
    assert told.missing == told.unexpected == ()
    require_same_state(model, converted)
    assert not any(each.is_meta for each in [*model.parameters(), *model.buffers()])
    assert torch.equal(model(IDS), converted(IDS))


@pytest.mark.parametrize(
    "options", [{"digital_bias": False}, {"weight_scaling": "abs_max", "scaling_per": "output"}]
)
def test_options_of_layers(options: dict[str, Any], digital: Net, tmp_path: Path) -> None:
    options = {"seed": 5, **options}
    options["exclude"] = ["head", "first", "second"]
    converted = pl.convert_to_analog(digital, pl.SingleConfig(), **options)
    model = pl.convert_to_analog(on_meta(), pl.SingleConfig(), inplace=True, **options)
    pl.load_weights(model, saved(digital, tmp_path))
    require_same_state(model, converted)
    assert model.head.weight is model.table.weight


def test_parameters_stay_those_of_the_optimiser(digital: Net, tmp_path: Path) -> None:
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"], seed=1)
    model.norm.weight.requires_grad_(requires_grad=False)
    before = dict(model.named_parameters())
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    pl.load_weights(model, saved(digital, tmp_path))
    after = dict(model.named_parameters())
    assert {name: id(each) for name, each in before.items()} == {
        name: id(each) for name, each in after.items()
    }
    assert not model.norm.weight.requires_grad
    start = model.wide.bias.detach().clone()
    model(IDS).sum().backward()
    optimizer.step()
    assert not torch.equal(model.wide.bias, start)


@pytest.mark.parametrize("kind", ["list", "folder", "index"])
def test_shards(kind: str, digital: Net, tmp_path: Path) -> None:
    found = list(tensors_of(digital).items())
    names = [f"model-0000{part + 1}-of-00003.safetensors" for part in range(3)]
    for part, name in enumerate(names):
        save_file(dict(found[part::3]), tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    if kind != "list":
        of = {each: names[number % 3] for number, (each, _) in enumerate(found)}
        index.write_text(json.dumps({"metadata": {}, "weight_map": of}))
        save_file({"other": torch.zeros(1)}, tmp_path / "another.safetensors")
    files: Any = {"list": [tmp_path / name for name in names], "folder": tmp_path, "index": index}
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"], seed=1)
    counts: list[tuple[int, int]] = []
    pl.load_weights(model, files[kind], progress=lambda *count: counts.append(count))
    assert counts == [(done + 1, len(found)) for done in range(len(found))]
    require_same_state(model, pl.convert_to_analog(digital, IDEAL, exclude=["head"], seed=1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_are_converted(dtype: torch.dtype, digital: Net, tmp_path: Path) -> None:
    narrow = copy.deepcopy(digital).to(dtype)
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"], seed=1)
    pl.load_weights(model, saved(narrow, tmp_path))
    weight = model.wide.get_weights()[0]
    assert weight.dtype == model.norm.weight.dtype == torch.float32
    assert torch.equal(weight, narrow.wide.weight.float())
    assert torch.equal(model.norm.running_mean, narrow.norm.running_mean.float())


def test_a_progress_line(digital: Net, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = pl.convert_to_analog(digital, IDEAL, exclude=["head"])
    pl.load_weights(model, saved(digital, tmp_path), progress=True)
    count = len(tensors_of(digital))
    assert capsys.readouterr().err.endswith(f"\r{count} of {count} tensors\n")


def test_adapters_are_not_in_the_files(digital: Net, tmp_path: Path) -> None:
    path = saved(digital, tmp_path)
    for mode in pl.peft.MODES if hasattr(pl.peft, "MODES") else ("digital_base", "analog_base"):
        settings = {"rank": 2, "targets": ["wide", "old"], "seed": 3}
        model = pl.peft.add_adapters(on_meta(), mode, **settings)
        pl.load_weights(model, path)
        require_same_state(model, pl.peft.add_adapters(digital, mode, **settings))


def test_a_model_in_memory_gets_other_weights(digital: Net, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = pl.convert_to_analog(Net(), IDEAL, exclude=["head"])
    bias = model.wide.bias
    pl.load_weights(model, saved(digital, tmp_path))
    assert model.wide.bias is bias
    assert torch.equal(bias, digital.wide.bias)
    assert torch.equal(model.old.get_weights()[0], digital.old.weight.T)


REFUSED: dict[str, Callable[[nn.Module], object]] = {
    "forward": lambda model: model(IDS),
    "state_dict": lambda model: model.state_dict(),
    "pickle": pickle.dumps,
    "weights": lambda model: model.wide.get_weights(),  # type: ignore[operator, union-attr]
    "digital": pl.convert_to_digital,
}


@pytest.mark.parametrize("use", REFUSED)
@pytest.mark.parametrize("config", [IDEAL, pl.InferenceConfig(), pl.MixedPrecisionConfig()])
def test_weights_that_were_never_loaded(
    use: str, config: pl.TileConfig, digital: Net, tmp_path: Path
) -> None:
    model = pl.convert_to_analog(on_meta(), config, exclude=["table", "head", "conv"])
    model.table, model.conv = copy.deepcopy(digital.table), copy.deepcopy(digital.conv)
    model.head.weight = model.table.weight
    text = r"was converted on torch's meta device, and its weights were never loaded: call pulsora"
    for each in (model, copy.deepcopy(model)):
        with pytest.raises(pl.StateError, match=rf"layer 'wide' .*{text}"):
            REFUSED[use](each)
    pl.load_weights(model, saved(digital, tmp_path))
    REFUSED[use](model)


def test_a_state_of_the_analog_model_loads_too(digital: Net) -> None:
    converted = pl.convert_to_analog(digital, pl.SingleConfig(), exclude=["head"], seed=2)
    model = pl.convert_to_analog(on_meta(), pl.SingleConfig(), exclude=["head"])
    model.load_state_dict(converted.state_dict(), assign=True)
    require_same_state(model, converted)
    assert torch.equal(model(IDS), converted(IDS))


def test_analog_layers_are_not_made_on_the_meta_device() -> None:
    for make in (pl.nn.AnalogLinear, pl.nn.AnalogLSTM):
        with pytest.raises(ValueError, match=r"meta device.*convert it by pulsora"):
            make(3, 2, device="meta")
    layer = pl.nn.AnalogLinear(3, 2)
    with pytest.raises(ValueError, match=r"weight is on the meta device and has no values"):
        layer.set_weights(torch.empty(2, 3, device="meta"), torch.zeros(2))


def unchanged(model: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    after = model.state_dict()
    return all(torch.equal(after[name], before[name]) for name in before)


def changed(name: str, tensor: torch.Tensor | None) -> Callable[[dict[str, Any]], object]:
    return lambda found: found.pop(name) if tensor is None else found.update({name: tensor})


DAMAGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (changed("wide.weight", None), r"not in the files: wide\.weight; pass strict = False"),
    (changed("more", torch.zeros(2)), r"not in the model: more; pass strict = False"),
    (
        changed("narrow.weight", torch.zeros(6, 3)),
        r"shape \[6, 3\], .*'narrow\.weight' has \[6, 12",
    ),
    (changed("old.weight", torch.zeros(6, 20)), r"shape \[6, 20\], .* has \[20, 6\]"),
    (changed("norm.weight", torch.zeros(5)), r"shape \[5\]"),
    (changed("wide.weight", torch.zeros(20, 8, dtype=torch.int8)), r"type I8.*quantised"),
    (changed("norm.num_batches_tracked", torch.tensor(1.0)), r"holds whole numbers"),
    (changed("second.weight", torch.ones(6, 6)), r"one tensor in the model, but differ"),
    (changed("wide.tiles.0_0.weights", torch.ones(6)), r"load_state_dict\(state\), or"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGES)
def test_what_does_not_fit_changes_nothing(
    damage: Callable[[dict[str, Any]], object], text: str, digital: Net, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = pl.convert_to_analog(Net(), pl.SingleConfig(), exclude=["head"])
    before = copy.deepcopy(model.state_dict())
    found: dict[str, Any] = tensors_of(digital)
    damage(found)
    save_file(found, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=text):
        pl.load_weights(model, tmp_path)
    assert unchanged(model, before)


def test_names_that_differ(digital: Net, tmp_path: Path) -> None:
    found = tensors_of(digital)
    save_file({f"outer.{name}": each for name, each in found.items()}, tmp_path / "a.safetensors")
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"], seed=1)
    with pytest.raises(ValueError, match=r"lambda name: name\.removeprefix\('outer\.'\)"):
        pl.load_weights(model, tmp_path)
    pl.load_weights(model, tmp_path, names=lambda name: name.removeprefix("outer."))
    outer = nn.ModuleDict({"net": pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"], seed=1)})
    path = saved(digital, tmp_path)
    with pytest.raises(ValueError, match=r"lambda name: 'net\.' \+ name"):
        pl.load_weights(outer, path)
    pl.load_weights(outer, path, names=lambda name: "net." + name)
    require_same_state(model, outer["net"])
    with pytest.raises(ValueError, match=r"names gives 'net\.x' for"):
        pl.load_weights(outer, path, names=lambda _: "net.x")


def test_not_strict(digital: Net, tmp_path: Path) -> None:
    found = tensors_of(digital)
    del found["narrow.bias"], found["norm.bias"]
    save_file(found | {"more": torch.zeros(1)}, tmp_path / "model.safetensors")
    exclude = ["head", "first", "second"]
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=exclude, digital_bias=False)
    told = pl.load_weights(model, tmp_path, strict=False)
    # The bias of `narrow` is in cells, with its weight.
    assert set(told.missing) == {"narrow.weight", "narrow.bias", "norm.bias"}
    assert told.unexpected == ("more",)
    assert "not in the model: more" in str(told)
    assert model.narrow.tiles.awaits_weights
    assert not model.wide.tiles.awaits_weights
    assert model.norm.bias.is_meta


def test_weights_that_are_not_finite(digital: Net, tmp_path: Path) -> None:
    found = tensors_of(digital)
    found["wide.weight"] = torch.full((20, 8), float("inf"))
    save_file(found, tmp_path / "model.safetensors")
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"])
    with pytest.raises(pl.InputError, match=r"'wide\.weight': weights\[0, 0\] is inf"):
        pl.load_weights(model, tmp_path)
    with pytest.raises(pl.StateError, match="layer 'wide'"):
        model.state_dict()


def test_files_that_are_none(digital: Net, tmp_path: Path) -> None:
    model = pl.convert_to_analog(on_meta(), IDEAL, exclude=["head"])
    with pytest.raises(FileNotFoundError, match="there is no"):
        pl.load_weights(model, tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match=r"files = \[\]"):
        pl.load_weights(model, [])
    torch.save(digital.state_dict(), tmp_path / "pytorch_model.bin")
    for files in (tmp_path / "pytorch_model.bin", tmp_path):
        with pytest.raises((ValueError, FileNotFoundError), match="is a pickle, which could"):
            pl.load_weights(model, files)
    path = saved(digital, tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is no complete safetensors file"):
        pl.load_weights(model, path)
    index = tmp_path / "model.safetensors.index.json"
    for text, told in (
        ('{"weight_map": {"a": "../b.safetensors"}}', "no safetensors file in its folder"),
        ('{"weight_map": {"a": "b.safetensors"}}', "names b.safetensors, which is not"),
        ("[]", "no index with a weight_map"),
    ):
        index.write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=told):
            pl.load_weights(model, tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(ValueError, match="no file that ends in"):
        pl.load_weights(model, tmp_path / "x.txt")


_GROWTH = """
import re, sys, torch
from torch import nn
import pulsora as pl

def anonymous(*_):
    seen.append(int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)

seen = []
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(24)))
model = pl.convert_to_analog(model, pl.IdealConfig(), inplace=True)
anonymous()
pl.load_weights(model, sys.argv[1], progress=anonymous)
print(max(seen) - seen[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_digital_copy_is_in_memory(tmp_path: Path) -> None:
    layers = {f"{number}.weight": torch.rand(1024, 1024) for number in range(24)}
    save_file(layers, tmp_path / "model.safetensors")  # 96 MiB
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _GROWTH, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 48.0
