"""Bytes of memory of an analog model, told before it is converted, beside those that it takes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import pulsora as pl

CONFIGS = {
    "ideal": pl.IdealConfig(),
    "single": pl.SingleConfig(),
    "noisy": pl.SingleConfig(device=pl.devices.SoftBounds(write_noise_std=0.1, lifetime=9.0)),
    "lrtt": pl.LRTTConfig(rank=3),
    "stored": pl.LRTTConfig(rank=3, visible=pl.devices.SoftBounds(cells="stored")),
    "computed": pl.SingleConfig(device=pl.devices.SoftBounds(cells="computed", reset_dtod=0.1)),
    "span": pl.LRTTConfig(rank=3, adapter_span="layer"),
    "auto": pl.LRTTConfig(),
    "tiki": pl.TTv2(fast=pl.devices.SoftBounds(), visible=pl.devices.SoftBounds()),
    "pair": pl.presets.EcRamPair(),
    "inference": pl.InferenceConfig(),
    "mixed": pl.MixedPrecisionConfig(),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 12)
        self.conv = nn.Conv1d(12, 40, 3, groups=2)
        self.memory = nn.GRU(40, 30)
        self.first, self.second = nn.Linear(30, 30), nn.Linear(30, 30, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(30, 50)
        self.norm = nn.BatchNorm1d(50)


@pytest.mark.parametrize("digital_bias", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_told_before_is_what_tiles_take(name: str, digital_bias: bool) -> None:
    config = CONFIGS[name]
    options = {"max_input_size": 25, "max_output_size": 20, "digital_bias": digital_bias}
    if config.facts.digital_weight and not digital_bias:
        pytest.skip("these layers have a digital bias")
    exclude = ["first", "second"] if not digital_bias else []
    model = Net()
    state = {id(each) for each in model.parameters()}
    told = pl.model_memory(model, config, exclude=exclude, **options)
    with torch.device("meta"):
        assert pl.model_memory(Net(), config, exclude=exclude, **options) == told
    assert {id(each) for each in model.parameters()} == state
    made = pl.convert_to_analog(model, config, exclude=exclude, **options)
    found = pl.model_memory(made)
    assert [each.shape for each in told.layers] == [each.shape for each in found.layers]
    assert [each.tiles for each in told.layers] == [each.tiles for each in found.layers]
    assert [each.per_row for each in told.layers] == [each.per_row for each in found.layers]
    assert told.digital == found.digital
    for before, after in zip(told.layers, found.layers, strict=True):
        assert before.weights == after.weights
        assert before.cells + before.adapters == pytest.approx(
            after.cells + after.adapters, rel=0.01
        )


def test_numbers_of_a_layer() -> None:
    layer = nn.Linear(100, 60)
    told = pl.model_memory(layer, pl.SingleConfig(device=pl.devices.SoftBounds(reset_dtod=0.0)))
    (row,) = told.layers
    assert row.weights == 4 * 6000
    assert row.cells == 8 * 6000  # four half-precision numbers a cell
    assert row.adapters == 0
    assert row.per_row == told.per_row == 4 * 160
    assert told.digital == 4 * 60
    assert told.total == 12 * 6000 + 240
    assert told.scratch == pl.scratch_memory()["limit"]
    ranked = pl.model_memory(layer, pl.LRTTConfig(rank=4)).layers[0]
    plain = pl.model_memory(layer, pl.LRTTConfig(rank=0)).layers[0]
    assert ranked.adapters > 4 * 4 * 160
    assert 8 * 6000 <= plain.cells < 8 * 6000 + 2000
    assert ranked.cells < 2000  # computed
    stored = pl.LRTTConfig(rank=4, visible=pl.LRTTConfig().visible.replace(cells="stored"))
    kept = pl.model_memory(layer, stored).layers[0]
    assert kept.adapters == ranked.adapters
    assert kept.cells - ranked.cells == 8 * 6000
    assert "60 x 100" in str(told)
    assert "scratch memory: up to 256 MiB" in str(told)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="config is None, but the model has no analog layer"):
        pl.model_memory(Net())
    with pytest.raises(ValueError, match=r"exclude = \['haed'\]"):
        pl.model_memory(Net(), pl.SingleConfig(), exclude=["haed"])
    with pytest.raises(ValueError, match="max_input_size = -1"):
        pl.model_memory(Net(), pl.SingleConfig(), max_input_size=-1)


_MEASURED = """
import ctypes, re, sys, torch
from torch import nn
import pulsora as pl

def resident():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

config = pl.LRTTConfig(rank=8) if sys.argv[1] == "lrtt" else pl.SingleConfig(
    device=pl.devices.SoftBounds(cells=sys.argv[1]))
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(10)))
pl.convert_to_analog(nn.Linear(1024, 1024), config)  # what is used once, scratch memory too
told = pl.model_memory(model, config).total
before = resident()
made = pl.convert_to_analog(model, config)
ctypes.CDLL(None).malloc_trim(0)  # gives back what conversion has freed
weights = 10 * 1024 * 1024
print((resident() - before) / told, told / weights)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("kind", "most"), [("lrtt", 4.8), ("stored", 12.1), ("computed", 4.1)])
def test_what_the_process_takes(kind: str, most: float) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _MEASURED, kind], capture_output=True, text=True, check=True
    )
    share, bytes_of_weight = map(float, done.stdout.split())
    assert 0.9 < share < 1.1
    assert most - 0.6 < bytes_of_weight < most
