"""Fixtures and helpers of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]

D_SIZE, X_SIZE = 6, 10

# Where torch can run with tiles beside it.
DEVICES = ["cpu"] + ["cuda"] * (torch.cuda.is_available() and pl.cuda_device_count() > 0)

# Exact products, forward and backward.
PERFECT: dict[str, Any] = {
    "forward": pl.IOParameters(is_perfect=True),
    "backward": pl.IOParameters(is_perfect=True),
}

# One configuration of each way in which layers carry their weight.
CARRIERS = [
    pl.SingleConfig(),
    pl.LRTTConfig(rank=2),
    pl.InferenceConfig(),
    pl.MixedPrecisionConfig(),
]

# An adapter without what its defaults choose by themselves, for tests of one rule at a time: A and
# B learn at lr alpha, transfers count samples and are sent once, and B is drawn anew.
PLAIN_LRTT: dict[str, Any] = {
    "fast": pl.devices.ConstantStep(),
    "ab_lr_scale": "alpha",
    "transfer_every": 100,
    "units_in_mbatch": False,
    "transfer_mode": "lossless",
    "reinit": "kaiming",
}

CONFIGS: dict[str, Callable[[], pl.TileConfig]] = {
    "ideal": pl.IdealConfig,
    "single": lambda: pl.SingleConfig(device=pl.devices.SoftBounds(lifetime=50.0, diffusion=1e-3)),
    "vector": lambda: pl.VectorConfig(
        devices=[pl.devices.SoftBounds(), pl.devices.ConstantStep(write_noise_std=3.0)],
        update_policy="single_random",
    ),
    "reference": lambda: pl.ReferenceConfig(
        visible=pl.devices.SoftBounds(diffusion=1e-3),
        reference_start="symmetric_point",
        reference_pulses=20,
        read_io="per_array",
    ),
    "one_sided": lambda: pl.OneSidedConfig(
        device=pl.devices.ConstantStep(dw_min=0.005, w_max=1.0, w_min=0.0),
        refresh_upper_thres=0.1,
        refresh_lower_thres=0.05,
    ),
    "write_noise": lambda: pl.SingleConfig(device=pl.devices.ConstantStep(write_noise_std=3.0)),
    "lrtt": lambda: pl.LRTTConfig(
        rank=3,
        visible=pl.devices.ConstantStep(),
        fast=pl.devices.SoftBounds(dw_min=2e-4),
        transfer_every=7,
    ),
}


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    """Seeds torch, so that a test's random numbers do not depend on the tests before."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _gradients_stay_on() -> Iterator[None]:
    """Fails a test after which torch records no gradients, and switches them on for the others."""
    yield
    is_on = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert is_on, "the test has left torch's gradients switched off"


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=list(CONFIGS))
def config(request: pytest.FixtureRequest) -> pl.TileConfig:
    return CONFIGS[request.param]()


@pytest.fixture
def batch() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return make_batch(5)


def make_batch(samples: int, seed: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, X_SIZE)).astype(np.float32)
    d = 0.1 * rng.normal(size=(samples, D_SIZE)).astype(np.float32)
    return x, d


def make_tile(config: pl.TileConfig, **options: object) -> pl.Tile:
    return pl.Tile(D_SIZE, X_SIZE, config, **({"seed": 5, "threads": 1} | options))


def train(tile: pl.Tile, steps: int, first: int = 0) -> list[NDArray[np.float32]]:
    """Outputs of a tile in a few steps of training, and its weights."""
    seen = []
    for step in range(first, first + steps):
        x, d = make_batch(5, seed=step)
        seen += [tile.forward(x), tile.backward(d)]
        tile.update(x, d, 0.05)
    return [*seen, tile.weights]


def same_bits(first: list[NDArray[np.float32]], second: list[NDArray[np.float32]]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def require_same_state(one: torch.nn.Module, other: torch.nn.Module) -> None:
    mine, its = one.state_dict(), other.state_dict()
    assert mine.keys() == its.keys()
    assert [name for name in mine if not torch.equal(mine[name], its[name])] == []


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command with `env` added to the environment; a failure shows its output."""
    done = subprocess.run(  # noqa: S603
        command, cwd=cwd, env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def cmake_refuses(setting: str, folder: Path) -> str:
    """Configure Pulsora with a setting that CMake refuses; return the message in one line."""
    off = [f"-DPULSORA_{part}=OFF" for part in ("PYTHON", "CUDA", "TESTS", "BENCHMARKS")]
    done = subprocess.run(  # noqa: S603
        ["cmake", "-S", ROOT, "-B", folder, *off, f"-D{setting}"],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def in_child(work: Callable[[], object], seconds: float = 120.0) -> None:
    """Runs work() in a forked child; fails if it raises, or has not ended in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - nothing of the child may go on in the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the forked process hangs")


class CppBuild(NamedTuple):
    """Install the C++ library into `prefix`, and build the project tests/installed against it."""

    prefix: Path
    folder: Path


def build_folder() -> Path | None:
    """The folder of a whole CMake build of this checkout: PULSORA_BUILD, build/cpu, or None."""
    folder = Path(os.environ.get("PULSORA_BUILD", ROOT / "build" / "cpu"))
    return folder if (folder / "libpulsora.a").exists() else None


@pytest.fixture(scope="session")
def cpp_build(tmp_path_factory: pytest.TempPathFactory) -> CppBuild:
    """The library that `make test` has built, installed, and a user's project built against it."""
    built = build_folder()
    if built is None:
        pytest.skip("needs a whole build of the library; `make test` makes one")
    there = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", built, "--prefix", there / "first")
    prefix = (there / "first").rename(there / "moved prefix")  # an installed library may be moved
    folder = tmp_path_factory.mktemp("cpp_build")
    run(
        *("cmake", "-S", ROOT / "tests" / "installed", "-B", folder),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"),
    )
    run("cmake", "--build", folder, "--parallel", "2")
    return CppBuild(prefix, folder)


def examples_build() -> Path | None:
    """The build with the device and the compound of the examples: PULSORA_EXAMPLES_BUILD."""
    folder = os.environ.get("PULSORA_EXAMPLES_BUILD")
    return Path(folder).resolve() if folder else None


needs_examples_build = pytest.mark.skipif(
    examples_build() is None,
    reason="needs a build with the device and the compound of the examples: make asan",
)


def repetitions(whole: int) -> int:
    """Rounds of a long random test: a tenth of `whole`, and all in `make nightly`."""
    return whole if os.environ.get("PULSORA_NIGHTLY") else whole // 10
