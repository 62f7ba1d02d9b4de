#!/usr/bin/env bash
# Makes a wheel for other machines, from a source archive alone, and tries it in an empty virtual
# environment.
# Usage: scripts/build_wheel.sh cpu|cuda [OPTION...]
# Options go to pip, such as --config-settings=cmake.define.PULSORA_CPU_ISAS=V2 for a shorter build.
# Both files go to dist/. The wheel needs a C library no older than this machine's: the name of the
# wheel says which (manylinux_2_xx). CUDA_ARCHITECTURES chooses the GPUs of a CUDA wheel; by default
# T4 and newer.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-}
case $kind in cpu | cuda) ;; *) echo "usage: $0 cpu|cuda [OPTION...]" >&2; exit 2 ;; esac
python=$PWD/.venv/bin/python
work=$PWD/build/wheel-$kind

rm -rf "$work"
mkdir -p "$work"
"$python" -m build --sdist --no-isolation --outdir "$work" .
tar -xzf "$work"/pulsora-*.tar.gz -C "$work"
source=$(find "$work" -mindepth 1 -maxdepth 1 -type d)

settings=(--config-settings=cmake.define.PULSORA_WERROR=ON "${@:2}")
if [ "$kind" = cuda ]; then
  cublas=$("$python" -c 'import pathlib, nvidia.cu13; print(pathlib.Path(nvidia.cu13.__path__[0]))')
  settings+=(--config-settings=cmake.define.PULSORA_CUBLAS_ROOT="$cublas"
    --config-settings=cmake.define.CMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-80;90}")
fi
PULSORA_WHEEL=$kind PIP_CONSTRAINT=$PWD/constraints.txt "$python" -m pip --disable-pip-version-check --no-cache-dir wheel \
  --no-deps --wheel-dir "$work" --config-settings=build-dir=build/package "${settings[@]}" "$source"

# Puts the OpenMP runtime into the wheel and drops paths of this machine. cuBLAS comes from NVIDIA's
# own package, and the driver from the machine.
"$python" -m auditwheel repair --wheel-dir "$work/repaired" \
  --exclude 'libcublas.so.*' --exclude 'libcublasLt.so.*' --exclude 'libcuda.so.*' "$work"/pulsora-*.whl
"$python" scripts/check_wheel.py "$work"/repaired/pulsora-*.whl
mkdir -p dist
mv "$work"/pulsora-*.tar.gz "$work"/repaired/pulsora-*.whl dist/
ls -l dist
