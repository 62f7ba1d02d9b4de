"""The examples' compounds from outside the tree: in Python, states, documents, contract tests."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT, cmake_refuses, examples_build, needs_examples_build, run
from tests.fuzz.build import Build

if TYPE_CHECKING:
    from pathlib import Path

HEADER = ROOT / "examples" / "08_custom_compound" / "parallel_pair.h"

pytestmark = pytest.mark.skipif(
    not shutil.which("cmake"), reason="needs CMake, a C++ compiler and GoogleTest"
)

USE = """
import sys
import numpy as np
import pulsora as pl
from pulsora import _core

Config = pl.config.ParallelPairConfig
assert pl.config.CLASSES["parallel_pair"] is Config
assert "Two arrays in parallel" in Config.__doc__ and "Device model of W_1" in Config.__doc__
config = Config(first=pl.devices.SoftBounds(dw_min=0.002), second=pl.devices.ConstantStep())
assert pl.TileConfig.from_dict(config.to_dict()) == config
try:
    Config(frist=pl.devices.SoftBounds())
except pl.ConfigError as error:
    assert "first" in str(error)
else:
    raise AssertionError("a wrong name was taken")

rng = np.random.default_rng(1)
target = (0.3 * rng.normal(size=(4, 6))).astype(np.float32)

def train(tile, steps, seed):
    rng = np.random.default_rng(seed)
    seen = []
    for _ in range(steps):
        x = rng.normal(size=(8, 6)).astype(np.float32)
        y = tile.forward(x)
        tile.update(x, y - x @ target.T, 0.05)
        seen.append(y)
    return seen

def bits_on(device):
    # On a GPU by the kernel of the compound's own functor.
    tile = pl.Tile(4, 6, config, seed=3, device=device)
    if device == "cuda":
        tile.gpu_products = "reproducible"
    x, d = (torch.from_numpy(rng.normal(size=(8, n)).astype(np.float32)) for n in (6, 4))
    x, d = x.to(device), 0.1 * d.to(device)
    seen = []
    for _ in range(3):
        seen += [tile.forward(x), tile.backward(d)]
        tile.update(x, d, 0.05)
    seen.append(tile.weights)
    return b"".join(torch.as_tensor(each).cpu().numpy().tobytes() for each in seen)

if pl.cuda_device_count():
    import torch
    state = rng.bit_generator.state
    on_gpu = bits_on("cuda")
    rng.bit_generator.state = state
    assert on_gpu == bits_on("cpu")
    print("trained on the GPU, with the bits of the CPU")

tile = pl.Tile(4, 6, config, seed=3)
assert tile.adapter is None
before = np.square(tile.weights - target).mean()
train(tile, 60, 2)
after = np.square(tile.weights - target).mean()
assert after < 0.2 * before, (before, after)
share = config.share
sum = share * tile.arrays["first"] + (1 - share) * tile.arrays["second"]
assert np.allclose(tile.weights, sum)
assert _core.compound_facts(config.to_dict())["written"] == "first"

tile.save(sys.argv[1])
resumed = pl.Tile.load(sys.argv[1])
for one, other in zip(train(tile, 5, 4), train(resumed, 5, 4)):
    assert one.tobytes() == other.tobytes()
assert set(tile.state().values["config"]) == {
    "kind", "first", "second", "share", "forward", "backward", "update"
}
print("as any other")
"""

RESIDUAL = """
import numpy as np
import pulsora as pl

exact = dict(dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max_dtod=0.0, w_min_dtod=0.0)
step = 2.0**-8
cells = pl.devices.ConstantStep(dw_min=step, w_max=2.0, w_min=-2.0, **exact)
reads = {name: pl.IOParameters(is_perfect=True) for name in ("forward", "backward")}
config = pl.config.ResidualLearningConfig(
    main=cells, residual=cells, gamma=1.0, beta=0.125, most_pulses=2, **reads
)

rng = np.random.default_rng(1)
target = (0.3 * rng.normal(size=(4, 6))).astype(np.float32)
tile = pl.Tile(4, 6, config, seed=3, device="cpu")
arrays = lambda: {name: np.asarray(a).astype(np.float64) for name, a in tile.arrays.items()}
main, owed, clipped = arrays()["main"], 0.0, 0
for _ in range(200):
    x = rng.normal(size=(8, 6)).astype(np.float32)
    tile.update(x, np.asarray(tile.forward(x)) - x @ target.T, 0.05)
    found = arrays()
    owed = owed + 0.125 * found["residual"]
    pulses = np.trunc(owed / step)
    clipped += (abs(pulses) > 2).sum()
    pulses = pulses.clip(-2, 2)
    main, owed = main + pulses * step, owed - pulses * step
    assert abs(found["main"] - main).max() < 1e-5
    assert abs(tile.weights - (found["main"] + found["residual"])).max() < 1e-6
assert clipped > 0
error = np.square(tile.weights - target).mean() / np.square(target).mean()
assert error < 0.01, error
tile.weights = target
assert not tile.arrays["residual"].any()
assert abs(tile.arrays["main"] - target).max() < 1e-6
print("follows the rule")
"""


def _python(build: Path, scratch: Path, *arguments: str | Path) -> str:
    """Run Python with the package of a build folder, which may need a sanitizer's runtime."""
    return run(sys.executable, *arguments, env=Build(build).environment(scratch))


@needs_examples_build
def test_a_compound_from_outside_the_tree_is_one_like_any_other(tmp_path: Path) -> None:
    built = examples_build()
    for kind in ("parallel_pair", "residual_learning", "residual_fast"):
        contract = run(built / "rpucuda_tests", f"--gtest_filter=*OfKind*/{kind}")
        assert "[  PASSED  ]" in contract
        assert f"/{kind}" in contract
    saved = tmp_path / "tile.safetensors"
    assert "as any other" in _python(built, tmp_path, "-c", USE, saved)


@needs_examples_build
def test_residual_learning_follows_its_rule(tmp_path: Path) -> None:
    assert "follows the rule" in _python(examples_build(), tmp_path, "-c", RESIDUAL)


@needs_examples_build
def test_a_compound_from_outside_the_tree_is_documented(tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")
    pages = tmp_path / "pages"
    script = ROOT / "scripts" / "generate_api.py"
    _python(examples_build(), tmp_path, script, "--output", pages)
    written = "".join(page.read_text() for page in pages.rglob("*") if page.is_file())
    assert "ParallelPairConfig" in written
    assert "Device model of W_1 [d, x]." in written


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("ParallelPairParams", "is not of the form Params=/absolute/path.h"),
        ("ParallelPairParams=relative.h", "there is no file relative.h"),
        ("ParallelPairParams=/nowhere/pair.h", "there is no file /nowhere/pair.h"),
        (f"SingleParams={HEADER}", "there is a compound SingleParams already"),
    ],
)
def test_a_wrong_entry_is_refused_with_a_reason(tmp_path: Path, entry: str, message: str) -> None:
    assert message in cmake_refuses(f"PULSORA_EXTRA_COMPOUNDS={entry}", tmp_path)
