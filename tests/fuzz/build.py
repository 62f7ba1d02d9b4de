"""The fuzzed build of Pulsora, and the environment for its sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent / "cpp"
_SOURCES = [_FOLDER / "failing_new.cpp", _FOLDER / "failing_files.cpp"]
FAILING = "libfailing.so"
# Leaks: Python never frees all. Too much memory: a null pointer, which failing_new.cpp turns into
# bad_alloc. The order of the libraries: its operator new has to stand before the sanitizer's.
_ASAN_OPTIONS = (
    "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096:"
    "verify_asan_link_order=0:detect_stack_use_after_return=1"
)


class Build:
    """A build folder, or, without one, the package that Python finds by itself.

    Attributes:
        folder: The build folder.
        python: The command that starts Python.
        is_sanitized: Whether its extension needs the runtime of a sanitizer.
    """

    def __init__(self, folder: Path | None) -> None:
        self.python = [sys.executable]
        self._runtime: str | None = None
        self.folder = (folder or Path()).resolve()
        self._package = None if folder is None else str(self.folder / "python")
        if folder is not None:
            cache = (self.folder / "CMakeCache.txt").read_text(encoding="utf-8")
            if re.search(r"^PULSORA_SANITIZE:[A-Z]+=.*address", cache, re.MULTILINE):
                self._runtime = _runtime(cache)

    @property
    def is_sanitized(self) -> bool:
        return self._runtime is not None

    @property
    def has_programs(self) -> bool:
        """Whether the programs that libFuzzer drives were built."""
        return self._package is not None and (self.folder / "fuzz_json_text").exists()

    def environment(self, scratch: Path) -> dict[str, str]:
        """The environment of a process that uses this build, with memory and files that can fail.

        Args:
            scratch: Folder for the library that makes them fail.
        """
        environment = {"OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1", **os.environ}
        if self._package:
            environment["PYTHONPATH"] = self._package
        preload = [str(_failing(scratch)), self._runtime, os.environ.get("LD_PRELOAD")]
        environment["LD_PRELOAD"] = ":".join(filter(None, preload))
        if self._runtime:
            environment["ASAN_OPTIONS"] = _ASAN_OPTIONS
            environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
        return environment


def _runtime(cache: str) -> str:
    """The library of the address sanitizer, of the compiler that made the build."""
    compiler = re.search(r"^CMAKE_CXX_COMPILER:[A-Z]+=(.*)", cache, re.MULTILINE)
    assert compiler
    for name in ("libclang_rt.asan-x86_64.so", "libasan.so"):
        command = [compiler.group(1), f"-print-file-name={name}"]
        found = subprocess.run(  # noqa: S603
            command, check=True, capture_output=True, text=True
        ).stdout.strip()
        if Path(found).is_absolute():
            return str(Path(found).resolve())
    raise FileNotFoundError(f"{compiler.group(1)} has no shared library of the address sanitizer")


def _failing(folder: Path) -> Path:
    """Compiles the library of calls that can fail into a folder, which takes a second."""
    library = folder / FAILING
    if not library.exists():
        compiler = os.environ.get("CXX", "c++")
        command = [compiler, "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-o", library]
        subprocess.run([*command, *_SOURCES, "-ldl"], check=True)  # noqa: S603
    return library
