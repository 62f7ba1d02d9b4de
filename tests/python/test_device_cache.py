"""The cache of compiled device models: what is reused, what is made anew, what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from device_workshop import EXAMPLE, Workshop, finished

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
    pytest.mark.xdist_group("device cache"),  # whose tests share what is compiled once
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One whose folder has the compiled example, made by three processes that started at once."""
    made = Workshop(tmp_path_factory.mktemp("workshop"))
    reports = [finished(child) for child in [made.start(EXAMPLE) for _ in range(3)]]
    assert [report["error"] for report in reports] == [""] * 3
    assert sorted(report["compiled"] for report in reports) == [0, 0, 1]
    assert sorted(report["from_disk"] for report in reports) == [0, 1, 1]
    assert made.compilations() == 1
    return made


def test_a_second_start_compiles_nothing(workshop: Workshop) -> None:
    before = workshop.compilations()
    report = workshop.run(EXAMPLE)
    assert report == {
        "error": "", "warnings": [], "compiled": 0, "from_disk": 1, "from_memory": 0,
    }  # fmt: skip
    assert workshop.compilations() == before


def test_a_compiled_model_needs_no_compiler(workshop: Workshop, tmp_path: Path) -> None:
    for changes in ({"CXX": "", "PATH": str(tmp_path)}, {"PULSORA_COMPILE": "never"}):
        report = workshop.run(EXAMPLE, **changes)
        assert (report["error"], report["from_disk"]) == ("", 1)


def test_without_a_compiler_it_is_said_what_to_install(workshop: Workshop, tmp_path: Path) -> None:
    nothing = {"PULSORA_CACHE_DIR": str(tmp_path / "empty")}
    error = workshop.run(EXAMPLE, **nothing, CXX="", PATH=str(tmp_path))["error"]
    assert error.startswith("CompilerNotFound: ")
    assert "neither c++ nor g++ nor clang++ is on PATH" in error
    assert "apt install g++" in error
    error = workshop.run(EXAMPLE, **nothing, CXX="no-such-compiler -v")["error"]
    assert error.startswith("CompilerNotFound: ")
    assert "CXX names the C++ compiler 'no-such-compiler', which is not there" in error
    error = workshop.run(EXAMPLE, **nothing, PULSORA_COMPILE="never")["error"]
    assert error.startswith("CompilerNotFound: ")
    assert "PULSORA_COMPILE is 'never'" in error
    assert "PULSORA_COMPILE is 'no'" in workshop.run(EXAMPLE, PULSORA_COMPILE="no")["error"]


def test_a_broken_file_is_made_anew_with_one_warning(workshop: Workshop) -> None:
    (file,) = workshop.cache.glob("*.plugin")
    whole = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert workshop.cache.stat().st_mode & 0o777 == 0o700
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    report = workshop.run(EXAMPLE)
    assert (report["error"], report["compiled"], report["from_disk"]) == ("", 1, 0)
    (warning,) = report["warnings"]
    assert f"{file} is damaged; it is removed and made anew" in warning
    assert workshop.run(EXAMPLE)["from_disk"] == 1
    file.chmod(0o666)
    assert "another user" in workshop.run(EXAMPLE, PULSORA_COMPILE="never")["warnings"][0]


def test_a_folder_that_cannot_be_written_is_done_without(workshop: Workshop) -> None:
    report = workshop.run(EXAMPLE, PULSORA_CACHE_DIR="/dev/null/cache")
    assert (report["error"], report["compiled"]) == ("", 1)
    (warning,) = report["warnings"]
    assert "cannot be stored in /dev/null/cache" in warning


def test_folders_of_others_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    before = workshop.compilations()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    error = workshop.run(EXAMPLE, PULSORA_CACHE_DIR=str(shared))["error"]
    assert error.startswith(f"ConfigError: the cache folder {shared} may be written to by other")
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    else:
        foreign = ROOT.__class__("/usr")
    error = workshop.run(EXAMPLE, PULSORA_CACHE_DIR=str(foreign))["error"]
    assert error.startswith(f"ConfigError: the cache folder {foreign} belongs to another user")
    assert workshop.compilations() == before


def test_the_command_compiles_ahead(workshop: Workshop, tmp_path: Path) -> None:
    def pulsora(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pulsora", "compile", *arguments],
            env=workshop.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip

    before = workshop.compilations()
    done = pulsora(EXAMPLE)
    assert done.returncode == 0, done.stderr
    written = done.stdout.split("written: ")[1].strip()
    assert [written] == [str(path) for path in workshop.cache.glob("*.plugin")]
    assert workshop.compilations() <= before + 1
    bad = tmp_path / "bad.h"
    bad.write_text(EXAMPLE.read_text().replace("return {common", "return {comon"))
    done = pulsora(bad)
    assert done.returncode == 2
    assert "\nbad.h:" in done.stderr
    assert pulsora(EXAMPLE, "--isa", "V9").returncode == 2
