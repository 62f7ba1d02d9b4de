"""The program `pulsora` while its modules are loaded: Ctrl-C, and how threads wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pulsora

PRESSED = """
import os, signal, sys

# A background job of a shell ignores Ctrl-C, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Press:
    times = int(os.environ["TIMES"])

    def find_spec(self, name, *_):
        if name == os.environ["AT"]:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
"""
"""A start of Python that presses Ctrl-C as the module AT begins to be imported."""

RUN = ["train", "--hidden", "16", "--epochs", "1", "--threads", "1", "--algorithm", "digital"]
NOT_BEGUN = "stopped; nothing was begun\n"


def pressed(folder: Path, at: str, *command: str, times: int = 1) -> tuple[int, str]:
    """Exit status and errors of a program in which Ctrl-C is pressed at an import."""
    (folder / "sitecustomize.py").write_text(PRESSED)
    package = Path(pulsora._core.__file__).resolve().parents[1]
    path = os.pathsep.join([str(folder), str(package)])
    done = subprocess.run(  # noqa: S603
        [sys.executable, *command],
        env=os.environ | {"PYTHONPATH": path, "AT": at, "TIMES": str(times)},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("at", ["pulsora._core", "numpy", "numpy.linalg", "typer", "rich.console"])
def test_ctrl_c_while_the_program_is_loaded_is_one_line(at: str, tmp_path: Path) -> None:
    assert pressed(tmp_path, at, "-m", "pulsora", *RUN) == (130, NOT_BEGUN)


@pytest.mark.parametrize("at", ["pulsora._core", "pulsora.cli"])
def test_ctrl_c_while_the_installed_script_is_loaded_is_one_line(at: str, tmp_path: Path) -> None:
    script = tmp_path / "pulsora"
    script.write_text("from pulsora.__main__ import main\nmain()\n")
    assert pressed(tmp_path, at, str(script), "--version") == (130, NOT_BEGUN)


@pytest.mark.parametrize("at", ["sklearn.datasets", "sklearn.utils", "torch", "torch.nn"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_a_command_loads_modules_is_one_line(
    at: str, times: int, tmp_path: Path
) -> None:
    code, told = pressed(tmp_path, at, "-m", "pulsora", *RUN, "--out", "a", times=times)
    assert code == 130, told
    assert len(told.splitlines()) == 1, told
    assert told.startswith("stopped")
    assert (tmp_path / "a/checkpoint.pt").exists() == ("is saved" in told)


def test_ctrl_c_while_the_picture_of_a_run_is_drawn_says_what_is_saved(tmp_path: Path) -> None:
    code, told = pressed(tmp_path, "matplotlib", "-m", "pulsora", *RUN, "--out", "a")
    assert (code, told) == (
        130, "stopped after the last epoch; epoch 1 is saved in a/checkpoint.pt\n",
    )  # fmt: skip
    assert (tmp_path / "a/checkpoint.pt").is_file()


def test_programs_that_import_the_package_keep_their_own_ctrl_c(tmp_path: Path) -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import pulsora\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert 'OMP_WAIT_POLICY' not in os.environ\n"
    )
    plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    subprocess.run([sys.executable, "-c", program], env=plain, check=True)  # noqa: S603
    code, told = pressed(tmp_path, "numpy", "-c", "import pulsora")
    assert "KeyboardInterrupt" in told
    assert code != 130
