#!/usr/bin/env bash
# Installs what a build of Pulsora needs: compiler, CMake, GoogleTest, and a virtual environment in
# .venv with the build tools. Installs system packages only as root on a machine with apt-get;
# otherwise it names them.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

# The package runs on Python 3.10; the versions in constraints.txt do not.
if "$PYTHON" --version >/dev/null 2>&1 && ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "Please choose Python 3.11 or newer, as in PYTHON=python3.12 make demo; $PYTHON is $("$PYTHON" --version)" >&2
  exit 1
fi

packages=()
need() { # need PACKAGE COMMAND...: wants PACKAGE unless the command succeeds
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || packages+=("$package")
}
has_header() { echo "#include <$1>" | g++ -E -x c++ - >/dev/null; }
can_make_venv() { [ -x .venv/bin/python ] || "$PYTHON" -c 'import ensurepip, venv'; }

need g++ g++ --version
need cmake cmake --version
need libgtest-dev has_header gtest/gtest.h
need python3-venv can_make_venv
need python3-dev "$PYTHON" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'

if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
  else
    echo "Please install these (Debian and Ubuntu names), then try again: ${packages[*]}" >&2
    exit 1
  fi
fi

[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt)
"${pip[@]}" scikit-build-core pybind11 nlohmann-json ninja

# Distributions older than Debian 12 have a CMake that is too old for us; PyPI has a newer one.
version=$(cmake --version | sed -n 's/^cmake version //p')
if [ "$(printf '%s\n' 3.24 "$version" | sort -V | head -n 1)" != 3.24 ]; then
  "${pip[@]}" 'cmake>=3.24'
fi
