"""Models saved and loaded in parts: the bits of a state_dict, and crashes that leave the old."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import CARRIERS
from pulsora._internal.weight_files import write_tensors
from pulsora.convert import saving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*lie outside the bounds")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.memory = nn.LSTM(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.memory(self.second(self.first(self.table(ids))))[0]
        y: torch.Tensor = self.head(self.norm(h.flatten(0, 1)))
        return y


IDS = torch.arange(8).reshape(2, 4)


def analog(seed: int, config: pl.TileConfig) -> Any:  # noqa: ANN401
    torch.manual_seed(seed)
    return pl.convert_to_analog(Net(), config, exclude=["head"], seed=seed, max_input_size=4)


def trained(seed: int, config: pl.TileConfig) -> Any:  # noqa: ANN401
    model = analog(seed, config)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    model(IDS).square().sum().backward()
    optimizer.step()
    return model.eval()


def require_same_state(one: nn.Module, other: nn.Module) -> None:
    mine, its = one.state_dict(), other.state_dict()
    assert mine.keys() == its.keys()
    assert [name for name in mine if not torch.equal(mine[name], its[name])] == []


@pytest.mark.filterwarnings("ignore:.*before its first transfer", "ignore:.*never programmed")
@pytest.mark.parametrize("shard_bytes", [1, 1 << 30])
@pytest.mark.parametrize("config", CARRIERS, ids=lambda each: type(each).__name__)
def test_a_loaded_model_goes_on_with_the_bits(
    config: pl.TileConfig, shard_bytes: int, tmp_path: Path
) -> None:
    model = trained(1, config)
    pl.save(model, tmp_path / "new", shard_bytes=shard_bytes)
    other = analog(2, config).eval()
    counts: list[tuple[int, int]] = []
    pl.load(other, tmp_path / "new", progress=lambda *count: counts.append(count))
    assert counts[-1][0] == counts[-1][1] == len(counts)
    require_same_state(other, model)
    assert other.head.weight is other.table.weight
    with torch.device("meta"):
        bare = Net()
    bare = pl.convert_to_analog(bare, config, exclude=["head"], max_input_size=4).eval()
    pl.load(bare, tmp_path / "new")
    require_same_state(bare, model)
    assert bare.head.weight is bare.table.weight
    assert torch.equal(bare(IDS), model(IDS))


def files(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def stopping(name: str, last: int, calls: list[Path]) -> Callable[[Path, Any], None]:
    """Returns a function of `saving` that fails after some calls, and may leave a file then."""
    write = getattr(saving, name)

    def fails(path: Path, data: object) -> None:
        calls.append(path)
        stops = len(calls) > last
        if not stops or name == "write_tensors":
            write(path, data)
        if stops:
            raise OSError("no space left")

    return fails


def test_a_file_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"gone.+cannot be written"):
        write_tensors(tmp_path / "gone" / "a.safetensors", {"a": torch.zeros(2)})


def test_a_crash_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (trained(seed, pl.SingleConfig()) for seed in (1, 2))
    pl.save(old, tmp_path, shard_bytes=1)
    before = files(tmp_path)
    for last in range(len(before)):
        calls: list[Path] = []
        with monkeypatch.context() as patched:
            for name in ("write_tensors", "replace_file"):
                patched.setattr(saving, name, stopping(name, last, calls))
            with pytest.raises(OSError, match="no space left"):
                pl.save(new, tmp_path, shard_bytes=1)
        assert files(tmp_path) == before
    again = analog(3, pl.SingleConfig())
    pl.load(again, tmp_path)
    require_same_state(again, old)
    # What a process that was killed has left goes with the next save.
    (tmp_path / "model-00000000-00001.safetensors").write_bytes(b"")
    pl.save(new, tmp_path, shard_bytes=1)
    assert len(files(tmp_path)) == len(before)
    assert not files(tmp_path) & before - {"model.safetensors.index.json"}
    pl.load(again, tmp_path)
    require_same_state(again, new)


def test_refusals(tmp_path: Path) -> None:
    model = trained(1, pl.SingleConfig())
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors\.index\.json"):
        pl.load(model, tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {}}))
    with pytest.raises(ValueError, match="holds the weights of another model"):
        pl.save(model, tmp_path)
    index.unlink()
    with pytest.raises(ValueError, match="shard_bytes must be at least 1"):
        pl.save(model, tmp_path, shard_bytes=0)
    pl.save(model, tmp_path)
    other = nn.Sequential(pl.nn.AnalogLinear(6, 6), nn.Linear(6, 6))
    state = other.state_dict()
    with pytest.raises(ValueError, match=r"not in the files: \['0\.bias', .*not in the model"):
        pl.load(other, tmp_path)
    assert all(torch.equal(each, other.state_dict()[name]) for name, each in state.items())
    wide = pl.convert_to_analog(Net(), pl.SingleConfig(), exclude=["head"], max_input_size=2)
    with pytest.raises(pl.StateError, match=r"was saved with size \[6, 3\]"):
        pl.load(wide, tmp_path)
    model.norm.register_state_dict_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match="module 'norm' has hooks on its state_dict"):
        pl.save(model, tmp_path)


def test_weights_that_were_never_loaded_are_not_saved(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = Net()
    model = pl.convert_to_analog(model, pl.SingleConfig(), exclude=["head"])
    pl.save(trained(1, pl.SingleConfig()), tmp_path)
    before = files(tmp_path)
    with pytest.raises((TypeError, pl.StateError), match="meta device"):
        pl.save(model, tmp_path)
    assert files(tmp_path) == before


class Held(nn.Module):
    """A layer and a buffer."""

    extra: torch.Tensor

    def __init__(self, buffer: torch.Tensor, *, persistent: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("extra", buffer, persistent=persistent)


class Listed(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.p = nn.ParameterList([torch.full((2,), float(k)) for k in range(count)])


def require_refused(saved: nn.Module, given: nn.Module, folder: Path, message: str) -> None:
    """Requires a ValueError of `load` that names the folder, and a model that has not changed."""
    pl.save(saved, folder)
    before = {name: each.clone() for name, each in given.state_dict().items()}
    with pytest.raises(ValueError, match=rf"^folder = '.+{message}"):
        pl.load(given, folder)
    now = given.state_dict()
    assert all(each.is_meta or torch.equal(each, now[name]) for name, each in before.items())
    assert [name for name in now if now[name].is_meta != before[name].is_meta] == []


def test_buffers_that_are_not_saved_need_values(tmp_path: Path) -> None:
    model = Held(torch.arange(3.0), persistent=False)
    with torch.device("meta"):
        bare = Held(torch.empty(3), persistent=False)
    remedy = r"not in the files: \['extra'\]; .+ or assign values to them before"
    require_refused(model, bare, tmp_path, remedy)
    bare.extra = torch.arange(3.0)
    pl.load(bare, tmp_path)
    require_same_state(bare, model)
    assert torch.equal(bare.extra, torch.arange(3.0))


@pytest.mark.parametrize(
    ("saved", "given", "message"),
    [
        (
            nn.LSTM(3, 3, bidirectional=True),
            nn.LSTM(3, 3),
            r"': not in the model: \['bias_hh_l0_reverse', .+; give the model that was saved",
        ),
        (
            nn.LSTM(3, 3),
            nn.LSTM(3, 3, bidirectional=True),
            r"': not in the files: \['weight_ih_l0_r",
        ),
        (Listed(12), Listed(10), r"': not in the model: \['p\.10', 'p\.11'\]; give the model"),
        (Listed(10), Listed(12), r"': not in the files: \['p\.10', 'p\.11'\]; give the model"),
    ],
    ids=["fewer directions", "more directions", "a shorter list", "a longer list"],
)
def test_names_are_compared_as_a_whole(
    saved: nn.Module, given: nn.Module, message: str, tmp_path: Path
) -> None:
    require_refused(saved, given, tmp_path, message)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_shapes_are_compared_before_anything_is_loaded(device: str, tmp_path: Path) -> None:
    saved = nn.Sequential(pl.nn.AnalogLinear(3, 4), nn.LayerNorm(4))
    given = nn.Sequential(pl.nn.AnalogLinear(3, 4), nn.LayerNorm(5, device=device))
    message = r"'1\.weight' has shape \[4\], but \[5\] in the model; .+; give the model that was"
    require_refused(saved, given, tmp_path, message)


def test_a_number_is_taken_from_a_list_of_one(tmp_path: Path) -> None:
    pl.save(Held(torch.tensor([2.0])), tmp_path)
    given = Held(torch.tensor(1.0))
    pl.load(given, tmp_path)
    assert float(given.extra) == 2.0


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (torch.ones(2, dtype=torch.complex128), "of type torch.complex128.+; convert it, or save"),
        (torch.eye(2).to_sparse(), "of layout torch.sparse_coo; make it dense, or save the model"),
        (torch.nn.UninitializedBuffer(), "not initialised; run the model once before"),
    ],
    ids=["complex128", "sparse", "lazy"],
)
def test_what_files_do_not_hold_is_refused(
    buffer: torch.Tensor, message: str, tmp_path: Path
) -> None:
    pl.save(Held(torch.ones(2)), tmp_path)
    before = files(tmp_path)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(TypeError, match=f"^'1.extra' of the state is {message}"):
            pl.save(nn.Sequential(nn.Linear(2, 2), Held(buffer)), folder, shard_bytes=1)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "buffer",
    [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag, torch.tensor([2**40 + 1])],
    ids=["conjugated", "negated", "int64"],
)
def test_views_and_types_keep_their_values(buffer: torch.Tensor, tmp_path: Path) -> None:
    pl.save(Held(buffer), tmp_path)
    given = Held(torch.zeros(1, dtype=buffer.dtype))
    pl.load(given, tmp_path)
    assert torch.equal(given.extra, buffer)


@torch.no_grad()
def test_parameters_of_torch_are_saved_as_they_are(tmp_path: Path) -> None:
    given = Held(torch.zeros(2))
    pl.save(Held(torch.tensor([torch.nan, torch.inf])), tmp_path / "digital")
    pl.load(given, tmp_path / "digital")
    assert str(given.extra.tolist()) == "[nan, inf]"
    layer = pl.nn.AnalogLinear(2, 2, config=pl.InferenceConfig())
    layer.weight[0, 1] = torch.nan
    with pytest.raises(pl.StateError, match="'weight' has values that are not finite"):
        pl.save(layer, tmp_path / "inference")
    followed = pl.nn.AnalogLinear(2, 2, config=pl.MixedPrecisionConfig())
    followed.weight[0, 1] = torch.nan
    with pytest.raises(pl.StateError, match="'weight' has values that are not finite"):
        pl.save(followed, tmp_path / "followed")


@pytest.mark.parametrize("call", [pl.save, pl.load])
@pytest.mark.parametrize("folder", [None, 5])
def test_what_is_no_folder_is_named(call: Any, folder: object) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=f"^folder = {folder}: give the path of a folder$"):
        call(nn.Linear(2, 2), folder)


_PEAK = """
import re, sys, torch
from torch import nn
import pulsora as pl

def now(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

small = nn.Sequential(pl.nn.AnalogLinear(8, 8, config=pl.IdealConfig()))
pl.save(small, sys.argv[1] + "/small")  # what is used once
model = nn.Sequential(
    *(pl.nn.AnalogLinear(1024, 1024, False, pl.IdealConfig()) for _ in range(32))
)  # 128 MiB
before = now("VmRSS")
pl.save(model, sys.argv[1] + "/model", shard_bytes=1 << 22)
print(now("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_second_copy_is_in_memory(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 64.0
