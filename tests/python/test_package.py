"""Needs of the installed package, and agreement of its files on name, version and content."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT
from pulsora import _core

if TYPE_CHECKING:
    from types import ModuleType

needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="needs binutils")


def script(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_wheel = script("check_wheel")
package_metadata = script("package_metadata")


def read_toml(path: Path) -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    with path.open("rb") as file:
        return tomllib.load(file)


@needs_readelf
def test_the_extension_needs_no_library_that_a_machine_may_lack() -> None:
    needed, folders = check_wheel.dynamic_section(Path(_core.__file__))
    has_cuda = bool(needed & check_wheel.CUBLAS)
    openmp = {"libgomp.so.1", "libomp.so.5"}
    extra = {name for name in needed if not name.startswith("ld-linux")}
    extra -= check_wheel.SYSTEM | openmp | check_wheel.CUBLAS
    assert extra == set()
    # An empty entry would be the current folder. Only cuBLAS lies where a search must be told.
    assert "" not in folders
    assert has_cuda or folders == []


@needs_readelf
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_the_check_of_wheels_finds_libraries_and_folders_of_this_machine(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()

    def complaints_about(*options: str | Path, cuda: bool = False) -> list[str]:
        command = ["cc", "-shared", "-x", "c", "/dev/null", "-o", package / "lib.so", "-x", "none"]
        subprocess.run([*command, *options], check=True)  # noqa: S603
        found: list[str] = check_wheel.complaints(package, cuda=cuda)
        return found

    assert check_wheel.complaints(package, cuda=False) == ["the wheel has no extension"]
    assert complaints_about("-Wl,-rpath,$ORIGIN") == []
    assert complaints_about("-Wl,-rpath,/opt/lib", cuda=True) == ["lib.so searches '/opt/lib'"]
    assert complaints_about("-Wl,-rpath,$ORIGIN:") == ["lib.so searches 'the current folder'"]
    nvidia = "$ORIGIN/../nvidia/cu13/lib"
    assert complaints_about(f"-Wl,-rpath,{nvidia}", cuda=True) == []
    assert complaints_about(f"-Wl,-rpath,{nvidia}") == [f"lib.so searches '{nvidia}'"]
    other = tmp_path / "libother.so.0"
    shutil.copy(package / "lib.so", other)
    assert complaints_about("-Wl,--no-as-needed", other) == [f"lib.so needs {other}"]


def refusal_of_wheels(pythons: str, *folders: Path) -> str:
    """The message of build_wheel.sh for PYTHONS that it refuses, with `folders` first on PATH."""
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    done = subprocess.run(  # noqa: S603
        [str(ROOT / "scripts" / "build_wheel.sh"), "cpu"],
        env={**os.environ, "PYTHONS": pythons, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_wheels_are_refused_before_the_first_if_a_python_is_missing(tmp_path: Path) -> None:
    # pyenv puts commands on PATH that find no Python, and knows others.
    write_program(tmp_path / "python3.97", f'exec "{sys.executable}" "$@"')
    for version in ("3.98", "3.99"):
        write_program(tmp_path / f"python{version}", "exit 127")
    write_program(tmp_path / "prefix/bin/python", f'exec "{sys.executable}" "$@"')
    write_program(tmp_path / "pyenv", f'[ "$2" = 3.98 ] && echo "{tmp_path}/prefix"')
    said = refusal_of_wheels(f"3.97 3.98 {sys.executable} 3.99", tmp_path)
    assert said.startswith("PYTHONS: no Python 3.99 is found, neither as python3.99 nor by pyenv; ")
    assert "pyenv install 3.99), give its path instead, or leave 3.99 out" in said
    assert f"{tmp_path}/python is no Python that runs" in refusal_of_wheels(f"{tmp_path}/python")


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("version_info", "is older than Python 3.10"),
        ("Python.h", "has no Python.h or no ensurepip"),
    ],
)
def test_wheels_are_refused_for_a_python_that_cannot_build(
    tmp_path: Path, fails: str, says: str
) -> None:
    python = write_program(
        tmp_path / "python",
        f'case "$2" in *executable*) echo "$0" ;; *{fails}*) exit 1 ;; esac',
    )
    assert refusal_of_wheels(str(python)).startswith(f"PYTHONS: {python} {says}")


def test_a_cuda_wheel_has_a_name_and_a_requirement_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    project = read_toml(ROOT / "pyproject.toml")["project"]
    monkeypatch.delenv("PULSORA_WHEEL", raising=False)
    plain = package_metadata.dynamic_metadata({}, project)
    assert plain == {"version": _core.__version__, "dependencies": []}
    monkeypatch.setenv("PULSORA_WHEEL", "cpu")
    assert package_metadata.dynamic_metadata({}, project) == plain
    monkeypatch.setenv("PULSORA_WHEEL", "cuda")
    cuda = package_metadata.dynamic_metadata({}, project)
    assert cuda["version"] == f"{plain['version']}+cu13"
    assert cuda["dependencies"] == ["nvidia-cublas>=13,<14"]
    monkeypatch.setenv("PULSORA_WHEEL", "rocm")
    with pytest.raises(ValueError, match="PULSORA_WHEEL = 'rocm': give 'cpu' or 'cuda'"):
        package_metadata.dynamic_metadata({}, project)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("libcublas.so.13: cannot open shared object file", "pip install 'nvidia-cublas>=13,<14'"),
        ("some other fault", "ImportError: some other fault"),
    ],
)
def test_an_import_without_cublas_says_what_to_install(missing: str, says: str) -> None:
    program = f"""
import sys
class Loader:
    def find_spec(self, name, path=None, target=None):
        if name == "pulsora._core":
            raise ImportError({missing!r})
sys.meta_path.insert(0, Loader())
import pulsora
"""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert says in last
    assert ("nvidia" in last) == ("cublas" in missing)


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {_core.__version__}\n" in text


def plain_name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {plain_name(name): version for name, version in pins}


def named_directly() -> set[str]:
    """Packages that pyproject.toml, the Makefile and the scripts ask pip for."""
    toml = read_toml(ROOT / "pyproject.toml")
    project = toml["project"]
    requirements = [*toml["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    for name in ("Makefile", "scripts/bootstrap.sh", ".ci/run"):
        if not (ROOT / name).exists():  # the source archive has no .ci
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        for words in re.findall(
            r"^\s*(?:\$\(PIP_INSTALL\)|\"\$\{pip\[@\]\}\"|.*pip .*install.* constraints\.txt) (.+)",
            text,
            re.MULTILINE,
        ):
            requirements += [
                word.strip("'\"") for word in words.split() if re.match(r"['\"]?[a-z]", word)
            ]
    return {plain_name(requirement) for requirement in requirements} - {"pulsora"}


def test_every_package_that_is_installed_has_its_version_fixed() -> None:
    pins = constraints()
    assert named_directly() - set(pins) == set()
    if version_of("torch").partition("+")[0] != pins["torch"]:
        pytest.skip("this environment was not made from constraints.txt")
    # What these packages bring with them here; pip has judged the markers already.
    seen: set[str] = set()
    waiting = named_directly()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        requirements = (importlib.metadata.requires(name) or []) if version_of(name) else []
        needed = {plain_name(text) for text in requirements if "extra ==" not in text}
        waiting |= {other for other in needed if version_of(other)} - seen
    assert seen - set(pins) == set()


def version_of(name: str) -> str:
    """The version that is installed here, or nothing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
