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
