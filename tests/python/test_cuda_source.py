"""Device models from source on a GPU: bits of built-in models, files on disk, refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import D_SIZE, ROOT, X_SIZE, make_batch
from device_workshop import COMPILER, KINDS_OF_PULSES, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [
    pytest.mark.skipif(
        not (torch.cuda.is_available() and pl.cuda_device_count() > 0),
        reason="no GPU that torch and this build of Pulsora can use",
    ),
    pytest.mark.xdist_group("device source"),
]

DEVICES = ROOT / "src" / "rpucuda" / "devices"
NOISE_MODELS = ROOT / "src" / "rpucuda" / "noise_models"
EXAMPLE = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"


def _copy(name: str, header: str, suffix: str) -> str:
    return (DEVICES / header).read_text().replace(name, name + suffix)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of compiled models. The CPU's half of a model is not optimised here."""
    folder = tmp_path_factory.mktemp("workshop")
    compiler = folder / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSORA_CACHE_DIR", str(folder / "cache"))
        patch.setenv("CXX", str(compiler))
        yield folder / "cache"


@pytest.fixture(scope="module")
def soft(cache: Path) -> type[pl.devices.Device]:  # noqa: ARG001
    return pl.devices.from_source(_copy("SoftBounds", "soft_bounds.h", "OnGpu"))


@pytest.fixture(scope="module")
def constant(cache: Path) -> type[pl.devices.Device]:  # noqa: ARG001
    return pl.devices.from_source(_copy("ConstantStep", "constant_step.h", "OnGpu"))


def _inputs(samples: int, x_size: int, d_size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, x_size)).astype(np.float32)
    d = 0.2 * rng.normal(size=(samples, d_size)).astype(np.float32)
    return torch.from_numpy(x).cuda(), torch.from_numpy(d).cuda()


def _state(tile: pl.Tile) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tile.state().tensors.items()}


def _learned(
    device: pl.devices.Device, update: dict[str, Any], shape: tuple[int, int], cut: int = 0
) -> pl.Tile:
    config = pl.SingleConfig(device=device, update=pl.UpdateParameters.from_dict(update))
    tile = pl.Tile(*shape, config, seed=3, device="cuda:0")
    for step in range(3):
        x, d = _inputs(9, shape[1], shape[0], step)
        if cut:
            tile.update(x[:cut], d[:cut], 0.5, end_of_batch=False)
        tile.update(x[cut:], d[cut:], 0.5)
    tile.reset_columns("visible", 3, 5)
    return tile


@pytest.mark.parametrize("pulse_noise", ["closed_form", "sequential"])
@pytest.mark.parametrize(("pulse_type", "length"), KINDS_OF_PULSES)
def test_a_model_from_source_has_the_bits_of_the_same_built_in(
    soft: type[pl.devices.Device],
    constant: type[pl.devices.Device],
    pulse_type: str,
    length: int,
    pulse_noise: str,
) -> None:
    update = {"pulse_type": pulse_type, "desired_bl": length}
    settings = {
        **SETTINGS, "pulse_noise": pulse_noise, "lifetime": 30.0, "diffusion": 1e-3,
        "write_noise_std": 0.5,
    }  # fmt: skip
    for built_in, made in ((pl.devices.SoftBounds, soft), (pl.devices.ConstantStep, constant)):
        for shape in ((67, 130), (40, 9)):
            expected = _learned(built_in(**settings), update, shape)
            tiles = [_learned(made(**settings), update, shape, cut) for cut in (0, 4)]
            for tile in tiles:
                assert _state(tile) == _state(expected)
                cells = tile.describe_cells()
                for name, plane in expected.describe_cells().items():
                    assert plane.tobytes() == cells[name].tobytes()


@pytest.mark.parametrize("shape", [(67, 130), (1030, 1028)])
def test_merged_noise_has_the_bits_of_the_built_in(
    constant: type[pl.devices.Device], shape: tuple[int, int]
) -> None:
    settings = {"dw_min": 0.01, "noise_merge": "batch"}
    expected = _learned(pl.devices.ConstantStep(**settings), {}, shape)
    assert _state(_learned(constant(**settings), {}, shape)) == _state(expected)


def test_a_gpu_has_the_bits_of_the_cpu(cache: Path) -> None:  # noqa: ARG001
    made = pl.devices.from_source(EXAMPLE.read_text().replace("QuadraticStep", "QuadraticOnGpu"))
    config = pl.SingleConfig(device=made(lifetime=50.0, diffusion=1e-3))
    host, gpu = (pl.Tile(67, 130, config, seed=3, device=where) for where in ("cpu", "cuda:0"))
    for step in range(4):
        x, d = _inputs(9, 130, 67, step)
        host.update(x.cpu(), d.cpu(), 0.5)
        gpu.update(x, d, 0.5)
        if step == 1:  # and goes on from a state, on the other side
            gpu = pl.Tile.from_state(gpu.state(), device="cuda:0")
    assert _state(host) == _state(gpu)
    assert _state(gpu.to("cpu")) == _state(host)


def test_an_adapter_has_the_bits_of_the_built_in(soft: type[pl.devices.Device]) -> None:
    states = []
    for made in (pl.devices.SoftBounds, soft):
        config = pl.LRTTConfig(
            rank=3, visible=made(**SETTINGS), fast=made(dw_min=2e-4), transfer_every=7
        )
        tile = pl.Tile(D_SIZE, X_SIZE, config, seed=4, device="cuda:0")
        tile.gpu_products = "reproducible"
        seen = []
        for step in range(20):
            x, d = (torch.from_numpy(array).cuda() for array in make_batch(5, step))
            y, dx = (torch.from_dlpack(made) for made in (tile.forward(x), tile.backward(d)))
            seen += [y.cpu().numpy().tobytes(), dx.cpu().numpy().tobytes()]
            tile.update(x, d, 0.05)
        states.append((seen, _state(tile)))
    assert states[0] == states[1]


def test_the_first_launch_may_be_recorded(cache: Path) -> None:  # noqa: ARG001
    made = pl.devices.from_source(_copy("SoftBounds", "soft_bounds.h", "Recorded"))
    tiles = [
        pl.Tile(D_SIZE, X_SIZE, pl.SingleConfig(device=device), seed=4, device="cuda:0")
        for device in (pl.devices.SoftBounds(), made())
    ]
    with torch.cuda.stream(torch.cuda.Stream()):
        for tile in tiles:
            graph = pl.StepGraph(tile)
            for step in range(3):  # the update's kernel is compiled and loaded inside the record
                x, d = (torch.from_numpy(array).cuda() for array in make_batch(5, step))
                with graph:
                    tile.update(x, d, 0.5)
    assert _state(tiles[0]) == _state(tiles[1])


def test_the_contract_holds_on_a_gpu(soft: type[pl.devices.Device]) -> None:
    assert "every place gives the CPU's bits" in pl.devices.check(soft, on="cuda:0")


CHILD = """
import json, sys
import numpy as np
import pulsora as pl
from pulsora import _core
error = ""
try:
    made = pl.devices.from_source(sys.argv[1])
    host = pl.Tile(4, 5, pl.SingleConfig(device=made()))
    tile = pl.Tile(4, 5, pl.SingleConfig(device=made()), device="cuda:0")
    x, d = (_core.upload(np.ones((2, size), np.float32), "cuda:0") for size in (5, 4))
    tile.update(x, d, 0.1)
    tile.weights
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"
print(json.dumps({"error": error, **pl.devices.compile_counts()}))
"""


def _run(
    source: Path, cache: Path, program: str = CHILD, argument: str = "", **changes: str
) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PULSORA_CACHE_DIR": str(cache),
        **changes,
    }
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, str(source), argument],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def filled(cache: Path) -> Path:
    """A folder with the example's plugin, and its kernels to make, write and update an array."""
    folder = cache.parent / "filled"
    first = _run(EXAMPLE, folder)
    assert first["error"] == ""
    assert (first["compiled"], first["from_disk"]) == (4, 0)
    return folder


def _kernels(folder: Path) -> list[Path]:
    """The files of kernels, which begin with the code's name, in a folder."""
    return [file for file in folder.glob("*.plugin") if b"\n_Z" in file.read_bytes()[:300]]


def test_a_second_start_compiles_nothing(filled: Path) -> None:
    second = _run(EXAMPLE, filled, PULSORA_COMPILE="never")
    assert second["error"] == ""
    assert (second["compiled"], second["from_disk"]) == (0, 4)


def test_without_nvrtc_the_cpu_works_and_what_is_compiled_is_taken(
    filled: Path, tmp_path: Path
) -> None:
    nowhere = {"PULSORA_NVRTC": "/nowhere/libnvrtc.so"}
    assert _run(EXAMPLE, filled, **nowhere)["error"] == ""
    lacking = Path(shutil.copytree(filled, tmp_path / "lacking"))
    for file in _kernels(lacking):
        file.unlink()
    refused = _run(EXAMPLE, lacking, **nowhere)
    assert refused["error"].startswith("CompilerNotFound: the GPU kernel Construct of the device")
    assert "/nowhere/libnvrtc.so" in refused["error"]
    assert "pip install nvidia-cuda-nvrtc" in refused["error"]
    assert (refused["compiled"], refused["from_disk"]) == (0, 1)  # the plugin


def test_a_damaged_kernel_is_made_anew(filled: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(filled, tmp_path / "damaged"))
    files = _kernels(damaged)
    files[0].write_bytes(files[0].read_bytes()[:-1])
    again = _run(EXAMPLE, damaged)
    assert again["error"] == ""
    assert (again["compiled"], again["from_disk"]) == (1, 3)


def test_code_that_only_a_host_has_is_told_with_its_line(cache: Path, tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("QuadraticStep", "HostedStep")
    text = text.replace("#pragma once", "#pragma once\n#include <vector>")
    path = tmp_path / "hosted_step.h"
    path.write_text(text)
    line = text.splitlines().index("#include <vector>") + 1
    told = _run(path, cache)["error"]
    assert told.startswith("CompileError: ")
    assert f"hosted_step.h({line}): " in told
    assert "vector" in told


@pytest.mark.parametrize("cell", ["pair", "single"])
@pytest.mark.parametrize("name", ["PCMLike", "Exponential", "StretchedLoss"])
@pytest.mark.usefixtures("cache")
def test_property_61_a_noise_model_from_source_has_the_bits_of_the_cpu(
    name: str, cell: str
) -> None:
    own = ROOT / "examples" / "27_custom_noise_model" / "stretched_loss.h"
    files = {"PCMLike": NOISE_MODELS / "pcm_like.h", "Exponential": NOISE_MODELS / "exponential.h"}
    text = files.get(name, own).read_text().replace(name, f"{name}OnGpu")
    made = pl.noise_models.from_source(text, f"{name}OnGpu")
    models = [made()] if name == "StretchedLoss" else [made(), getattr(pl.noise_models, name)()]
    seen = []
    for model in models:
        config = pl.InferenceConfig(
            noise_model=model, cell=cell, stuck_low=0.02, compensation_read="exact"
        )
        for device in ("cpu", "cuda:0"):
            tile = pl.Tile(33, 41, config, seed=5, device=device)
            tile.weights = np.random.default_rng(1).normal(size=(33, 41)).astype(np.float32)
            tile.programming.program(number=3)
            for time in (3600.0, 1.0):
                tile.programming.drift(time)
                array = tile.programming
                seen += [array.conductances(which).tobytes() for which in ("programmed", "now")]
                seen.append(np.asarray(tile.weights).tobytes())
            aged = pl.Tile(
                33, 41, pl.SingleConfig(retention=model, retention_cell=cell), seed=5, device=device
            )
            aged.weights = np.random.default_rng(1).uniform(-0.1, 0.1, (33, 41)).astype(np.float32)
            aged.retention.drift(3600.0)
            seen.append(np.asarray(aged.weights).tobytes())
    each = len(seen) // (2 * len(models))
    for i in range(1, 2 * len(models)):
        assert seen[i * each : (i + 1) * each] == seen[:each]
