"""The self-test: checks that run one after another, each of which finds its own kind of fault."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsora import _core
from pulsora._internal.threads import chosen_threads
from pulsora.bench.measure import WrongResultError
from pulsora.tile import Tile
from pulsora.verification import golden, machine, speed
from pulsora.verification.cases import THREADS, Place, hash_of
from pulsora.verification.report import Check, SelfTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["selftest"]

_ANY = "*"  # in place of a golden value that could not be read


def selftest(*, speeds: bool = True, progress: Callable[[str], object] | None = None) -> SelfTest:
    """Tests this installation on this machine, in about a minute.

    It checks versions, modules, instruction sets, CUDA libraries, parameter defaults; the bits of
    every device model, compound and noise model on each instruction set; that neither threads, nor
    a saved and loaded state, nor a GPU change a bit. docs/howto/selftest.md has the list.

    Args:
        speeds: Whether to measure four operations, beside the times of known machines.
        progress: Called with the name of each check before it runs.

    Returns:
        The checks; `str()` of it is a text, `save(path)` writes a JSON file for a bug report.
        `ok` tells whether any check found a fault, and `verdict` names faults in one line.
    """
    start = time.perf_counter()
    expected: dict[str, Any] = {"version": "", "hashes": {}, "defaults": {}}
    checks = []

    def add(name: str, check: Callable[[], Check]) -> None:
        if progress is not None:
            progress(name)
        try:
            checks.append(check())
        except Exception as error:  # noqa: BLE001 - what fails is a fault, and the others still run
            fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
            checks.append(Check(name, (fault,)))

    def golden_file() -> Check:
        expected.update(golden.read())
        return Check("golden file", note=f"{len(expected['hashes'])} cases")

    add("golden file", golden_file)
    add("versions", lambda: _versions(expected["version"]))
    add("modules", lambda: Check("modules", tuple(machine.module_faults())))
    add("instruction sets", _instruction_sets)
    add("CUDA libraries", _cuda_libraries)
    add("parameter defaults", lambda: _defaults(expected["defaults"]))
    hashes = expected["hashes"]
    for name in _core.instruction_sets():
        check = f"golden bits, {name}"
        place = Place(instruction_set=name)
        add(check, lambda c=check, p=place: _bits(c, hashes, p))  # type: ignore[misc]
    add("threads", lambda: _threads(hashes))
    add("resume", lambda: _resume(hashes))
    gpus = range(_core.cuda_device_count())
    for number in gpus:
        check = f"GPU {number} = CPU"
        place = Place(device=f"cuda:{number}")
        add(check, lambda c=check, p=place: _bits(c, hashes, p))  # type: ignore[misc]
    if not gpus:
        add("GPU = CPU", lambda: Check("GPU = CPU", note="no usable GPU", skipped=True))
    if speeds:
        for device in ["cpu", *(f"cuda:{number}" for number in gpus)]:
            add(f"speed, {device}", lambda d=device: _speed(d))  # type: ignore[misc]
    return SelfTest(tuple(checks), machine.describe(), time.perf_counter() - start)


def _versions(golden_version: str) -> Check:
    faults = machine.version_faults(golden_version or _core.__version__.partition("+")[0])
    return Check("versions", tuple(faults), f"pulsora {_core.__version__}")


def _instruction_sets() -> Check:
    used = Tile(2, 2)._core.instruction_set  # noqa: SLF001 - what tiles use
    found = ", ".join(_core.instruction_sets())
    return Check(
        "instruction sets",
        tuple(machine.instruction_set_faults(used)),
        f"found {found}; compiled {', '.join(_core.compiled_instruction_sets())}; in use {used}",
    )


def _cuda_libraries() -> Check:
    wanted = machine.core_libraries()
    if not wanted:
        return Check("CUDA libraries", note="a build without CUDA", skipped=True)
    note = ", ".join(f"{name} {major}" for name, major in wanted.items())
    return Check("CUDA libraries", tuple(machine.library_faults()), note)


def _defaults(expected: dict[str, Any]) -> Check:
    if not expected:
        return Check("parameter defaults", note="no golden values", skipped=True)
    now = golden.defaults()
    faults = [
        f"{name} is {now[name]!r} (golden {value!r})" if name in now else f"{name} is missing"
        for name, value in expected.items()
        if now.get(name, _ANY) != value
    ]
    return Check("parameter defaults", tuple(faults), f"{len(expected)} parameters")


def _bits(name: str, hashes: dict[str, str], place: Place) -> Check:
    """The golden bits of all cases at one place."""
    if not hashes:
        return Check(name, note="no golden values", skipped=True)
    return Check(name, tuple(_differing(hashes, hashes, place)), f"{len(hashes)} cases")


def _differing(
    names: Iterable[str],
    hashes: dict[str, str],
    place: Place,
    between: Callable[[Tile], Tile] | None = None,
) -> list[str]:
    faults = []
    for name in names:
        try:
            found = hash_of(name, place, between)
        except Exception as error:  # noqa: BLE001 - the fault is named, and other cases still run
            text = " ".join(str(error.args[0] if error.args else error).split())
            faults.append(f"{name}: {type(error).__name__}: {text}")
            continue
        if found != hashes[name]:
            faults.append(f"{name} differs ({found}, golden {hashes[name]})")
    return faults


def _threads(hashes: dict[str, str]) -> Check:
    """One case on one thread and on more, also on more threads than processors."""
    most = chosen_threads(None)
    counts = sorted({1, 2, 3, most})
    results = {count: hash_of(THREADS, Place(threads=count)) for count in counts}
    expected = hashes.get(THREADS, results[1])
    faults = [
        f"{count} thread{'s' if count > 1 else ''}: {found}, golden {expected}"
        for count, found in results.items()
        if found != expected
    ]
    return Check("threads", tuple(faults), f"{', '.join(map(str, counts))} threads")


def _resume(hashes: dict[str, str]) -> Check:
    """Tiles saved, loaded into others and continued; the bits are those without interruption."""
    names = [name for name in hashes if not name.startswith("devices/")]
    names += [name for name in hashes if name.endswith("/stochastic_compressed")]
    if not names:
        return Check("resume", note="no golden values", skipped=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tile.safetensors"

        def by_file(tile: Tile) -> Tile:
            tile.save(path)
            return Tile.load(path)

        def by_state(tile: Tile) -> Tile:
            fresh = Tile(tile.d_size, tile.x_size, tile.config, seed=tile.seed)
            fresh.load_state(tile.state())
            return fresh

        faults = [f"from a file: {one}" for one in _differing(names, hashes, Place(), by_file)]
        faults += [f"from a state: {one}" for one in _differing(names, hashes, Place(), by_state)]
    return Check("resume", tuple(faults), f"{len(names)} cases, from a file and from a state")


def _speed(device: str) -> Check:
    name = f"speed, {device}"
    try:
        return Check(name, note=speed.note(device))
    except WrongResultError as error:
        return Check(name, (str(error),))
    except ImportError as error:  # a GPU without torch
        return Check(name, note=str(error), skipped=True)
