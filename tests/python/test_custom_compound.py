"""The examples' compound from outside the tree: in Python, states, documents, contract tests."""

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


def _python(build: Path, scratch: Path, *arguments: str | Path) -> str:
    """Run Python with the package of a build folder, which may need a sanitizer's runtime."""
    return run(sys.executable, *arguments, env=Build(build).environment(scratch))


@needs_examples_build
def test_a_compound_from_outside_the_tree_is_one_like_any_other(tmp_path: Path) -> None:
    built = examples_build()
    contract = run(built / "rpucuda_tests", "--gtest_filter=*TileOfKind*/parallel_pair")
    assert "[  PASSED  ]" in contract
    assert "parallel_pair" in contract
    saved = tmp_path / "tile.safetensors"
    assert "as any other" in _python(built, tmp_path, "-c", USE, saved)


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
