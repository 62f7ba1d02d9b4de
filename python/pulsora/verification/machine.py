"""Facts of a machine and an installation: instruction sets, libraries, versions, modules."""

from __future__ import annotations

import ast
import ctypes
import importlib.metadata
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pulsora import _core
from pulsora._internal.threads import chosen_threads

__all__ = [
    "core_libraries",
    "describe",
    "instruction_set_faults",
    "library_faults",
    "mapped_libraries",
    "module_faults",
    "version_faults",
]

PACKAGE = Path(__file__).resolve().parents[1]
_V4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_FLAGS = {  # of /proc/cpuinfo; each instruction set needs the flags of those before it, too
    "V2": {"sse4_2", "popcnt"},
    "V3": {"avx2", "fma", "bmi1", "bmi2"},
    "V4": _V4,
    "V4Popcnt": {"avx512_vpopcntdq", "avx512_vnni"},
}
_LIBRARY = re.compile(r"(lib(?:cublas|cublasLt|cudart|nvrtc))\.so\.(\d+)")


def cpu_flags() -> set[str] | None:
    """Flags of the processor as Linux names them; None where they are not known."""
    info = Path("/proc/cpuinfo")
    if platform.machine().lower() not in {"x86_64", "amd64"} or not info.is_file():
        return None
    found = re.search(r"^flags\s*:(.*)$", info.read_text(), re.MULTILINE)
    return set(found[1].split()) if found else None


def instruction_set_faults(used: str) -> list[str]:
    """Differences between the instruction sets of the processor, of the core, and the one in use.

    Args:
        used: The instruction set of a new tile.
    """
    found, compiled, flags = (
        _core.instruction_sets(),
        _core.compiled_instruction_sets(),
        cpu_flags(),
    )
    faults = []
    if flags is not None:
        have = []
        for name in compiled:
            if not _FLAGS[name] <= flags:
                break
            have.append(name)
        if found != have:
            faults.append(
                f"the core reports {', '.join(found) or 'none'}; the processor and this build have "
                f"{', '.join(have) or 'none'}"
            )
    if used != (found or [""])[-1]:
        faults.append(f"tiles use {used}; the best that was found is {(found or ['none'])[-1]}")
    return faults


def core_libraries() -> dict[str, int]:
    """CUDA libraries that the core was linked with, and their major versions."""
    data = Path(str(_core.__file__)).read_bytes()
    names = re.findall(rb"(lib(?:cublas|cublasLt|cudart))\.so\.(\d+)\x00", data)
    return {name.decode(): int(major) for name, major in names}


def mapped_libraries() -> dict[tuple[str, int], str]:
    """CUDA libraries of this process, by name and major version, and their paths."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        return {}
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()}
    found = {}
    for path in sorted(paths):
        if name := _LIBRARY.match(Path(path).name):
            found[name[1], int(name[2])] = path
    return found


def driver_version() -> int:
    """Major version of CUDA that the driver can run; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        failed = driver.cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return 0 if failed else version.value // 1000


def library_faults() -> list[str]:
    """CUDA libraries that do not belong together; none for a build without CUDA."""
    wanted, mapped, driver = core_libraries(), mapped_libraries(), driver_version()
    faults = []
    tag = re.search(r"\+cu(\d+)", _core.__version__)
    for name, major in wanted.items():
        if tag and int(tag[1]) != major:
            faults.append(f"the core is of CUDA {tag[1]} and was linked with {name} {major}")
        if (name, major) not in mapped:
            others = [f"{other} {number}" for other, number in mapped if other == name]
            faults.append(
                f"the core needs {name} {major}; this process has {', '.join(others) or 'none'}"
            )
        if driver and driver < major:
            faults.append(f"the core is of CUDA {major}; the driver runs CUDA {driver}")
    for (name, major), path in mapped.items():
        beside = mapped.get(("libcublasLt", major))
        if name == "libcublas" and beside and Path(beside).parent != Path(path).parent:
            faults.append(f"{path} and {beside} are of two installations")
    return faults


def version_faults(golden_version: str) -> list[str]:
    """Differences between the versions of the core, of the Python files and of the package."""
    core = _core.__version__.partition("+")[0]
    faults = []
    if core != golden_version:
        faults.append(f"the core is of version {core}, the Python files are of {golden_version}")
    installed = _installed_version()
    if installed and installed.partition("+")[0] != core:
        faults.append(f"the core is of version {core}, the installed package is {installed}")
    stub = PACKAGE / "_core.pyi"
    if stub.is_file():
        tree = ast.parse(stub.read_text(encoding="utf-8"))
        named = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        lacking = sorted(name for name in named if not hasattr(_core, name))
        if lacking:
            faults.append(f"the core lacks {', '.join(lacking)}, which the Python files name")
    return faults


def _installed_version() -> str:
    """Version of the installed distribution if it is this package, else an empty text."""
    try:
        found = importlib.metadata.distribution("pulsora")
    except importlib.metadata.PackageNotFoundError:
        return ""
    same = Path(str(found.locate_file("pulsora"))).resolve() == PACKAGE
    return found.version if same else ""


def module_faults(package: Path | None = None) -> list[str]:
    """Modules of the package that are missing or cannot be parsed.

    A module is missing if another one imports it, and neither a file nor a name of that kind is
    there.

    Args:
        package: Folder of the package; by default the one that this module is in.
    """
    faults: list[str] = []
    modules: dict[str, _Module] = {}
    package = PACKAGE if package is None else package
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        try:
            modules[name.removesuffix(".__init__")] = _read(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError, OSError) as error:
            faults.append(f"{name} cannot be read ({error})")
    missing = {
        f"{name} is missing ({importer} imports it)"
        for importer, module in modules.items()
        for name in _imported(module, modules)
        if name not in modules and name != "pulsora._core"
    }
    return faults + sorted(missing)


@dataclass(frozen=True)
class _Module:
    """The text of a module, as far as imports need it."""

    imports: list[ast.Import | ast.ImportFrom]
    bound: set[str]
    """Names that the module binds anywhere in its text, and "*"."""
    makes_names: bool
    """Whether the module has names that are not in its text, such as classes of device models."""


def _read(text: str) -> _Module:
    """Parses a module, and visits each of its nodes once."""
    imports: list[ast.Import | ast.ImportFrom] = []
    bound, makes_names = {"*"}, False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            makes_names |= node.id == "globals"
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            bound.add(node.name)
            makes_names |= isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
    return _Module(imports, bound, makes_names)


def _imported(module: _Module, modules: dict[str, _Module]) -> list[str]:
    """Modules of this package that a module imports."""
    names = []
    for node in module.imports:
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names if one.name.startswith("pulsora.")]
        elif (source := node.module or "").startswith("pulsora"):
            names.append(source)
            if source in modules and not modules[source].makes_names:
                bound = modules[source].bound
                names += [f"{source}.{one.name}" for one in node.names if one.name not in bound]
    return names


def _version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _gpu(number: int) -> str:
    """Name of a GPU if torch is there, else its architecture."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(number))
    try:
        return _core.gpu_architecture(number)
    except _core.DeviceError as error:
        return str(error)


def describe() -> dict[str, Any]:
    """Versions, processor, instruction sets, GPUs and settings of the environment."""
    others = ("torch", "typer", "matplotlib", "nvidia-cublas")
    packages = {"numpy": np.__version__, **{name: _version_of(name) for name in others}}
    gpus = [f"cuda:{number} {_gpu(number)}" for number in range(_core.cuda_device_count())]
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("OMP_", "PULSORA_")) or name == "CUDA_VISIBLE_DEVICES"
    }
    return {
        "pulsora": _core.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "instruction sets": _core.instruction_sets(),
        "compiled instruction sets": _core.compiled_instruction_sets(),
        "processors": chosen_threads(None),
        "load": list(os.getloadavg()),
        "gpus": gpus,
        "cuda libraries": [f"{name} {major}" for name, major in core_libraries().items()],
        "environment": settings,
    }
