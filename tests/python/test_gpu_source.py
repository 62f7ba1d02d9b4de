"""Device models and other texts compiled by NVRTC without a GPU, and errors for missing parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import pulsora as pl
from conftest import ROOT
from pulsora import _core, runtime

if TYPE_CHECKING:
    from pathlib import Path


def _has_nvrtc() -> bool:
    try:
        _core.nvrtc_version()
    except pl.CompilerNotFound:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="needs NVRTC")
needs_no_gpu = pytest.mark.skipif(pl.cuda_device_count() > 0, reason="for machines without a GPU")

EXAMPLE = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"
TEXT = 'extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 1.0f; }\n'


def _child(program: str, **changes: str) -> str:
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **changes,
    }  # fmt: skip
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c",
         f"import pulsora as pl\nfrom pulsora import _core, runtime\n{program}"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


@needs_nvrtc
def test_a_text_is_compiled_for_an_architecture() -> None:
    template = "template <class T> __global__ void clear(T *out) { *out = T{}; }\n"
    made = runtime.compile_source(
        '#include "more.h"\n' + TEXT, kernels=["fill", "clear<long>"], arch="sm_90",
        headers={"more.h": template},
    )  # fmt: skip
    assert made.code.startswith(b"\x7fELF")
    assert made.names["fill"] == "fill"
    assert made.names["clear<long>"].startswith("_Z5clear")
    newer = runtime.compile_source(TEXT, kernels=["fill"], arch="sm_999")
    assert b".visible .entry fill" in newer.code  # PTX, for the driver


@needs_nvrtc
def test_a_mistake_is_told_with_file_and_line() -> None:
    with pytest.raises(pl.CompileError, match=r'(?m)^wrong\.cu\(2\): error: .*"nothing"'):
        runtime.compile_source(
            TEXT + "__device__ int f() { return nothing; }\n", kernels=["fill"], arch="sm_90",
            file="wrong.cu",
        )  # fmt: skip
    with pytest.raises(pl.CompileError, match='identifier "empty" is undefined'):
        runtime.compile_source(TEXT, kernels="empty", arch="sm_90")
    for arch in ("90", "sm_", "sm_20", "compute_90", "sm_90; rm"):
        with pytest.raises(pl.ConfigError, match=f"arch is '{arch}'"):
            runtime.compile_source(TEXT, kernels=["fill"], arch=arch)


def test_only_code_is_loaded() -> None:
    with pytest.raises(TypeError, match="binary is of type str; give what compile_source"):
        runtime.load("abc")  # type: ignore[arg-type]


@needs_nvrtc
def test_kernels_of_a_model_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PULSORA_CACHE_DIR", str(tmp_path / "cache"))
    text = EXAMPLE.read_text().replace("\n", "\r\n")
    counts = []
    for source in (EXAMPLE.read_text(), text):
        before = pl.devices.compile_counts()
        files = _core.compile_ahead_for_gpu(source, "", "", "sm_90")
        after = pl.devices.compile_counts()
        counts.append([after[name] - before[name] for name in ("compiled", "from_disk")])
    assert counts == [[len(set(files)), 0], [0, len(set(files))]]
    with pytest.raises(pl.ConfigError, match="arch is 'sm_75'; device models run on sm_80"):
        _core.compile_ahead_for_gpu(text, "", "", "sm_75")
    wrong = EXAMPLE.read_text().replace("p.dw_min_std, xi", "p.dw_min_sdt, xi")
    line = next(i for i, row in enumerate(wrong.splitlines(), 1) if "dw_min_sdt" in row)
    with pytest.raises(pl.CompileError, match=rf"(?m)^my_step\.h\({line}\): error: .*dw_min_sdt"):
        _core.compile_ahead_for_gpu(wrong, "", "my_step.h", "sm_90")


@needs_nvrtc
def test_a_noise_model_has_one_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULSORA_CACHE_DIR", str(tmp_path / "cache"))
    path = ROOT / "examples" / "27_custom_noise_model" / "stretched_loss.h"
    text = path.read_text()
    files = _core.compile_ahead_for_gpu(text, "", "", "sm_90", "noise_model")
    assert len(files) == 1
    assert _core.compile_ahead_for_gpu(text, "", "", "sm_90", "noise_model") == files
    with pytest.raises(pl.CompileError, match=r"PulsedParams|Cell"):  # no device model
        _core.compile_ahead_for_gpu(text, "", "", "sm_90", "device")
    with pytest.raises(pl.ConfigError, match="arch is 'sm_75'; noise models run on sm_80"):
        _core.compile_ahead_for_gpu(text, "", "", "sm_75", "noise_model")
    for name in ("hermes", "re_ram_cmo", "shift"):
        own = (ROOT / "src" / "rpucuda" / "noise_models" / f"{name}.h").read_text()
        struct = name.title().replace("_", "").replace("ReRamCmo", "ReRamCMO")
        own = own.replace(struct, f"{struct}Own")
        assert (
            len(_core.compile_ahead_for_gpu(own, f"{struct}Own", "", "sm_90", "noise_model")) == 1
        )


@needs_nvrtc
def test_files_of_the_current_folder_are_no_part_of_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PULSORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.h").write_text("constexpr float kStep = 0.001f;\n")
    text = '#include "params.h"\n' + EXAMPLE.read_text()
    with pytest.raises(pl.CompileError, match=r'could not open source file "params\.h"'):
        _core.compile_ahead_for_gpu(text, "", "", "sm_90")


@pytest.mark.nightly
@needs_nvrtc
def test_processes_that_start_at_once_compile_each_kernel_once(tmp_path: Path) -> None:
    program = (
        "import json, sys\nfrom pulsora import _core, devices\n"
        "files = _core.compile_ahead_for_gpu(open(sys.argv[1]).read(), '', '', 'sm_90')\n"
        "print(json.dumps([len(set(files)), devices.compile_counts()]))"
    )
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PULSORA_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    children = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", program, str(EXAMPLE)],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    reports = [json.loads(child.communicate(timeout=300)[0]) for child in children]
    files = reports[0][0]
    assert [count for count, _ in reports] == [files] * 3
    assert sum(counts["compiled"] for _, counts in reports) == files
    assert sum(counts["from_disk"] for _, counts in reports) == 2 * files


def test_without_nvrtc_it_is_told_what_to_install() -> None:
    told = _child(
        f"runtime.compile_source({TEXT!r}, kernels=['fill'], arch='sm_90')",
        PULSORA_NVRTC="/nowhere/libnvrtc.so",
    )
    assert "CompilerNotFound: there is no NVRTC" in told
    assert "/nowhere/libnvrtc.so" in told
    assert "pip install nvidia-cuda-nvrtc" in told


@needs_no_gpu
def test_without_a_driver_it_is_told_what_was_looked_for() -> None:
    for call in (
        lambda: runtime.zeros(3, "float32"), lambda: runtime.load(b"code"), runtime.Stream,
        lambda: runtime.compile_source(TEXT, kernels=["fill"]),
    ):  # fmt: skip
        with pytest.raises(pl.DeviceError, match=r"libcuda\.so\.1|no CUDA-capable device"):
            call()
