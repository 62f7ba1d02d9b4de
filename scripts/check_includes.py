#!/usr/bin/env python3
"""Checks that includes point one way: core <- devices <- operations <- analog devices <- tile <- bindings.

Each source file belongs to one layer and may include its own layer and those below. In addition, the core knows no
Python and no torch, and only code that nvcc compiles includes .cuh headers.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "rpucuda"

# From the bottom up; the patterns are paths below src/rpucuda without their suffix. A new file goes
# into one of them; where a path stands in full, that entry wins over a wildcard elsewhere.
LAYERS: list[tuple[str, list[str]]] = [
    ("core", ["core/*"]),
    ("devices", ["devices/*"]),
    (
        "operations",
        [
            "array_ids",
            "math_util",
            "cpu_*",
            "io_*",
            "forward_backward_pass",
            "plain_read",
            "adapter_kernels",
            "update_parameters",
            "bit_line_maker",
            "pulse_words*",
            "pulse_trains",
            "*_elements",
            "pulsed_kernels*",
            "devices/cell_events",  # what operations do to cells of every model
            "device_list",
            "device_model",
            "state",
            "step_graph",
            "cuda/*",
        ],
    ),
    (
        "analog devices",
        [
            "*_device",
            "*_factory",
            "pulsed_weight_updater",
            "lrtt_*",
            "lrtt_transfer_elements",
            "cuda/lrtt_transfer",
            "cuda/elements",  # of all layers
            "tile_config",
        ],
    ),
    ("tile", ["tile"]),
    ("bindings", ["../bindings/*"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)
FOREIGN = re.compile(r"^(Python\.h|pybind11/|torch/|ATen/|c10/)")


def layer_of(path: str) -> int | None:
    """Index of the layer of a path below src/rpucuda, or None if no pattern matches."""
    stem = str(PurePosixPath(path).with_suffix(""))
    matches = [
        (pattern != stem, index)
        for index, (_, patterns) in enumerate(LAYERS)
        for pattern in patterns
        if fnmatch(stem, pattern)
    ]
    return min(matches)[1] if matches else None


def faults_of(file: Path) -> list[str]:
    """What is wrong with the includes of one file."""
    in_library = file.is_relative_to(LIBRARY)
    path = file.relative_to(LIBRARY).as_posix() if in_library else f"../bindings/{file.name}"
    own = layer_of(path)
    if own is None:
        return ["belongs to no layer; add it to LAYERS in scripts/check_includes.py"]
    faults = []
    for bracket, target in INCLUDE.findall(file.read_text(encoding="utf-8")):
        if in_library and FOREIGN.match(target):
            faults.append(f"includes <{target}>, which only src/bindings may")
        if bracket == "<":
            continue
        if target.endswith(".cuh") and file.suffix not in {".cu", ".cuh"}:
            faults.append(f'includes "{target}", which only .cu and .cuh files may')
        other = layer_of(target)
        if other is not None and other > own:
            faults.append(f'({LAYERS[own][0]}) includes "{target}" ({LAYERS[other][0]})')
    return faults


def main() -> int:
    files = [
        file
        for folder in (LIBRARY, ROOT / "src" / "bindings")
        for file in sorted(folder.rglob("*"))
        if file.suffix in {".h", ".cpp", ".cuh", ".cu"}
    ]
    faults = [f"{file.relative_to(ROOT)}: {fault}" for file in files for fault in faults_of(file)]
    for fault in faults:
        print(fault)
    if not faults:
        print(f"includes of {len(files)} files point one way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
