#!/usr/bin/env python3
"""Checks that includes point one way, from room to room of src/rpucuda as its README lists them.

A room is a folder; `cuda/` repeats the rooms that have kernels. A file may include its own room and those before it in
ROOMS, by a path that names the room. In addition, the library knows no Python and no torch, only code that nvcc compiles
includes .cuh headers, what a device model includes needs no host (a run-time compiler reads it), and the README names
every header.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "rpucuda"
BINDINGS = ROOT / "src" / "bindings"

# From the ground floor up.
ROOMS = [
    "core",
    "lowrank",
    "devices",
    "pulses",
    "array",
    "runtime",
    "periphery",
    "transfer",
    "compounds",
    "lrtt",
    "tile",
    "forecast",
]

# Files outside the rooms, and generated ones: the room from where on they may be included.
OTHERS = {
    "device_list.h": "array",  # generated: every device header
    "runtime_options.h": "runtime",  # generated: compiler options
    "compound_list.h": "tile",  # generated: every compound's header
    "cuda_absent.cpp": "forecast",  # stands in for the CUDA side of every room
    "cuda/functors.cu": "forecast",  # functors of every room
}

# What may be used where there is no host: nothing else may be included by the headers of devices/.
FREESTANDING = {"cstdint", "limits", "type_traits"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)
FOREIGN = re.compile(r"^(Python\.h|pybind11/|torch/|ATen/|c10/)")


def floor_of(path: str) -> int | None:
    """Index of the room of a path below src/rpucuda, or None if it is in no room."""
    if path in OTHERS:
        return ROOMS.index(OTHERS[path])
    parts = path.split("/")
    room = parts[1] if parts[0] == "cuda" and len(parts) > 2 else parts[0]
    return ROOMS.index(room) if len(parts) > 1 and room in ROOMS else None


def includes_of(file: Path) -> list[tuple[str, str]]:
    """The includes of a file: the opening bracket, and what stands in it."""
    return INCLUDE.findall(file.read_text(encoding="utf-8"))


def faults_of(file: Path) -> list[str]:
    """What is wrong with the includes of one file."""
    if file.is_relative_to(BINDINGS):
        own, room = len(ROOMS), "bindings"
    else:
        path = file.relative_to(LIBRARY).as_posix()
        found = floor_of(path)
        if found is None:
            return ["is in no room; the rooms are " + ", ".join(ROOMS)]
        own, room = found, ROOMS[found]
    faults = []
    for bracket, target in includes_of(file):
        if file.is_relative_to(LIBRARY) and FOREIGN.match(target):
            faults.append(f"includes <{target}>, which only src/bindings may")
        if bracket == "<":
            continue
        if target.endswith(".cuh") and file.suffix not in {".cu", ".cuh"}:
            faults.append(f'includes "{target}", which only .cu and .cuh files may')
        other = floor_of(target)
        if other is None and own < len(ROOMS):
            faults.append(f'includes "{target}", which names no room')
        elif other is not None and other > own:
            faults.append(f'({room}) includes "{target}" ({ROOMS[other]}), which is above it')
    return faults


def hosted_faults() -> list[str]:
    """Which headers of devices/ include, directly or not, what needs a host."""
    faults = []
    for file in sorted((LIBRARY / "devices").glob("*.h")):
        seen: set[Path] = set()
        waiting = [file]
        while waiting:
            header = waiting.pop()
            if header in seen:
                continue
            seen.add(header)
            for bracket, target in includes_of(header):
                if bracket == '"':
                    waiting.append(LIBRARY / target)
                elif target not in FREESTANDING:
                    where = header.relative_to(LIBRARY)
                    faults.append(f"{file.relative_to(ROOT)}: {where} includes <{target}>")
    return faults


def unnamed() -> list[str]:
    """Headers that the page of rooms does not name."""
    page = (LIBRARY / "README.md").read_text(encoding="utf-8")
    headers = [file.relative_to(LIBRARY).as_posix() for file in sorted(LIBRARY.rglob("*.h"))]
    return [
        f"src/rpucuda/README.md does not name {name}" for name in headers if f"`{name}`" not in page
    ]


def main() -> int:
    files = [
        file
        for folder in (LIBRARY, BINDINGS)
        for file in sorted(folder.rglob("*"))
        if file.suffix in {".h", ".cpp", ".cuh", ".cu"}
    ]
    faults = [f"{file.relative_to(ROOT)}: {fault}" for file in files for fault in faults_of(file)]
    faults += hosted_faults() + unnamed()
    for fault in faults:
        print(fault)
    if not faults:
        print(f"includes of {len(files)} files in {len(ROOMS)} rooms point one way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
