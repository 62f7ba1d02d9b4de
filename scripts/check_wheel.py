#!/usr/bin/env python3
"""Tries a wheel as another machine would: check_wheel.py WHEEL.

Looks at the libraries that its extension needs and where they are searched for, installs it into an
empty virtual environment of the Python that runs this program, and there trains, saves and loads a
tile, on a GPU as well if there is one and the wheel can use it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

# What every Linux machine with a C++ program has (the policy of manylinux), and the driver of a
# GPU.
SYSTEM = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libdl.so.2",
}
CUBLAS = {"libcublas.so.13", "libcublasLt.so.13"}
PROGRAM = """
from importlib.metadata import version

import numpy as np
import pulsora as pl

tile = pl.Tile(4, 6, pl.LRTTConfig(rank=2), seed=7, threads=2)
x, d = np.eye(6, dtype=np.float32), np.full((6, 4), 0.1, np.float32)
before = tile.weights
tile.update(x, d, lr=0.1)
tile.save("tile.safetensors")
other = pl.Tile.load("tile.safetensors")
assert other.weights.tobytes() == tile.weights.tobytes() != before.tobytes()
assert pl.forecast.Ensemble.trained().encoder.shape[1] == 64
assert pl.forecast.forecast_loss([1.0 / n for n in range(1, 21)], 5, residual="gru").left < 1.0
print(version("pulsora"), pl.__file__)
try:
    gpu = pl.Tile(4, 6, pl.LRTTConfig(rank=2), seed=7, device="cuda")
    gpu.update(x, d, lr=0.1)
    assert gpu.weights.tobytes() == tile.weights.tobytes()
except pl.DeviceError as error:
    assert pl.cuda_device_count() == 0
    assert ("has no CUDA backend" in str(error)) != ("+cu" in version("pulsora"))
    print(error)
"""


def dynamic_section(library: Path) -> tuple[set[str], list[str]]:
    """The libraries that `library` needs, and its RUNPATH or RPATH, with empty entries."""
    text = subprocess.run(
        ["readelf", "--dynamic", "--wide", library], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
    paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text)
    return needed, [folder for path in paths for folder in path.split(":")]


def complaints(package: Path, *, cuda: bool) -> list[str]:
    """Faults of the unpacked wheel that would stop it from working elsewhere."""
    found = []
    libraries = sorted(package.rglob("*.so*"))
    if not libraries:
        return ["the wheel has no extension"]
    known = SYSTEM | {library.name for library in libraries} | (CUBLAS if cuda else set())
    for library in libraries:
        needed, folders = dynamic_section(library)
        needed = {name for name in needed if not name.startswith("ld-linux")}
        found += [f"{library.name} needs {name}" for name in sorted(needed - known)]
        for folder in folders:
            inside = folder.startswith("$ORIGIN") and (cuda or "nvidia" not in folder)
            if not inside:
                found.append(f"{library.name} searches {folder or 'the current folder'!r}")
    return found


def run_in_a_bare_environment(wheel: Path, folder: Path) -> str:
    """The output of PROGRAM in an environment with only the wheel and its dependencies."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    hidden = {"PYTHONPATH", "LD_LIBRARY_PATH", "PIP_CONSTRAINT"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel],
        check=True, env=env,
    )  # fmt: skip
    return subprocess.run(
        [python, "-c", PROGRAM], check=True, env=env, cwd=folder, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "package")
        found = complaints(folder / "package", cuda="+cu" in wheel.name)
        if found:
            print(f"{wheel.name}:", *found, sep="\n  ", file=sys.stderr)
            return 1
        print(f"{wheel.name} works: {run_in_a_bare_environment(wheel, folder).strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
