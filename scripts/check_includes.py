#!/usr/bin/env python3
"""Check that includes point one way, from room to room of src/rpucuda as its README lists them.

A room is a folder; `cuda/` repeats the rooms that have kernels. A file includes headers by a path
that names their room. It may include its own room and the rooms that ALLOWED lists. In addition,
the library knows no Python and no torch, only code that nvcc compiles includes .cuh headers,
headers of devices/ need no host (a run-time compiler reads them), and the README names every
header.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "rpucuda"
BINDINGS = ROOT / "src" / "bindings"

# Each of these rooms may include the rooms before it.
BASE = ["core", "numerics", "linalg", "parameters", "storage"]
SIMULATOR = [
    "devices",
    "noise_models",
    "pulses",
    "array",
    "periphery",
    "transfer",
    "compounds",
    "inference",
    "lrtt",
    "tile",
]
# Side libraries stand on the base, and on the rooms listed here; no other room includes them.
SIDE = {
    "lowrank": [],
    "forecast": [],
    "runtime": ["devices", "noise_models", "pulses", "array"],
}

IN_ORDER = BASE + SIMULATOR
ALLOWED = {room: set(IN_ORDER[: i + 1]) for i, room in enumerate(IN_ORDER)}
ALLOWED |= {room: {room, *BASE, *more} for room, more in SIDE.items()}

# Generated headers, which lie in no room, by the rooms that may include them.
GENERATED = {
    "device_list.h": {"array"},
    "runtime_options.h": {"runtime"},
    "noise_model_list.h": {"noise_models"},
    "compound_list.h": {"tile"},
}

# The only standard headers that headers of devices/ may include, because they need no host.
FREESTANDING = {"cstdint", "limits", "type_traits"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)
FOREIGN = re.compile(r"^(Python\.h|pybind11/|torch/|ATen/|c10/)")


def room_of(path: str) -> str | None:
    """Return the room of a path below src/rpucuda, or None if the path is in no room."""
    parts = path.split("/")
    room = parts[1] if parts[0] == "cuda" and len(parts) > 2 else parts[0]
    return room if len(parts) > 1 and room in ALLOWED else None


def includes_of(file: Path) -> list[tuple[str, str]]:
    """Return the includes of a file: the opening bracket and the path."""
    return INCLUDE.findall(file.read_text(encoding="utf-8"))


def faults_of(file: Path) -> list[str]:
    """Return complaints about the includes of one file."""
    in_library = file.is_relative_to(LIBRARY)
    room = room_of(file.relative_to(LIBRARY).as_posix()) if in_library else "bindings"
    if room is None:
        return ["is in no room; the rooms are " + ", ".join(ALLOWED)]
    faults = []
    for bracket, target in includes_of(file):
        if in_library and FOREIGN.match(target):
            faults.append(f"includes <{target}>, which only src/bindings may")
        if bracket == "<":
            continue
        if target.endswith(".cuh") and file.suffix not in {".cu", ".cuh"}:
            faults.append(f'includes "{target}", which only .cu and .cuh files may')
        if not in_library or room in GENERATED.get(target, ()):
            continue
        other = room_of(target)
        if other is None:
            faults.append(f'includes "{target}", which names no room that {room}/ may include')
        elif other not in ALLOWED[room]:
            faults.append(f'({room}) includes "{target}"; {room}/ may not include {other}/')
    return faults


def hosted_faults() -> list[str]:
    """Return complaints about headers of devices/ that directly or indirectly need a host."""
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
    """Return complaints about headers that the page of rooms does not name."""
    page = (LIBRARY / "README.md").read_text(encoding="utf-8")
    headers = [file.relative_to(LIBRARY).as_posix() for file in sorted(LIBRARY.rglob("*.h"))]
    return [
        f"src/rpucuda/README.md does not name {name}" for name in headers if f"`{name}`" not in page
    ]


def main() -> int:
    """Print every complaint, and return 1 if there is one."""
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
        print(f"includes of {len(files)} files in {len(ALLOWED)} rooms point one way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
