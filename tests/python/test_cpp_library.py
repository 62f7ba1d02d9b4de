"""The library in C++ projects: installed or as sources, with own models, and Python's files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, ROOT, build_folder, cmake_refuses, make_tile, run, train

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from conftest import CppBuild

pytestmark = pytest.mark.skipif(
    not shutil.which("cmake"), reason="needs CMake, a C++ compiler and GoogleTest"
)

EXAMPLES = ROOT / "examples" / "cpp"
STRICT = "-Wall -Wextra -Wconversion -Wshadow -Werror"
SMALL = ("-DPULSORA_CUDA=OFF", "-DPULSORA_CPU_ISAS=V2", "-DPULSORA_DEVICES=ConstantStep;SoftBounds")


def build(source: Path, folder: Path, cpp_build: CppBuild, *settings: str) -> Path:
    """A user's project, built against the installed library."""
    run("cmake", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={cpp_build.prefix}", *settings)
    run("cmake", "--build", folder, "--parallel", "2")
    return folder


@pytest.mark.nightly
def test_a_project_may_contain_the_sources(tmp_path: Path) -> None:
    """A small build: instruction set V2 and two models. Warnings are errors only on request."""
    run(
        *("cmake", "-S", ROOT / "tests" / "installed", "-B", tmp_path, f"-DPULSORA_SOURCE={ROOT}"),
        *SMALL,
    )
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    ours = [c["command"] for c in commands if c["file"].startswith(f"{ROOT / 'src'}/")]
    assert len(ours) > 20
    assert not any("-Werror" in command for command in ours)
    run("cmake", "--build", tmp_path, "--parallel", "2")
    assert "may rely on it" in run(tmp_path / "consumer")


def strict_project(folder: Path) -> None:
    """A project with warnings as errors, Unity build and LTO, configured in the folder."""
    run(
        *("cmake", "-S", ROOT / "tests" / "installed", "-B", folder, f"-DPULSORA_SOURCE={ROOT}"),
        *SMALL,
        f"-DCMAKE_CXX_FLAGS={STRICT}",
        *("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON"),
    )


@pytest.mark.nightly
def test_a_strict_project_may_contain_the_sources(tmp_path: Path) -> None:
    """The project's warnings, all of them errors, its Unity build and its LTO hold for Pulsora."""
    folder = tmp_path / "a project"
    strict_project(folder)
    run("cmake", "--build", folder, "--parallel", "2")
    assert "may rely on it" in run(folder / "consumer")


def warnings_by_source(folder: Path) -> dict[str, set[str]]:
    """The options of warnings of each of Pulsora's sources, generated ones included."""
    found = {}
    for each in json.loads((folder / "compile_commands.json").read_text()):
        if name := re.search(r"/(src/rpucuda|generated)/(.+)$", each["file"]):
            found[name[2]] = {one for one in each["command"].split() if one.startswith("-W")}
    return found


def test_this_build_compiles_the_sources_as_strictly_as_a_strict_project(tmp_path: Path) -> None:
    """The warnings of each source are those of this build; the nightly test adds LTO."""
    built = build_folder()
    if built is None:
        pytest.skip("needs a whole build of the library; `make test` makes one")
    strict_project(tmp_path)
    there, here = warnings_by_source(tmp_path), warnings_by_source(built)
    assert len(there) > 100
    for name, options in there.items():
        assert options >= set(STRICT.split())
        assert here[name] == options, name


def configured(source: Path, folder: Path, *settings: str) -> tuple[bool, str]:
    """Whether `cmake` succeeds, and its messages."""
    done = subprocess.run(  # noqa: S603
        ["cmake", "-S", source, "-B", folder, *settings],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode == 0, " ".join(done.stderr.split())


@pytest.mark.slow
def test_as_part_of_a_project_nothing_is_installed_unless_asked_for(tmp_path: Path) -> None:
    settings = (f"-DPULSORA_SOURCE={ROOT}", *SMALL)
    installed = ROOT / "tests" / "installed"
    made, text = configured(installed, tmp_path / "build", *settings, "-DBUILD_SHARED_LIBS=ON")
    assert made
    assert "CMake Warning" in text
    assert "BUILD_SHARED_LIBS is ON, but Pulsora is a static library" in text
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "prefix")
    assert not (tmp_path / "prefix").exists()
    asked = (*settings, "-DPULSORA_INSTALL=ON", "-DBUILD_SHARED_LIBS=OFF")
    assert configured(installed, tmp_path / "build", *asked) == (True, "")
    rules = (tmp_path / "build" / "pulsora" / "cmake_install.cmake").read_text()
    assert "libpulsora.a" in rules
    assert "pulsoraConfig.cmake" in rules


def test_by_itself_it_is_no_shared_library(tmp_path: Path) -> None:
    text = cmake_refuses("BUILD_SHARED_LIBS=ON", tmp_path)
    assert "BUILD_SHARED_LIBS is ON, but Pulsora is a static library" in text


@pytest.mark.slow
def test_a_project_of_c_alone_is_told_what_to_add(cpp_build: CppBuild, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(plain LANGUAGES C)\n"
        "find_package(pulsora REQUIRED)\n"
    )
    prefix = f"-DCMAKE_PREFIX_PATH={cpp_build.prefix}"
    made, text = configured(tmp_path, tmp_path / "build", prefix)
    assert not made
    assert "Pulsora is a C++ library, and this project has not enabled C++" in text
    assert "OpenMP" not in text


@pytest.mark.slow
def test_a_project_may_use_the_installed_library(cpp_build: CppBuild) -> None:
    assert "may rely on it" in run(cpp_build.folder / "consumer")
    # Low-rank updates by the headers that are installed, in a program that knows no tiles.
    assert "worked out by hand" in run(cpp_build.folder / "low_rank")


@pytest.mark.slow
def test_kernels_of_a_device_compile_where_warnings_are_errors(cpp_build: CppBuild) -> None:
    commands = json.loads((cpp_build.folder / "compile_commands.json").read_text())
    kernels = [c["command"] for c in commands if "/consumer_DoubledStep_" in c["command"]]
    assert kernels
    is_gcc = "Free Software Foundation" in run(kernels[0].split()[0], "--version")
    for command in kernels:
        assert STRICT in command
        assert "/Unity/" in command
        assert "-flto" in command
        # Without it GCC 12 refuses its own headers, in builds for the instruction set V4.
        assert ("-Wno-maybe-uninitialized" in command) == is_gcc


@pytest.mark.slow
def test_public_headers_and_what_they_include_are_installed(cpp_build: CppBuild) -> None:
    include = cpp_build.prefix / "include"
    assert [path.name for path in include.iterdir()] == ["pulsora"]
    installed = {path.relative_to(include / "pulsora") for path in include.rglob("*.h")}
    public = {path for path in installed if path.parts[0] != "detail"}
    source = ROOT / "include" / "pulsora"
    assert public - {Path("version.h")} == {p.relative_to(source) for p in source.rglob("*.h")}
    assert Path("detail/tile/tile_impl.h") not in installed
    for header in installed:
        for name in re.findall(
            r'#\s*include "([^"]+)"', (include / "pulsora" / header).read_text()
        ):
            assert name.startswith("pulsora/detail/"), header
            assert (include / name).is_file(), header


@pytest.mark.slow
def test_every_public_header_compiles_by_itself(cpp_build: CppBuild, tmp_path: Path) -> None:
    include = cpp_build.prefix / "include"
    names = [p.relative_to(include) for p in include.rglob("*.h") if "detail" not in p.parts]
    for name in sorted(names):
        (tmp_path / "alone.cpp").write_text(f"#include <{name}>\n")
        run("c++", "-std=c++17", "-fsyntax-only", "-I", include, tmp_path / "alone.cpp")


@pytest.mark.slow
def test_the_example_trains_and_python_reads_its_file(cpp_build: CppBuild, tmp_path: Path) -> None:
    program = build(EXAMPLES / "01_train_tile", tmp_path / "build", cpp_build) / "train_tile"
    text = run(program, cwd=tmp_path)
    assert re.search(r"squared error 0\.\d+ before training, 0\.0\d+ after", text)
    assert "the same bits" in text
    tile = pl.Tile.load(tmp_path / "tile.safetensors")
    assert (tile.d_size, tile.x_size) == (4, 8)
    assert tile.counters["update_samples"] == 201 * 16


@pytest.mark.slow
def test_the_example_tests_a_device_of_its_own(cpp_build: CppBuild, tmp_path: Path) -> None:
    # Kernels take five times as long to compile if they are optimised.
    folder = build(EXAMPLES / "02_device_test", tmp_path, cpp_build, "-DCMAKE_BUILD_TYPE=Debug")
    assert "3 tests from 1 test suite ran" in run(folder / "device_test")
    assert "100% tests passed" in run("ctest", "--test-dir", folder)


@pytest.mark.slow
def test_a_step_by_hand_has_the_bits_of_the_tile(cpp_build: CppBuild, tmp_path: Path) -> None:
    folder = build(EXAMPLES / "03_lrtt_step", tmp_path, cpp_build)
    assert "the same bits as the tile's" in run(folder / "lrtt_step")


@pytest.mark.slow
def test_linear_algebra_by_itself(cpp_build: CppBuild, tmp_path: Path) -> None:
    folder = build(EXAMPLES / "04_linear_algebra", tmp_path, cpp_build)
    assert "16 bits hold the factor" in run(folder / "linear_algebra")


@pytest.mark.slow
def test_the_example_for_a_gpu_says_that_there_is_none(cpp_build: CppBuild, tmp_path: Path) -> None:
    # scripts/gpu_check.sh builds it against a library with CUDA.
    folder = build(EXAMPLES / "05_gpu", tmp_path, cpp_build)
    assert run(folder / "on_gpu").startswith("no GPU: ")


@pytest.mark.slow
def test_the_example_programs_an_array(cpp_build: CppBuild, tmp_path: Path) -> None:
    folder = build(EXAMPLES / "06_programmed_array", tmp_path, cpp_build)
    text = run(folder / "programmed_array")
    assert "the same bits" in text
    plain, compensated = re.findall(r"(0\.\d+) +(0\.\d+)", text)
    assert float(compensated[1]) < 0.5 * float(plain[1])


def batch_of(rows: int, cols: int, step: int) -> NDArray[np.float32]:
    """The inputs of tests/installed/go_on.cpp."""
    i, j = np.indices((rows, cols))
    return (((7 * i + 3 * j + step) % 11 - 5) / 8).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single", "lrtt"])
def test_property_38_cpp_and_python_go_on_from_files_of_each_other(
    name: str, cpp_build: CppBuild, tmp_path: Path
) -> None:
    tile = make_tile(CONFIGS[name](), seed=2**63 - 1)
    train(tile, 2)
    tile.save(tmp_path / "python")
    run(cpp_build.folder / "go_on", tmp_path / "python", tmp_path / "cpp")
    other = pl.Tile.load(tmp_path / "cpp", threads=1)
    for step in range(3):
        x, d = batch_of(4, tile.x_size, step), batch_of(4, tile.d_size, step)
        tile.forward(x)
        tile.backward(d)
        tile.update(x, d, 0.05)
    mine, theirs = tile.state(), other.state()
    assert theirs.values == mine.values
    assert theirs.tensors.keys() == mine.tensors.keys()
    for key, array in mine.tensors.items():
        assert theirs.tensors[key].dtype == array.dtype
        assert theirs.tensors[key].tobytes() == array.tobytes(), key


@pytest.mark.slow
def test_a_damaged_file_is_refused_by_name(cpp_build: CppBuild, tmp_path: Path) -> None:
    make_tile(CONFIGS["single"]()).save(tmp_path / "whole")
    cut = tmp_path / "cut"
    cut.write_bytes((tmp_path / "whole").read_bytes()[:-1])
    done = subprocess.run(  # noqa: S603
        [cpp_build.folder / "go_on", cut, tmp_path / "never"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"{cut}: this is not a complete safetensors file")
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "app quadratic x.h",
            "'quadratic' is not the name of a model, which begins with a capital",
        ),
        ("app Nowhere nowhere.h", "Nowhere: there is no file"),
        ("nothing QuadraticStep x.h", "there is no target 'nothing'"),
        ("archive QuadraticStep x.h", "archive is of type STATIC_LIBRARY"),
    ],
)
def test_a_wrong_device_is_refused_with_a_reason(
    call: str, message: str, cpp_build: CppBuild, tmp_path: Path
) -> None:
    (tmp_path / "app.cpp").write_text("int main() {}\n")
    (tmp_path / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.24)
project(app LANGUAGES CXX)
find_package(pulsora REQUIRED)
add_executable(app app.cpp)
add_library(archive STATIC app.cpp)
pulsora_add_device({call})
""")
    prefix = f"-DCMAKE_PREFIX_PATH={cpp_build.prefix}"
    made, text = configured(tmp_path, tmp_path / "build", prefix)
    assert not made
    assert message in text


@pytest.mark.parametrize("name", ["01_train_tile/main.cpp", "02_device_test/device_test.cpp"])
def test_the_first_examples_are_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= 65
