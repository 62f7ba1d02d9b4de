"""Noise models from their source, compiled when they are needed, as device models are.

A model is a header of C++ of the shape that examples/27_custom_noise_model shows. A source is code:
it runs with the rights of whoever runs the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora._internal.sources import Sources
from pulsora.noise_models.models import NoiseModel

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from pulsora.state import State

__all__ = ["compile_ahead", "from_source", "from_state"]

_SOURCES = Sources("noise_model", NoiseModel, "noise_model_sources")


def from_source(source: str | os.PathLike[str], name: str | None = None) -> type[NoiseModel]:
    """The class of a noise model that is given as C++ text.

    Compiler, folder of compiled models, limits and errors are those of device models
    (`devices.from_source`). A realisation has the same bits on CPU and GPU, in any order of calls,
    as those of built-in models do. The class becomes a member of `pulsora.noise_models`, so that
    its objects can be pickled; another process must make the same call before it reads them.

    Args:
        source: The path of a header, or its text (several lines, or a `kName`). It may include
            headers of the system and those headers <pulsora/noise_models/name.h> and
            <pulsora/name.h> that need only the base rooms; no other files.
        name: Name of the struct in namespace pulsora; by default the only `kName` in the text.

    Returns:
        The class: `from_source("my_memory.h")(g_max=30.0)` is a noise model. The same text gives
        the same class.

    Raises:
        ConfigError: If the text names no model or several, if there is another model of that name,
            or for a bad limit.
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
    """Compiles a noise model into the folder of compiled models, without loading it.

    Args:
        source: As in from_source().
        name: As in from_source().
        isa: The instruction set of the machines that will run it, one of "V2", "V3", "V4" and
            "V4Popcnt"; by default the best of this machine.
        arch: The architecture of the GPUs that will run it, such as "sm_90"; by default none. No
            GPU is needed.

    Returns:
        The files that later processes find: first the file for the CPU, then that for a GPU.

    Raises:
        ConfigError: As in from_source(), and for an unknown instruction set or architecture.
        CompileError: If the source does not compile, or nothing can be stored in the folder.
        CompilerNotFound: If there is no C++ compiler, or no NVRTC for a GPU.
        FileNotFoundError: If there is no such file.
    """
    return _SOURCES.compiled_ahead(source, name, isa, arch)


def from_state(saved: State) -> list[type[NoiseModel]]:
    """Compiles and registers the noise models whose sources a saved state carries.

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
