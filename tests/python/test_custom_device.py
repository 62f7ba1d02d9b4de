"""The custom device of the examples builds and fulfils the contract of every device model."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"


def run(*command: str | Path) -> str:
    """Run a command; its output is part of the failure if it fails."""
    done = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake, a C++ compiler and GoogleTest")
def test_custom_device_fulfils_the_contract(tmp_path: Path) -> None:
    run(
        *("cmake", "-S", ROOT, "-B", tmp_path, "-DPULSORA_PYTHON=OFF", "-DPULSORA_CUDA=OFF"),
        *("-DPULSORA_BENCHMARKS=OFF", "-DPULSORA_CPU_ISAS=V2", "-DPULSORA_DEVICES=ConstantStep"),
        "-DPULSORA_TEST_SOURCES=device_cells_test.cpp;device_updates_test.cpp;device_events_test.cpp",
        f"-DPULSORA_EXTRA_DEVICES=QuadraticStep={HEADER}",
    )
    run("cmake", "--build", tmp_path, "--parallel", "2", "--target", "rpucuda_tests")
    report = run(tmp_path / "rpucuda_tests", "--gtest_filter=*/QuadraticStep")
    assert "20 tests from 3 test suites ran" in report
    assert "[  SKIPPED ] 1 test" in report  # the golden value


def test_custom_device_header_is_short() -> None:
    assert len(HEADER.read_text().splitlines()) <= 60


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("QuadraticStep", "is not of the form Name=/absolute/path.h"),
        ("QuadraticStep=relative.h", "is not of the form Name=/absolute/path.h"),
        ("QuadraticStep=/nowhere/model.h", "QuadraticStep: there is no file /nowhere/model.h"),
        (f"SoftBounds={HEADER}", "there is a device SoftBounds already"),
    ],
)
def test_a_wrong_entry_is_refused_with_a_reason(tmp_path: Path, entry: str, message: str) -> None:
    done = subprocess.run(  # noqa: S603
        [  # noqa: S607
            "cmake", "-S", str(ROOT), "-B", str(tmp_path),
            "-DPULSORA_PYTHON=OFF", "-DPULSORA_CUDA=OFF", "-DPULSORA_TESTS=OFF",
            "-DPULSORA_BENCHMARKS=OFF", f"-DPULSORA_EXTRA_DEVICES={entry}",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
