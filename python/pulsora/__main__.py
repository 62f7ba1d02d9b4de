"""`pulsora`, and `python -m pulsora`."""

import os
import sys


def main() -> None:
    """Runs the command line, with threads that sleep while they wait.

    Spinning threads take the cores from one another as soon as there are more threads than free
    cores. A program that calls this function has loaded an OpenMP library by then, which reads
    OMP_WAIT_POLICY once; so it executes itself again if the variable is not set.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    from pulsora.cli import app  # noqa: PLC0415 - after execv

    app(prog_name="pulsora")


if __name__ == "__main__":
    main()
