"""`pulsora`, and `python -m pulsora`."""

import os
import sys


def main() -> None:
    """Runs the command line, with threads that sleep while they wait.

    An OpenMP library reads OMP_WAIT_POLICY once, when it is loaded, and by the time this runs the
    import of the package has loaded one. So the program executes itself again if the variable is
    not set. Spinning threads take the cores from one another as soon as there are more threads than
    free cores.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    try:
        from pulsora.cli import app  # noqa: PLC0415 - after execv

        app(prog_name="pulsora")
    except KeyboardInterrupt:  # while modules are loaded
        sys.stderr.write("stopped; nothing was begun\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
