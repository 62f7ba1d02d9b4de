#!/usr/bin/env bash
# Makes wheels for other machines, from a source archive alone, and tries each in an empty virtual
# environment of its Python.
# Usage: [PYTHONS="3.10 3.12"] scripts/build_wheel.sh cpu|cuda [OPTION...]
# PYTHONS has the versions or paths of the Pythons to build for; by default .venv's alone.
# Options go to pip, such as --config-settings=cmake.define.PULSORA_CPU_ISAS=V2 for a shorter build.
# All files go to dist/. A wheel needs a C library no older than this machine's: the name of the
# wheel says which (manylinux_2_xx). CUDA_ARCHITECTURES chooses the GPUs of a CUDA wheel; by default
# A100, H100 and newer.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-}
case $kind in cpu | cuda) ;; *) echo "usage: $0 cpu|cuda [OPTION...]" >&2; exit 2 ;; esac
own=$PWD/.venv/bin/python
work=$PWD/build/wheel-$kind

refuse() { echo "PYTHONS: $1" >&2; exit 1; }
location() { "$1" -c 'import sys; print(sys.executable)' 2>/dev/null; }
find_python() { # find_python NAME: prints the path of the Python with this version or path
  local prefix
  if [[ $1 == */* ]]; then
    location "$1" ||
      refuse "$1 is no Python that runs; give a path of one, or a version such as 3.12"
  elif ! location "python$1"; then
    prefix=$(pyenv prefix "$1" 2>/dev/null) && location "$prefix/bin/python" ||
      refuse "no Python $1 is found, neither as python$1 nor by pyenv; install it (apt-get install \
python$1-dev python$1-venv, or pyenv install $1), give its path instead, or leave $1 out"
  fi
}
pythons=()
for name in ${PYTHONS:-"$own"}; do
  python=$(find_python "$name")
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    refuse "$python is older than Python 3.10; leave it out"
  "$python" -c 'import ensurepip, os, sysconfig, venv
os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    refuse "$python has no Python.h or no ensurepip; install both (Debian: python3-dev, python3-venv)"
  pythons+=("$python")
done

rm -rf "$work"
mkdir -p "$work" dist
"$own" -m build --sdist --no-isolation --outdir "$work" .
tar -xzf "$work"/pulsora-*.tar.gz -C "$work"
source=$(find "$work" -mindepth 1 -maxdepth 1 -type d)
mv "$work"/pulsora-*.tar.gz dist/

settings=(--config-settings=cmake.define.PULSORA_WERROR=ON "${@:2}")
if [ "$kind" = cuda ]; then
  cublas=$("$own" -c 'import pathlib, nvidia.cu13; print(pathlib.Path(nvidia.cu13.__path__[0]))')
  settings+=(--config-settings=cmake.define.PULSORA_CUBLAS_ROOT="$cublas"
    --config-settings=cmake.define.CMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-80;90}")
fi

for python in "${pythons[@]}"; do
  start=$SECONDS
  # One build folder after another in the same place: ccache has what does not depend on the Python.
  rm -rf "$source/build" "$work/venv" "$work/built" "$work/repaired"
  "$python" -m venv "$work/venv"
  PULSORA_WHEEL=$kind PIP_CONSTRAINT=$PWD/constraints.txt "$work/venv/bin/python" -m pip \
    --disable-pip-version-check --no-cache-dir wheel --no-deps --wheel-dir "$work/built" \
    --config-settings=build-dir=build/package "${settings[@]}" "$source"
  # Puts the OpenMP runtime into the wheel and drops paths of this machine. cuBLAS comes from
  # NVIDIA's own package, and the driver from the machine.
  PATH=$PWD/.venv/bin:$PATH "$own" -m auditwheel repair --wheel-dir "$work/repaired" \
    --exclude 'libcublas.so.*' --exclude 'libcublasLt.so.*' --exclude 'libcuda.so.*' \
    "$work"/built/pulsora-*.whl
  "$python" scripts/check_wheel.py "$work"/repaired/pulsora-*.whl
  mv "$work"/repaired/pulsora-*.whl dist/
  echo "$python: $((SECONDS - start)) s"
done
ls -l dist
