"""The compound of the examples, from outside the tree, is in Python, in saved states, in the documents and in the contract tests."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT, cmake_refuses, run

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import CppBuild

HEADER = ROOT / "examples" / "08_custom_compound" / "parallel_pair.h"

pytestmark = pytest.mark.skipif(
    not shutil.which("cmake"), reason="needs CMake, a C++ compiler and GoogleTest"
)

USE = """
import sys
import numpy as np
import pulsora as pl

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

tile = pl.Tile(4, 6, config, seed=3)
assert tile.adapter is None
before = np.square(tile.weights - target).mean()
train(tile, 60, 2)
after = np.square(tile.weights - target).mean()
assert after < 0.2 * before, (before, after)
assert np.allclose(tile.weights, tile.arrays["first"] + tile.arrays["second"])

tile.save(sys.argv[1])
resumed = pl.Tile.load(sys.argv[1])
for one, other in zip(train(tile, 5, 4), train(resumed, 5, 4)):
    assert one.tobytes() == other.tobytes()
assert set(tile.state().values["config"]) == {
    "kind", "first", "second", "forward", "backward", "update"
}
print("as any other")
"""


@pytest.mark.slow
def test_a_compound_from_outside_the_tree_is_one_like_any_other(
    cpp_build: CppBuild, tmp_path: Path
) -> None:
    run(
        *(
            "cmake",
            "-S",
            cpp_build.source,
            "-B",
            cpp_build.folder,
            "-DPULSORA_TESTS=ON",
            "-DPULSORA_PYTHON=ON",
        ),
        *(
            "-DPULSORA_TEST_SOURCES=tile_test.cpp;tile_state_test.cpp",
            f"-DPython_EXECUTABLE={sys.executable}",
        ),
        f"-DPULSORA_EXTRA_COMPOUNDS=ParallelPairParams={HEADER}",
    )
    run(
        *("cmake", "--build", cpp_build.folder, "--parallel", "2"),
        *("--target", "rpucuda_tests", "_core"),
    )
    built = cpp_build.folder / "pulsora"
    contract = run(built / "rpucuda_tests", "--gtest_filter=*TileOfKind*/parallel_pair")
    assert "[  PASSED  ]" in contract
    assert "parallel_pair" in contract
    path = str(built / "python")
    saved = tmp_path / "tile.safetensors"
    assert "as any other" in run(sys.executable, "-c", USE, saved, env={"PYTHONPATH": path})
    pages = tmp_path / "pages"
    run(
        sys.executable,
        ROOT / "scripts" / "generate_api.py",
        "--output",
        pages,
        env={"PYTHONPATH": path},
    )
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
