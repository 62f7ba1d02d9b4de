"""How many CPU threads there are to use."""

from __future__ import annotations

import os

__all__ = ["chosen_threads"]


def chosen_threads(threads: int | None) -> int:
    """The number of CPU threads, or where that is None OMP_NUM_THREADS, at most all this process may run on."""
    if threads is not None:
        return threads
    cores = len(os.sched_getaffinity(0))
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(int(wanted), cores) if wanted.isdecimal() and int(wanted) > 0 else cores
