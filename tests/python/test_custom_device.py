"""The custom device of the examples builds and fulfils the contract of every device model."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT, cmake_refuses, examples_build, needs_examples_build, run

if TYPE_CHECKING:
    from pathlib import Path

HEADER = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"


@needs_examples_build
def test_custom_device_fulfils_the_contract() -> None:
    report = run(examples_build() / "rpucuda_tests", "--gtest_filter=*/QuadraticStep-*Cuda*")
    assert "30 tests from 5 test suites ran" in report
    assert "[  SKIPPED ] 1 test" in report  # the golden value


def test_custom_device_header_is_short() -> None:
    assert len(HEADER.read_text().splitlines()) <= 60


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("static float granularity(", "needs: static float granularity(const Params &)"),
        ("PULSORA_HD static float pulse(", "needs: PULSORA_HD static float pulse(float w, bool up"),
        ("struct Params : PulsedParams", "needs: struct Params : PulsedParams"),
    ],
)
def test_a_missing_member_is_named(line: str, message: str, tmp_path: Path) -> None:
    """A model that lacks one of its members, here by another name; the whole one compiles."""
    whole = HEADER.read_text().replace("<pulsora/", "<")
    assert line in whole
    other = line.replace("granularity", "fineness").replace("pulse(", "push(")
    lacking = whole.replace(line, other.replace(": PulsedParams", ""))
    for name, text in (("whole.h", whole), ("lacking.h", lacking)):
        (tmp_path / name).write_text(text)
        (tmp_path / "model.cpp").write_text(
            f'#include "{name}"\n#include "devices/model_contract.h"\n'
            "static_assert(pulsora::isDeviceModel<pulsora::QuadraticStep>());\n"
        )
        done = subprocess.run(  # noqa: S603
            [  # noqa: S607
                "c++", "-std=c++17", "-fsyntax-only", "-I", str(ROOT / "src" / "rpucuda"),
                str(tmp_path / "model.cpp"),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == (name == "whole.h"), done.stderr
    assert message in " ".join(done.stderr.replace('"', "").split())


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("QuadraticStep", "is not of the form Name=/absolute/path.h"),
        (f"quadraticStep={HEADER}", "a Name that begins with a capital letter"),
        ("QuadraticStep=relative.h", "is not of the form Name=/absolute/path.h"),
        ("QuadraticStep=/nowhere/model.h", "QuadraticStep: there is no file /nowhere/model.h"),
        (f"SoftBounds={HEADER}", "there is a device SoftBounds already"),
    ],
)
def test_a_wrong_entry_is_refused_with_a_reason(tmp_path: Path, entry: str, message: str) -> None:
    assert message in cmake_refuses(f"PULSORA_EXTRA_DEVICES={entry}", tmp_path)
