"""Device models from their source, compiled when they are needed.

A model is a header of C++ of the shape that examples/05_custom_device shows. `from_source()`
compiles it by the machine's C++ compiler, and returns a class like those of the built-in models;
docs/howto/device_from_source.md tells more. A source is code: it runs with the rights of whoever
runs the program.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pulsora import _core
from pulsora._internal.sources import Sources
from pulsora.devices.models import Device

if TYPE_CHECKING:
    import os

    from pulsora.state import State

__all__ = ["compile_ahead", "compile_counts", "from_source", "from_state"]

_SOURCES = Sources("device", Device, "device_sources")
# Folders of NVRTC in Python packages: for CUDA 13 and for CUDA 12.
_NVRTC_FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
_core.set_nvrtc_folders(
    [str(Path(entry, part)) for entry in sys.path if entry for part in _NVRTC_FOLDERS]
)


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
    return _SOURCES.made(source, name)


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
    return _SOURCES.compiled_ahead(source, name, isa, arch)


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
    return _SOURCES.of_state(saved.values)
