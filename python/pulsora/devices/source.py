"""Device models from their source, compiled when they are needed.

A model is a header of C++ of the shape that examples/05_custom_device shows. `from_source()`
compiles it by the machine's C++ compiler, and returns a class like those of the built-in models;
docs/howto/device_from_source.md tells more. A source is code: it runs with the rights of whoever
runs the program.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsora import _core
from pulsora._internal.checks import reading
from pulsora._internal.parameters import parameter_class, register_device, registered_devices
from pulsora.devices.models import Device

if TYPE_CHECKING:
    from pulsora.state import State

__all__ = ["compile_ahead", "compile_counts", "from_source", "from_state"]

_PACKAGE = "pulsora.devices"
# Folders of NVRTC in Python packages: for CUDA 13 and for CUDA 12.
_NVRTC_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
_core.set_nvrtc_folders(
    [str(Path(entry, part)) for entry in sys.path if entry for part in _NVRTC_FOLDERS]
)
_lock = threading.Lock()


def from_source(source: str | os.PathLike[str], name: str | None = None) -> type[Device]:
    """The class of a device model that is given as C++ text.

    The model is compiled for this machine's processor at first, which takes some seconds, and later
    taken from a folder of compiled models. Its kernels for a GPU are compiled in the same way, each
    when a tile there first needs it. The folder is `$PULSORA_CACHE_DIR`, else
    `$XDG_CACHE_HOME/pulsora`, else `~/.cache/pulsora`; with `PULSORA_COMPILE=never` nothing is
    compiled. Without the compiled model and a C++ compiler, this raises CompilerNotFound. The
    compiler may take `PULSORA_COMPILE_SECONDS` (300 by default) and
    `PULSORA_COMPILE_GIGABYTES` of memory (4).

    The class becomes a member of `pulsora.devices`, so that its objects can be pickled; another
    process must make the same call before it reads them.

    Args:
        source: The path of a header, or its text (several lines, or a `kName`). It may include
            headers of the system and those headers <pulsora/name.h>, <pulsora/devices/name.h> and
            <pulsora/room/name.h> that need only the base rooms, devices, pulses and array; no other
            files.
        name: Name of the struct in namespace pulsora; by default the only `kName` in the text.

    Returns:
        The class: `from_source("my_step.h")(dw_min=0.002)` is a device. The same text gives the
        same class.

    Raises:
        ConfigError: If the text names no model or several, if there is another device of that
            name, or for a bad limit.
        CompileError: If the source does not compile; the message has the compiler's log, with the
            file and line. Also if it includes other files, or the compiler exceeds a limit.
        CompilerNotFound: If the model has not been compiled before, and there is no C++ compiler or
            PULSORA_COMPILE=never.
        FileNotFoundError: If there is no such file.
        KeyboardInterrupt: If SIGINT arrives meanwhile; the compiler is ended.
    """
    text, file = _read(source)
    return _registered(text, name or "", file)


def _registered(source: str, name: str, file: str) -> type[Device]:
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}; pass the name of the struct")
    wanted, text, digest = _core.read_source(source, name)
    with _lock:
        package = sys.modules[_PACKAGE]
        known = registered_devices().get(wanted)
        if known is None and hasattr(package, wanted):
            raise _core.ConfigError(
                f"pulsora.devices.{wanted} is something else already; give the struct another name"
            )
        entry = _core.register_device(text, wanted, file)
        if known is None:
            known = parameter_class(
                wanted, entry["fields"], entry["doc"], Device, _PACKAGE, source_sha256=digest
            )
            setattr(package, wanted, known)
            register_device(known)
    assert issubclass(known, Device)  # noqa: S101 - for the type checker
    return known


def compile_ahead(
    source: str | os.PathLike[str],
    name: str | None = None,
    *,
    isa: str | None = None,
    arch: str | None = None,
) -> list[Path]:
    """Compiles a device model into the folder of compiled models, without loading it.

    Args:
        source: As in from_source().
        name: As in from_source().
        isa: The instruction set of the machines that will run it, one of "V2", "V3", "V4" and
            "V4Popcnt"; by default the best of this machine.
        arch: The architecture of the GPUs that will run it, such as "sm_90"; by default none. No
            GPU is needed.

    Returns:
        The files that later processes find: first the file for the CPU, which a GPU needs too, then
        those for a GPU.

    Raises:
        ConfigError: As in from_source(), and for an unknown instruction set or architecture.
        CompileError: If the source does not compile, or nothing can be stored in the folder.
        CompilerNotFound: If there is no C++ compiler, or no NVRTC for a GPU.
        FileNotFoundError: If there is no such file.
    """
    text, file = _read(source)
    given = (text, name or "", file)
    files = [_core.compile_ahead(*given, isa or "")]
    if arch is not None:
        files += _core.compile_ahead_for_gpu(*given, arch)
    return [Path(each) for each in files]


def compile_counts() -> dict[str, int]:
    """Counts of models and GPU kernels that this process compiled, or found.

    They were "compiled", found "from_disk", or known "from_memory".
    """
    return _core.compile_counts()


def from_state(saved: State) -> list[type[Device]]:
    """Compiles and registers the device models whose sources a saved state carries.

    This runs code of whoever made the state.

    Args:
        saved: The state of a tile; `Tile.load(path, trust_device_source=True)` does this with its
            state.

    Returns:
        Classes of the models; none if the state needs only built-in models.

    Raises:
        StateError: If a source does not match its SHA-256, or a name is taken by another model.
        CompileError: As in from_source().
    """
    sources: Any = saved.values.get("device_sources", {})
    if not isinstance(sources, dict):
        raise _core.StateError("the state's sources of device models are no table; it is damaged")
    return [_trusted(name, entry) for name, entry in sources.items()]


def _trusted(name: str, entry: Any) -> type[Device]:  # noqa: ANN401 - whatever a file has
    text = entry.get("source") if isinstance(entry, dict) else None
    digest = entry.get("sha256") if isinstance(entry, dict) else None
    if not isinstance(text, str) or hashlib.sha256(text.encode()).hexdigest() != digest:
        raise _core.StateError(
            f"the state's source of the device model {name!r} does not have the SHA-256 that "
            "stands beside it; the state is damaged"
        )
    try:
        return _registered(text, name, "")
    except _core.ConfigError as error:
        raise _core.StateError(
            f"the state's source of the device model {name!r} cannot be used: {error}"
        ) from None


def _read(source: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a source, and the name of its file."""
    if isinstance(source, str) and ("\n" in source or "kName" in source):
        return source, ""
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source is of type {type(source).__name__}; pass the path of a header, or its text"
        )
    path = Path(source)
    with reading("source", path, "give the path of a header, or its text of several lines"):
        content = path.read_bytes()
    try:
        return content.decode(), path.name
    except UnicodeDecodeError as error:
        raise _core.ConfigError(f"{path} is not text in UTF-8 ({error})") from None
